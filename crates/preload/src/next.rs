//! The allocator behind this one, and a little memory to hand out before that is found.
//!
//! The functions are looked up once with `dlsym(RTLD_NEXT)`, so that a program which brings another
//! allocator as a shared library keeps it. `dlsym` may itself allocate, and so may whoever runs
//! before the look-up is done: they are served from a small static buffer, whose blocks are known by
//! their address and never given back.

use crate::expected;
use crate::objects::{self, find};
use crate::thread::{self, Busy, Word};
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicUsize, Ordering};

/// Addresses of the next allocator's functions; zero before they are found. (`malloc` and `free` are
/// in [`HOT`].)
pub(crate) struct Next {
    calloc: AtomicUsize,
    realloc: AtomicUsize,
    memalign: AtomicUsize,
    posix_memalign: AtomicUsize,
    aligned_alloc: AtomicUsize,
    usable: AtomicUsize,
    /// Whether blocks bear glibc's header, so that their size can be read off it.
    headers: AtomicBool,
    /// Whether nobody knows how large blocks are.
    secret: AtomicBool,
}

// SAFETY: it is made of atomic numbers and flags, for which zeros are valid.
pub(crate) static NEXT: Next = unsafe { MaybeUninit::zeroed().assume_init() };

pub(crate) use crate::expected::WINDOW;

/// Everything that malloc and free read besides the block, the thread's words and the cell. It lies on one
/// line, which is written at the start alone.
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// The next `malloc` and the next `free`; zero before they are found.
    malloc: AtomicUsize,
    free: AtomicUsize,
    /// The second number of every [`ledgerline::Prepaid`].
    pub(crate) area: AtomicIsize,
    /// Where the thread's words lie (thread.rs), or zero: no cell lies there either.
    pub(crate) words: AtomicUsize,
}

// SAFETY: as above.
pub(crate) static HOT: Hot = unsafe { MaybeUninit::zeroed().assume_init() };

static REAL_USABLE: AtomicUsize = AtomicUsize::new(0);

macro_rules! forward {
    ($(#[$doc:meta])* $name:ident, $table:ident.$field:ident, ($($argument:ident: $kind:ty),*) -> $result:ty
        $(, $busy:expr)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function of that name; [`Next::ready`] returned true.
        #[inline(always)]
        pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> $result {
            let address = $table.$field.load(Ordering::Relaxed);
            $(let _busy = $busy;)?
            // SAFETY: not zero once `ready`; dlsym found it under the name of a C function of this
            // type, in a library that stays loaded.
            unsafe {
                let function: unsafe extern "C" fn($($kind),*) -> $result =
                    std::mem::transmute(address);
                function($($argument),*)
            }
        }
    };
}

impl Next {
    /// Whether the next allocator is known; looks it up on the first call.
    #[inline(always)]
    pub(crate) fn ready(&self) -> bool {
        // Acquire: `usable` is stored last.
        self.usable.load(Ordering::Acquire) != 0 || self.resolve()
    }

    /// Looks everything up, and tries what its blocks are like. `false` while that is under way: for a caller that
    /// either itself called, and for another thread in these first microseconds.
    #[cold]
    #[inline(never)]
    fn resolve(&self) -> bool {
        /// Set by the one thread that tries; nobody waits for it.
        static TRYING: AtomicBool = AtomicBool::new(false);
        if !self.look_up() || TRYING.swap(true, Ordering::Relaxed) {
            return self.usable.load(Ordering::Acquire) != 0;
        }
        let malloc = HOT.malloc.load(Ordering::Relaxed);
        let mut usable = REAL_USABLE.load(Ordering::Relaxed);
        if !objects::are_of_one(malloc, usable)
            && !sizes_are_told(malloc, HOT.free.load(Ordering::Relaxed), usable)
        {
            usable = nothing_known as *const () as usize;
            self.secret.store(true, Ordering::Relaxed);
        }
        // (Not by its own `__libc_malloc`, which other allocators define as well.)
        if objects::are_of_one(malloc, find(c"gnu_get_libc_version"))
            && headers_tell(malloc, HOT.free.load(Ordering::Relaxed), usable)
        {
            self.headers.store(true, Ordering::Relaxed);
        } else {
            expected::resolve(malloc);
        }
        // Release, partner of the Acquire in `ready`: whoever sees it sees all of the above.
        self.usable.store(usable, Ordering::Release);
        true
    }

    /// Looks everything up, and tries nothing: many programs are so small that they have no block. `false` while that
    /// is under way.
    pub(crate) fn look_up(&self) -> bool {
        /// Moved by the one thread that looks up; nobody waits for it.
        static LOOKED: AtomicU8 = AtomicU8::new(NOT);
        const NOT: u8 = 0;
        const UNDER_WAY: u8 = 1;
        const DONE: u8 = 2;
        // Acquire, partner of the Release below: whoever sees that it is done sees what was found.
        let before = LOOKED.compare_exchange(NOT, UNDER_WAY, Ordering::Acquire, Ordering::Acquire);
        if let Err(state) = before {
            return state == DONE;
        }
        for (field, name) in [
            (&HOT.malloc, c"malloc"),
            (&HOT.free, c"free"),
            (&self.calloc, c"calloc"),
            (&self.realloc, c"realloc"),
            (&self.memalign, c"memalign"),
            (&self.posix_memalign, c"posix_memalign"),
            (&self.aligned_alloc, c"aligned_alloc"),
            (&REAL_USABLE, c"malloc_usable_size"),
        ] {
            field.store(needed(name), Ordering::Relaxed);
        }
        LOOKED.store(DONE, Ordering::Release);
        true
    }

    forward!(
        /// The next `malloc`.
        malloc, HOT.malloc, (size: usize) -> *mut c_void);
    forward!(
        /// The next `free`.
        free, HOT.free, (block: *mut c_void) -> ());
    forward!(
        /// The next `calloc`.
        calloc, NEXT.calloc, (count: usize, size: usize) -> *mut c_void, NEXT.alone());
    forward!(
        /// The next `realloc`.
        realloc, NEXT.realloc, (block: *mut c_void, size: usize) -> *mut c_void, NEXT.alone());
    forward!(
        /// The next `memalign`.
        memalign, NEXT.memalign, (align: usize, size: usize) -> *mut c_void, NEXT.alone());
    forward!(
        /// The next `posix_memalign`.
        posix_memalign, NEXT.posix_memalign,
        (into: *mut *mut c_void, align: usize, size: usize) -> c_int, NEXT.alone());
    forward!(
        /// The next `aligned_alloc`.
        aligned_alloc, NEXT.aligned_alloc, (align: usize, size: usize) -> *mut c_void, NEXT.alone());
    forward!(
        /// The next `malloc_usable_size`.
        usable, NEXT.usable, (block: *mut c_void) -> usize);

    /// Keeps what another allocator than glibc does within one of its functions from being charged by itself: some
    /// have their blocks from functions of their own by name, to which this library answers.
    #[inline(always)]
    fn alone(&self) -> Option<Busy> {
        if self.headers() { None } else { Busy::enter() }
    }

    /// Whether the allocator keeps to itself how large its blocks are, so that none can be charged. It tries that only
    /// where it may be so.
    pub(crate) fn is_secret(&self) -> bool {
        let may_be = self.look_up() && !objects::is_allocators(REAL_USABLE.load(Ordering::Relaxed));
        (may_be || self.usable.load(Ordering::Acquire) != 0)
            && self.ready()
            && self.secret.load(Ordering::Relaxed)
    }

    /// Whether blocks bear glibc's header. It implies [`ready`](Self::ready).
    #[inline(always)]
    pub(crate) fn headers(&self) -> bool {
        self.headers.load(Ordering::Acquire)
    }

    /// The bytes that a block takes. glibc's header tells them where there is one; otherwise a call does,
    /// which costs two to five nanoseconds.
    ///
    /// # Safety
    /// `block` is the next allocator's or an early one, and [`Next::ready`] returned true.
    #[inline(always)]
    pub(crate) unsafe fn size(&self, block: *mut c_void) -> usize {
        // SAFETY: by the caller's word and, for the header, by the test at start.
        unsafe {
            if self.headers() {
                return chunk_size(block);
            }
            // An allocator may make something of its own to answer: that is not the program's.
            let _busy = Busy::enter();
            self.usable(block)
        }
    }

    /// [`size`](Self::size) of a block without a header, for a thread that is not busy.
    ///
    /// # Safety
    /// As [`size`](Self::size).
    #[inline(always)]
    pub(crate) unsafe fn asked_size(&self, block: *mut c_void) -> usize {
        thread::set(Word::Busy, 1);
        // SAFETY: by the caller's word.
        let size = unsafe { self.usable(block) };
        thread::set(Word::Busy, 0);
        size
    }
}

/// A function that this library cannot do without: without one of them there is no telling how large a block is.
fn needed(name: &CStr) -> usize {
    let address = find(name);
    if address == 0 {
        crate::say::say(&[b"the next allocator has no ", name.to_bytes()]);
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
    address
}

/// Stands for a `malloc_usable_size` that does not know the allocator's blocks.
extern "C" fn nothing_known(_block: *mut c_void) -> usize {
    0
}

/// What a block is tried with: sizes that no allocator maps by itself unless it is told to. (To free a block that
/// glibc mapped moves that limit for the whole program.)
const TRIED: [usize; 8] = [1, 24, 25, 40, 100, 1000, 5000, 70_000];

/// Gets a block of each size that is tried; whether something holds for all.
///
/// # Safety
/// The functions are those of one allocator.
unsafe fn holds_for_all(
    malloc: usize,
    free: usize,
    holds: impl Fn(*mut c_void, usize) -> bool,
) -> bool {
    // SAFETY: as the caller says; each block is freed.
    unsafe {
        let malloc: unsafe extern "C" fn(usize) -> *mut c_void = std::mem::transmute(malloc);
        let free: unsafe extern "C" fn(*mut c_void) = std::mem::transmute(free);
        TRIED.iter().all(|&size| {
            let block = malloc(size);
            let held = block.is_null() || holds(block, size);
            free(block);
            held
        })
    }
}

/// Whether a `malloc_usable_size` of another library than `malloc` knows the blocks: where that one hands everything
/// to glibc, as heap profilers do, and not where glibc's is found because the allocator has none.
fn sizes_are_told(malloc: usize, free: usize, usable: usize) -> bool {
    // SAFETY: dlsym found them under the names of C functions of these types. glibc's looks at the word before a
    // block, which may not be there where a page begins; no block of its own malloc begins one. (Some keep a
    // word of each block for themselves.)
    unsafe {
        let usable: unsafe extern "C" fn(*mut c_void) -> usize = std::mem::transmute(usable);
        holds_for_all(malloc, free, |block, size| {
            let begins_page = (block as usize).is_multiple_of(4096);
            !begins_page && (size.saturating_sub(8)..1 << 20).contains(&usable(block))
        })
    }
}

/// Whether the header of a block tells its size.
fn headers_tell(malloc: usize, free: usize, usable: usize) -> bool {
    // SAFETY: dlsym found them under the names of C functions of these types; glibc's blocks have a word before them.
    unsafe {
        let usable: unsafe extern "C" fn(*mut c_void) -> usize = std::mem::transmute(usable);
        holds_for_all(malloc, free, |block, _| {
            // Where a checker of memory stands in for glibc, nothing may be read in front of a block. It has as many usable
            // bytes as were asked for there, and never a single one with glibc.
            usable(block) > 1 && {
                let mapped = block.cast::<usize>().sub(1).read() & 2 != 0;
                chunk_size(block) == usable(block) + if mapped { 16 } else { 8 }
            }
        })
    }
}

/// What glibc set aside for a block, its own header included: the word before the block is the
/// chunk's size with three flags in its low bits.
///
/// # Safety
/// `block` bears such a header.
#[inline(always)]
pub(crate) unsafe fn chunk_size(block: *mut c_void) -> usize {
    // SAFETY: by the caller's word.
    unsafe { block.cast::<usize>().sub(1).read() & !7 }
}

/// Memory to hand out before the next allocator is known. `dlsym` asks for some hundred bytes at most.
pub(crate) mod early {
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SIZE: usize = 64 << 10;
    /// Blocks start at multiples of this, and the word before them is their header: of the first one the second word
    /// of the buffer, of the others the last word of the chunk before.
    const STEP: usize = 16;
    const WORD: usize = size_of::<usize>();

    #[repr(C, align(4096))]
    struct Buffer(UnsafeCell<[u8; SIZE]>);
    // SAFETY: each part is handed out once, by an atomic addition.
    unsafe impl Sync for Buffer {}

    #[unsafe(link_section = ".bss.ledgerline_tables")]
    static BUFFER: Buffer = Buffer(UnsafeCell::new([0; SIZE]));
    static USED: AtomicUsize = AtomicUsize::new(STEP);

    /// Zeroed memory; null when it is used up. A block has its size before it, as glibc's have. `align` is a power
    /// of two.
    pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
        let align = align.max(STEP);
        let chunk = size.checked_add(WORD).and_then(|whole| whole.checked_next_multiple_of(STEP));
        // (From one multiple of a step to the first of `align`.)
        let room = chunk.and_then(|chunk| chunk.checked_add(align - STEP));
        let take = |used: usize| used.checked_add(room?).filter(|&end| end <= SIZE);
        // Relaxed: an exchange of one word hands each part out once.
        let start = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let Some((start, chunk)) = start.ok().zip(chunk) else {
            crate::say::set_errno(libc::ENOMEM);
            return std::ptr::null_mut();
        };
        let block = (BUFFER.0.get() as usize + start).next_multiple_of(align);
        // SAFETY: `room` bytes from a word before `start` are this caller's, zero so far: they begin with the header
        // where nothing is to be aligned, and the block ends within them.
        unsafe { (block as *mut usize).sub(1).write(chunk) };
        block as *mut u8
    }

    /// The first place of the buffer and the end of what was taken from it, if anything was.
    pub(crate) fn used() -> Option<[*const u8; 2]> {
        let base: *const u8 = BUFFER.0.get().cast();
        let used = USED.load(Ordering::Relaxed);
        (used != STEP).then(|| [base, base.wrapping_add(used)])
    }

    /// Whether a block came from here.
    #[inline(always)]
    pub(crate) fn owns(block: *const u8) -> bool {
        let start = BUFFER.0.get() as usize;
        (start..start + SIZE).contains(&(block as usize))
    }

    /// The size of a block from here.
    ///
    /// # Safety
    /// [`owns`] said so.
    pub(crate) unsafe fn size(block: *const u8) -> usize {
        // SAFETY: `allocate` wrote a header like glibc's.
        unsafe { (block as *const usize).sub(1).read() - WORD }
    }
}

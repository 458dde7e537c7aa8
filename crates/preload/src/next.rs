//! The allocator behind this one, and a little memory to hand out before that is found.
//!
//! The functions are looked up once with `dlsym(RTLD_NEXT)`, so that a program which brings another
//! allocator as a shared library keeps it. `dlsym` may itself allocate, and so may whoever runs
//! before the look-up is done: they are served from a small static buffer, whose blocks are known by
//! their address and never given back.

use crate::objects::{self, find};
use crate::thread::Busy;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicUsize, Ordering};

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
}

pub(crate) static NEXT: Next = Next {
    calloc: AtomicUsize::new(0),
    realloc: AtomicUsize::new(0),
    memalign: AtomicUsize::new(0),
    posix_memalign: AtomicUsize::new(0),
    aligned_alloc: AtomicUsize::new(0),
    usable: AtomicUsize::new(0),
    headers: AtomicBool::new(false),
};

/// Smallest distance between the starts of two blocks: glibc's smallest chunk. Other allocators are
/// asked for no less.
pub(crate) const WINDOW: usize = 32;

/// Everything that malloc and free read besides the block, the thread's words and the cell. It lies on one
/// line, which is written at the start alone.
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// The next `malloc`, or a function in its place. It must be the first field: `exports` calls it.
    malloc: AtomicPtr<()>,
    /// The next `free`; zero before it is found.
    free: AtomicUsize,
    /// The second number of every [`ledgerline::Prepaid`].
    pub(crate) area: AtomicIsize,
    /// Where the thread's words lie (thread.rs), or zero: no cell lies there either.
    pub(crate) words: AtomicUsize,
}

pub(crate) static HOT: Hot = Hot {
    malloc: AtomicPtr::new(first_malloc as *const () as *mut ()),
    free: AtomicUsize::new(0),
    area: AtomicIsize::new(0),
    words: AtomicUsize::new(0),
};

/// Stands for the next `malloc` until that is found.
unsafe extern "C" fn first_malloc(size: usize) -> *mut c_void {
    if NEXT.ready() {
        // SAFETY: it is found now.
        return unsafe { NEXT.malloc(size) };
    }
    early::allocate(size, 1).cast()
}

/// Stands in front of a next `malloc` whose blocks may lie closer than a window of shadow.
unsafe extern "C" fn spaced_malloc(size: usize) -> *mut c_void {
    let real = REAL_MALLOC.load(Ordering::Relaxed);
    // SAFETY: `resolve` stored the next malloc there before it put this function in its place.
    unsafe {
        let real: unsafe extern "C" fn(usize) -> *mut c_void = std::mem::transmute(real);
        real(size.max(WINDOW))
    }
}

static REAL_MALLOC: AtomicUsize = AtomicUsize::new(0);

macro_rules! forward {
    ($(#[$doc:meta])* $name:ident, $table:ident.$field:ident, ($($argument:ident: $kind:ty),*) -> $result:ty) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function of that name; [`Next::ready`] returned true.
        #[inline(always)]
        pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> $result {
            let address = $table.$field.load(Ordering::Relaxed);
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

    #[cold]
    #[inline(never)]
    fn resolve(&self) -> bool {
        /// The thread that looks up; nobody else waits for it.
        static LOOKING: AtomicUsize = AtomicUsize::new(0);
        if LOOKING.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Recursion from dlsym, or another thread in these first microseconds.
            return self.usable.load(Ordering::Acquire) != 0;
        }
        let malloc = find(c"malloc");
        for (field, name) in [
            (&HOT.free, c"free"),
            (&self.calloc, c"calloc"),
            (&self.realloc, c"realloc"),
            (&self.memalign, c"memalign"),
            (&self.posix_memalign, c"posix_memalign"),
            (&self.aligned_alloc, c"aligned_alloc"),
            (&self.usable, c"malloc_usable_size"),
        ] {
            let address = find(name);
            if address == 0 || malloc == 0 {
                // Without these there is no telling how large a block is: nothing works.
                crate::say::say(&[b"the next allocator has no ", name.to_bytes()]);
                // SAFETY: ends the process.
                unsafe { libc::abort() };
            }
            if name == c"malloc_usable_size" {
                HOT.malloc.store(malloc as *mut (), Ordering::Relaxed);
            }
            field.store(address, Ordering::Release);
        }
        // (Not by its own `__libc_malloc`, which other allocators define as well.)
        if objects::are_of_one(malloc, find(c"gnu_get_libc_version")) && self.headers_tell() {
            self.headers.store(true, Ordering::Release);
        } else {
            REAL_MALLOC.store(malloc, Ordering::Relaxed);
            HOT.malloc.store(spaced_malloc as *const () as *mut (), Ordering::Release);
        }
        LOOKING.store(0, Ordering::Release);
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
        calloc, NEXT.calloc, (count: usize, size: usize) -> *mut c_void);
    forward!(
        /// The next `realloc`.
        realloc, NEXT.realloc, (block: *mut c_void, size: usize) -> *mut c_void);
    forward!(
        /// The next `memalign`.
        memalign, NEXT.memalign, (align: usize, size: usize) -> *mut c_void);
    forward!(
        /// The next `posix_memalign`.
        posix_memalign, NEXT.posix_memalign,
        (into: *mut *mut c_void, align: usize, size: usize) -> c_int);
    forward!(
        /// The next `aligned_alloc`.
        aligned_alloc, NEXT.aligned_alloc, (align: usize, size: usize) -> *mut c_void);
    forward!(
        /// The next `malloc_usable_size`.
        usable, NEXT.usable, (block: *mut c_void) -> usize);

    /// Whether blocks bear glibc's header. It implies [`ready`](Self::ready).
    #[inline(always)]
    pub(crate) fn headers(&self) -> bool {
        self.headers.load(Ordering::Acquire)
    }

    /// The bytes that a block takes. glibc's header tells them where there is one; otherwise a call does,
    /// which costs a nanosecond or two, twice a block.
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

    /// Whether the header of a block tells its size. This tries blocks of several sizes, none of them so
    /// large that glibc maps it by itself (freeing such a block moves that limit for the whole program).
    fn headers_tell(&self) -> bool {
        [1, 24, 25, 40, 100, 1000, 5000, 70_000].iter().all(|&size| {
            // SAFETY: the functions were found; each block is freed.
            unsafe {
                let block = self.malloc(size);
                let same = block.is_null() || {
                    let mapped = block.cast::<usize>().sub(1).read() & 2 != 0;
                    chunk_size(block) == self.usable(block) + if mapped { 16 } else { 8 }
                };
                self.free(block);
                same
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
    const HEADER: usize = 16;

    #[repr(C, align(4096))]
    struct Buffer(UnsafeCell<[u8; SIZE]>);
    // SAFETY: each part is handed out once, by an atomic addition.
    unsafe impl Sync for Buffer {}

    static BUFFER: Buffer = Buffer(UnsafeCell::new([0; SIZE]));
    static USED: AtomicUsize = AtomicUsize::new(0);

    /// Zeroed memory; null when it is used up. A block has its size before it, as glibc's have.
    pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
        let align = align.max(HEADER);
        let Some(room) = size.checked_add(2 * HEADER + align).filter(|&room| room <= SIZE) else {
            return std::ptr::null_mut();
        };
        let room = room.next_multiple_of(HEADER);
        let start = USED.fetch_add(room, Ordering::Relaxed);
        if start > SIZE - room {
            USED.fetch_sub(room, Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        let base = BUFFER.0.get() as usize;
        let block = (base + start + HEADER).next_multiple_of(align);
        let chunk = (size + 8).next_multiple_of(HEADER);
        // SAFETY: `room` bytes from `start` are this caller's, zero so far; the header lies in
        // front of the block, and the block ends within them.
        unsafe { (block as *mut usize).sub(1).write(chunk) };
        block as *mut u8
    }

    /// The first and the last place of the buffer, if anything was taken from it.
    pub(crate) fn used() -> Option<[*const u8; 2]> {
        let base: *const u8 = BUFFER.0.get().cast();
        (USED.load(Ordering::Relaxed) != 0).then(|| [base, base.wrapping_add(SIZE - 1)])
    }

    /// Whether a block came from here.
    #[inline(always)]
    pub(crate) fn owns(block: *const u8) -> bool {
        (block as usize).wrapping_sub(BUFFER.0.get() as usize) < SIZE
    }

    /// The size of a block from here.
    ///
    /// # Safety
    /// [`owns`] said so.
    pub(crate) unsafe fn size(block: *const u8) -> usize {
        // SAFETY: `allocate` wrote a header like glibc's.
        unsafe { (block as *const usize).sub(1).read() - 8 }
    }
}

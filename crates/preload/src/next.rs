//! The allocator behind this one, and what its blocks are like.

use crate::expected;
use crate::objects;
use crate::thread::{self, Busy, Word};
use ledgerline_interpose::{Allocator, find, set_errno};
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

pub(crate) use crate::expected::WINDOW;
pub(crate) use ledgerline_interpose::early;

/// The next allocator. Everything that malloc and free read besides the block, the thread's words and the cell comes
/// first, on one line, which is written at the start alone.
#[repr(C, align(64))]
pub(crate) struct Next {
    /// The second number of every [`ledgerline::Prepaid`].
    pub(crate) area: AtomicIsize,
    /// Where the thread's words lie (thread.rs), or zero: no cell lies there either.
    pub(crate) words: AtomicUsize,
    /// Its functions. What it does within them may come back to this library, so only malloc and free are called without
    /// [`alone`](Self::alone), and the others where blocks bear headers.
    pub(crate) raw: Allocator,
    /// Whether it was tried what its blocks are like.
    is_tried: AtomicBool,
    /// Whether blocks bear glibc's header, so that their size can be read off it.
    headers: AtomicBool,
    /// Whether nobody knows how large blocks are.
    secret: AtomicBool,
}

// SAFETY: it is made of atomic numbers and flags, for which zeros are valid.
pub(crate) static NEXT: Next = unsafe { MaybeUninit::zeroed().assume_init() };

impl Next {
    /// Whether the next allocator is known; looks it up on the first call.
    #[inline(always)]
    pub(crate) fn ready(&self) -> bool {
        // Acquire, partner of the Release in `resolve`.
        self.is_tried.load(Ordering::Acquire) || self.resolve()
    }

    /// Looks everything up, and tries what its blocks are like. `false` while that is under way: for a caller that the
    /// allocator itself called, and for another thread in these first microseconds.
    #[cold]
    #[inline(never)]
    fn resolve(&self) -> bool {
        /// Set by the one thread that tries; nobody waits for it.
        static TRYING: AtomicBool = AtomicBool::new(false);
        if !self.look_up() || TRYING.swap(true, Ordering::Relaxed) {
            return self.is_tried.load(Ordering::Acquire);
        }
        let malloc = self.raw.malloc_address();
        if !objects::are_of_one(malloc, self.raw.usable_size_address()) && !self.sizes_are_told() {
            self.raw.replace_usable_size(nothing_known);
            self.secret.store(true, Ordering::Relaxed);
        }
        // (Not by its own `__libc_malloc`, which other allocators define as well.)
        if objects::are_of_one(malloc, find(c"gnu_get_libc_version")) && self.headers_tell() {
            self.headers.store(true, Ordering::Relaxed);
        } else {
            expected::resolve(malloc);
        }
        // Release, partner of the Acquire in `ready`: whoever sees it sees all of the above.
        self.is_tried.store(true, Ordering::Release);
        true
    }

    /// Looks everything up, and tries nothing: many programs are so small that they have no block. `false` while that
    /// is under way.
    pub(crate) fn look_up(&self) -> bool {
        self.raw.look_up(lacks)
    }

    /// Keeps what another allocator than glibc does within one of its functions from being charged by itself: some
    /// have their blocks from functions of their own by name, to which this library answers.
    #[inline(always)]
    pub(crate) fn alone<T>(&self, call: impl FnOnce(&Allocator) -> T) -> T {
        if self.headers() {
            return call(&self.raw);
        }
        let _busy = Busy::enter();
        call(&self.raw)
    }

    /// Whether the allocator keeps to itself how large its blocks are, so that none can be charged. It tries that only
    /// where it may be so.
    pub(crate) fn is_secret(&self) -> bool {
        let of_it = || objects::is_allocators(self.raw.usable_size_address());
        let is_looked_up = self.look_up();
        // (It lacks a function.)
        if self.secret.load(Ordering::Relaxed) {
            return true;
        }
        let may_be = is_looked_up && !of_it();
        (may_be || self.is_tried.load(Ordering::Acquire))
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
            self.raw.usable_size(block)
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
        let size = unsafe { self.raw.usable_size(block) };
        thread::set(Word::Busy, 0);
        size
    }

    /// Gets a block of each size that is tried; whether something holds for all.
    fn holds_for_all(&self, holds: impl Fn(*mut c_void, usize) -> bool) -> bool {
        // SAFETY: the functions were looked up; each block is freed.
        TRIED.iter().all(|&size| unsafe {
            let block = self.raw.malloc(size);
            let held = block.is_null() || holds(block, size);
            self.raw.free(block);
            held
        })
    }

    /// Whether a `malloc_usable_size` of another library than `malloc` knows the blocks: where that one hands everything
    /// to glibc, as heap profilers do, and not where glibc's is found because the allocator has none.
    fn sizes_are_told(&self) -> bool {
        self.holds_for_all(|block, size| {
            // glibc's looks at the word before a block, which may not be there where a page begins; no block of its own
            // malloc begins one. (Some keep a word of each block for themselves.)
            let begins_page = (block as usize).is_multiple_of(4096);
            let told = size.saturating_sub(8)..1 << 20;
            // SAFETY: the function was looked up, and can read that word.
            !begins_page && told.contains(&unsafe { self.raw.usable_size(block) })
        })
    }

    /// Whether the header of a block tells its size.
    fn headers_tell(&self) -> bool {
        self.holds_for_all(|block, _| {
            // SAFETY: the function was looked up.
            let usable = unsafe { self.raw.usable_size(block) };
            // Where a checker of memory stands in for glibc, nothing may be read in front of a block. It has as many usable
            // bytes as were asked for there, and never a single one with glibc.
            usable > 1 && {
                // SAFETY: glibc's blocks have a word before them.
                let (mapped, chunk) =
                    unsafe { (block.cast::<usize>().sub(1).read() & 2 != 0, chunk_size(block)) };
                chunk == usable + if mapped { 16 } else { 8 }
            }
        })
    }
}

/// A stand-in for a function that no library behind has: it grants nothing. The process is not accounted then.
fn lacks(name: &CStr) -> usize {
    NEXT.secret.store(true, Ordering::Relaxed);
    match name.to_bytes() {
        b"malloc_usable_size" => nothing_known as *const () as usize,
        b"free" => ignored as *const () as usize,
        b"posix_memalign" => no_memory as *const () as usize,
        _ => nothing as *const () as usize,
    }
}

/// Stands for a function that makes blocks and is nowhere.
extern "C" fn nothing(_: usize, _: usize) -> *mut c_void {
    set_errno(libc::ENOMEM);
    std::ptr::null_mut()
}

/// Stands for a `free` that is nowhere.
extern "C" fn ignored(_block: *mut c_void) {}

/// Stands for a `posix_memalign` that is nowhere.
extern "C" fn no_memory(_into: *mut *mut c_void, _align: usize, _size: usize) -> c_int {
    libc::ENOMEM
}

/// Stands for a `malloc_usable_size` that does not know the allocator's blocks.
extern "C" fn nothing_known(_block: *mut c_void) -> usize {
    0
}

/// What a block is tried with: sizes that no allocator maps by itself unless it is told to. (To free a block that
/// glibc mapped moves that limit for the whole program.)
const TRIED: [usize; 8] = [1, 24, 25, 40, 100, 1000, 5000, 70_000];

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

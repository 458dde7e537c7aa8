//! The allocator behind this library, and the layout of its blocks.

use crate::expected;
use crate::objects;
use crate::thread::{self, Busy, Word};
use ledgerline_interpose::{Allocator, find, set_errno};
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

pub(crate) use crate::expected::WINDOW;
pub(crate) use ledgerline_interpose::early;

/// The next allocator. Beside the block, the thread's words and the cell, malloc and free read only the first fields.
/// These share one line, which is written at the start alone.
#[repr(C, align(64))]
pub(crate) struct Next {
    /// The second number of every [`ledgerline::Prepaid`].
    pub(crate) area: AtomicIsize,
    /// The offset of the thread's words (thread.rs), or zero, where there is no cell either.
    pub(crate) words: AtomicUsize,
    /// Its functions. They may call back into this library, so only malloc and free are called without
    /// [`alone`](Self::alone), and the others only if blocks have headers.
    pub(crate) raw: Allocator,
    /// Whether its blocks were tested.
    is_tried: AtomicBool,
    /// Whether blocks have glibc's header, which contains their size.
    headers: AtomicBool,
    /// Whether the sizes of blocks are unknown.
    secret: AtomicBool,
}

// SAFETY: consists of atomic numbers and flags, for which zeros are valid.
pub(crate) static NEXT: Next = unsafe { MaybeUninit::zeroed().assume_init() };

impl Next {
    /// Returns whether the next allocator is known; looks it up on the first call.
    #[inline(always)]
    pub(crate) fn ready(&self) -> bool {
        // Acquire, partner of the Release in `resolve`.
        self.is_tried.load(Ordering::Acquire) || self.resolve()
    }

    /// Looks everything up, and tests the allocator's blocks. Returns `false` while that is under way: for a caller
    /// that the allocator itself called, and for another thread in these first microseconds.
    #[cold]
    #[inline(never)]
    fn resolve(&self) -> bool {
        /// Set by the one thread that tests; no thread waits for it.
        static TRYING: AtomicBool = AtomicBool::new(false);
        if !self.look_up() || TRYING.swap(true, Ordering::Relaxed) {
            return self.is_tried.load(Ordering::Acquire);
        }
        let malloc = self.raw.malloc_address();
        if !objects::are_of_one(malloc, self.raw.usable_size_address()) && !self.sizes_are_told() {
            self.raw.replace_usable_size(nothing_known);
            self.secret.store(true, Ordering::Relaxed);
        }
        // Not recognized by its own `__libc_malloc`, which other allocators define as well.
        if objects::are_of_one(malloc, find(c"gnu_get_libc_version")) && self.headers_tell() {
            self.headers.store(true, Ordering::Relaxed);
        } else {
            expected::resolve(malloc);
        }
        // Release, partner of the Acquire in `ready`: a thread that reads true sees all of the above.
        self.is_tried.store(true, Ordering::Release);
        true
    }

    /// Looks everything up without a test: many programs are so small that they have no block. Returns `false` while
    /// that is under way.
    pub(crate) fn look_up(&self) -> bool {
        self.raw.look_up(lacks)
    }

    /// Calls a function of the allocator while the thread is busy, so that inner allocations are not charged:
    /// allocators other than glibc's may take their blocks from functions by name, which this library replaces.
    #[inline(always)]
    pub(crate) fn alone<T>(&self, call: impl FnOnce(&Allocator) -> T) -> T {
        if self.headers() {
            return call(&self.raw);
        }
        let _busy = Busy::enter();
        call(&self.raw)
    }

    /// Returns whether the allocator does not report the sizes of its blocks, so that none can be charged. Tests that
    /// only if it is possible.
    pub(crate) fn is_secret(&self) -> bool {
        let of_it = || objects::is_allocators(self.raw.usable_size_address());
        let is_looked_up = self.look_up();
        // A function is missing.
        if self.secret.load(Ordering::Relaxed) {
            return true;
        }
        let may_be = is_looked_up && !of_it();
        (may_be || self.is_tried.load(Ordering::Acquire))
            && self.ready()
            && self.secret.load(Ordering::Relaxed)
    }

    /// Returns whether blocks have glibc's header. That implies [`ready`](Self::ready).
    #[inline(always)]
    pub(crate) fn headers(&self) -> bool {
        self.headers.load(Ordering::Acquire)
    }

    /// Returns the bytes that a block takes. They are read from glibc's header if there is one; otherwise a call
    /// returns them, which costs two to five nanoseconds.
    ///
    /// # Safety
    /// `block` is the next allocator's or an early one, and [`Next::ready`] returned true.
    #[inline(always)]
    pub(crate) unsafe fn size(&self, block: *mut c_void) -> usize {
        // SAFETY: by the caller's contract and, for the header, by the test at the start.
        unsafe {
            if self.headers() {
                return chunk_size(block);
            }
            // The allocator may allocate for itself to answer. That is not the program's memory.
            let _busy = Busy::enter();
            self.raw.usable_size(block)
        }
    }

    /// Like [`size`](Self::size), but only for a block without a header, and a thread that is not busy.
    ///
    /// # Safety
    /// As for [`size`](Self::size).
    #[inline(always)]
    pub(crate) unsafe fn asked_size(&self, block: *mut c_void) -> usize {
        thread::set(Word::Busy, 1);
        // SAFETY: by the caller's contract.
        let size = unsafe { self.raw.usable_size(block) };
        thread::set(Word::Busy, 0);
        size
    }

    /// Allocates a block of each tested size and returns whether `holds` is true for all.
    fn holds_for_all(&self, holds: impl Fn(*mut c_void, usize) -> bool) -> bool {
        // SAFETY: the functions were looked up; each block is freed.
        TRIED.iter().all(|&size| unsafe {
            let block = self.raw.malloc(size);
            let held = block.is_null() || holds(block, size);
            self.raw.free(block);
            held
        })
    }

    /// Returns whether the `malloc_usable_size` of another library than malloc's knows the blocks. It does if that
    /// malloc passes all requests to glibc, like heap profilers; it does not if glibc's is found because the allocator
    /// has none.
    fn sizes_are_told(&self) -> bool {
        self.holds_for_all(|block, size| {
            // glibc's function reads the word before a block, which may not exist if the block begins a page. Blocks of
            // glibc's own malloc never begin one. Some allocators use a word of each block for themselves.
            let begins_page = (block as usize).is_multiple_of(4096);
            let told = size.saturating_sub(8)..1 << 20;
            // SAFETY: the function was looked up, and can read that word.
            !begins_page && told.contains(&unsafe { self.raw.usable_size(block) })
        })
    }

    /// Returns whether the header of a block contains its size.
    fn headers_tell(&self) -> bool {
        self.holds_for_all(|block, _| {
            // SAFETY: the function was looked up.
            let usable = unsafe { self.raw.usable_size(block) };
            // Memory checkers in place of glibc forbid reading in front of a block. They report exactly the requested
            // size as usable; glibc never reports a single byte.
            usable > 1 && {
                // SAFETY: glibc's blocks have a word before them.
                let (mapped, chunk) =
                    unsafe { (block.cast::<usize>().sub(1).read() & 2 != 0, chunk_size(block)) };
                chunk == usable + if mapped { 16 } else { 8 }
            }
        })
    }
}

/// Returns a stand-in for a function that no library behind has: it grants nothing. The process is not accounted then.
fn lacks(name: &CStr) -> usize {
    NEXT.secret.store(true, Ordering::Relaxed);
    match name.to_bytes() {
        b"malloc_usable_size" => nothing_known as *const () as usize,
        b"free" => ignored as *const () as usize,
        b"posix_memalign" => no_memory as *const () as usize,
        _ => nothing as *const () as usize,
    }
}

/// Stands in for a missing function that makes blocks.
extern "C" fn nothing(_: usize, _: usize) -> *mut c_void {
    set_errno(libc::ENOMEM);
    std::ptr::null_mut()
}

/// Stands in for a missing `free`.
extern "C" fn ignored(_block: *mut c_void) {}

/// Stands in for a missing `posix_memalign`.
extern "C" fn no_memory(_into: *mut *mut c_void, _align: usize, _size: usize) -> c_int {
    libc::ENOMEM
}

/// Stands in for a `malloc_usable_size` that does not know the allocator's blocks.
extern "C" fn nothing_known(_block: *mut c_void) -> usize {
    0
}

/// The tested sizes: no allocator maps such blocks singly unless it is configured so. Freeing a block that glibc mapped
/// would move that threshold for the whole program.
const TRIED: [usize; 8] = [1, 24, 25, 40, 100, 1000, 5000, 70_000];

/// Returns the size of glibc's chunk for a block, its header included. The word before the block holds that size with
/// three flags in its low bits.
///
/// # Safety
/// `block` has such a header.
#[inline(always)]
pub(crate) unsafe fn chunk_size(block: *mut c_void) -> usize {
    // SAFETY: by the caller's contract.
    unsafe { block.cast::<usize>().sub(1).read() & !7 }
}

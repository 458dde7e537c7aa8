//! The next allocator behind a library, and a small buffer that serves requests before that is found.
//!
//! The functions are looked up once in the libraries behind, so that a program keeps another allocator that it brings
//! as a shared library. Another thread may allocate before the look-up is done. Its blocks come from a small static
//! buffer: they are recognized by their address and never freed.

use crate::find_each;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Declares the functions, each with its own C type.
macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        /// The addresses of the next allocator's functions: zero before they are found. `malloc` and `free` come first.
        #[repr(C)]
        pub struct Allocator {
            $($name: AtomicUsize,)*
            state: AtomicU8,
        }

        impl Allocator {
            /// Returns a table without any function. All zeros are the same.
            pub const fn unknown() -> Allocator {
                Allocator { $($name: AtomicUsize::new(0),)* state: AtomicU8::new(NOT) }
            }

            const NAMES: [&'static CStr; [$($symbol),*].len()] = [$($symbol),*];

            fn all(&self) -> [(&AtomicUsize, &'static CStr); Self::NAMES.len()] {
                [$((&self.$name, $symbol)),*]
            }

            $(
                #[doc = concat!("Calls the next `", stringify!($name), "`.")]
                ///
                /// # Safety
                /// As for the C function; [`look_up`](Self::look_up) returned true.
                #[inline(always)]
                pub unsafe fn $name(&self, $($argument: $kind),*) $(-> $result)? {
                    let address = self.$name.load(Ordering::Relaxed);
                    // SAFETY: not zero once it was looked up. dlsym found it under the name of a C function of this type, in a
                    // library that stays loaded, or `replace_usable_size` stored one of its type.
                    unsafe {
                        let function: unsafe extern "C" fn($($kind),*) $(-> $result)? =
                            std::mem::transmute(address);
                        function($($argument),*)
                    }
                }
            )*
        }
    };
}

functions! {
    malloc = c"malloc"(size: usize) -> *mut c_void;
    free = c"free"(block: *mut c_void);
    calloc = c"calloc"(count: usize, size: usize) -> *mut c_void;
    realloc = c"realloc"(block: *mut c_void, size: usize) -> *mut c_void;
    memalign = c"memalign"(align: usize, size: usize) -> *mut c_void;
    posix_memalign = c"posix_memalign"(into: *mut *mut c_void, align: usize, size: usize) -> c_int;
    aligned_alloc = c"aligned_alloc"(align: usize, size: usize) -> *mut c_void;
    usable_size = c"malloc_usable_size"(block: *mut c_void) -> usize;
}

// The fields that malloc and free read come first, and fit with two more words on one line.
const _: () = assert!(std::mem::offset_of!(Allocator, free) <= 40);

const NOT: u8 = 0;
const UNDER_WAY: u8 = 1;
const DONE: u8 = 2;

impl Allocator {
    /// Returns whether all functions are known; looks them up on the first call. Returns `false` while another thread
    /// is doing that, in its first microseconds, and does not wait for it. `lacks` returns the address of a substitute
    /// for a function that no library has.
    #[inline(always)]
    pub fn look_up(&self, lacks: fn(&CStr) -> usize) -> bool {
        // Acquire, partner of the Release in `find_all`: a thread that reads DONE also reads the addresses.
        self.state.load(Ordering::Acquire) == DONE || self.find_all(lacks)
    }

    /// Returns the address of the next `malloc`.
    pub fn malloc_address(&self) -> usize {
        self.malloc.load(Ordering::Relaxed)
    }

    /// Returns the address of the next `malloc_usable_size`.
    pub fn usable_size_address(&self) -> usize {
        self.usable_size.load(Ordering::Relaxed)
    }

    /// Replaces the function that answers for `malloc_usable_size`.
    pub fn replace_usable_size(&self, with: unsafe extern "C" fn(*mut c_void) -> usize) {
        self.usable_size.store(with as usize, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn find_all(&self, lacks: fn(&CStr) -> usize) -> bool {
        // Acquire, as above: another thread may have been faster.
        let before =
            self.state.compare_exchange(NOT, UNDER_WAY, Ordering::Acquire, Ordering::Acquire);
        if let Err(state) = before {
            return state == DONE;
        }
        let found = [const { AtomicUsize::new(0) }; Self::NAMES.len()];
        find_each(&Self::NAMES, &found);
        for ((slot, name), found) in self.all().into_iter().zip(found) {
            let address = Some(found.into_inner()).filter(|&address| address != 0);
            slot.store(address.unwrap_or_else(|| lacks(name)), Ordering::Relaxed);
        }
        self.state.store(DONE, Ordering::Release);
        true
    }
}

/// Memory for requests that arrive before the next allocator is known.
pub mod early {
    use std::cell::UnsafeCell;
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SIZE: usize = 64 << 10;
    /// The alignment of blocks. The word before a block is its header: the second word of the buffer for the first
    /// block, the last word of the preceding chunk for the others.
    const STEP: usize = 16;
    const WORD: usize = size_of::<usize>();

    #[repr(C, align(4096))]
    struct Buffer(UnsafeCell<[u8; SIZE]>);
    // SAFETY: each part is handed out once, by an atomic addition.
    unsafe impl Sync for Buffer {}

    #[unsafe(link_section = ".bss.ledgerline_tables")]
    static BUFFER: Buffer = Buffer(UnsafeCell::new([0; SIZE]));
    static USED: AtomicUsize = AtomicUsize::new(STEP);

    /// Returns zeroed memory, or null when the buffer is used up. A block has its size before it, like glibc's. `align`
    /// is a power of two.
    pub fn allocate(size: usize, align: usize) -> *mut c_void {
        let align = align.max(STEP);
        let chunk = size.checked_add(WORD).and_then(|whole| whole.checked_next_multiple_of(STEP));
        // The distance from a multiple of a step to the first multiple of `align`.
        let room = chunk.and_then(|chunk| chunk.checked_add(align - STEP));
        let take = |used: usize| used.checked_add(room?).filter(|&end| end <= SIZE);
        // Relaxed: the exchange of one word hands each part out once.
        let start = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let Some((start, chunk)) = start.ok().zip(chunk) else {
            crate::set_errno(libc::ENOMEM);
            return std::ptr::null_mut();
        };
        let block = (BUFFER.0.get() as usize + start).next_multiple_of(align);
        // SAFETY: `room` bytes from a word before `start` are this caller's, zero so far. They begin with the header if
        // nothing is to be aligned, and the block ends within them.
        unsafe { (block as *mut usize).sub(1).write(chunk) };
        block as *mut c_void
    }

    /// Returns the start of the buffer and the end of its used part, if any is used.
    pub fn used() -> Option<[*const c_void; 2]> {
        let base: *const c_void = BUFFER.0.get().cast();
        let used = USED.load(Ordering::Relaxed);
        (used != STEP).then(|| [base, base.wrapping_add(used)])
    }

    /// Returns whether a block came from the buffer.
    #[inline(always)]
    pub fn owns(block: *const c_void) -> bool {
        let start = BUFFER.0.get() as usize;
        (start..start + SIZE).contains(&(block as usize))
    }

    /// Returns the size of a block of the buffer.
    ///
    /// # Safety
    /// [`owns`] returned true.
    pub unsafe fn size(block: *const c_void) -> usize {
        // SAFETY: `allocate` wrote a header like glibc's.
        unsafe { (block as *const usize).sub(1).read() - WORD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn early_blocks_are_apart_aligned_zero_and_of_their_size_until_there_is_no_more() {
        let mut blocks: BTreeMap<usize, usize> = BTreeMap::new();
        for (size, align) in (0..).map(|at| (at * 37 % 1000, 1 << (at % 9))) {
            let block = early::allocate(size, align);
            if block.is_null() {
                break;
            }
            assert!(early::owns(block) && (block as usize).is_multiple_of(align.max(16)));
            // SAFETY: it is from there, and so large.
            unsafe {
                assert!(early::size(block) >= size);
                let bytes = std::slice::from_raw_parts_mut(block.cast::<u8>(), size);
                assert!(bytes.iter().all(|&byte| byte == 0));
                bytes.fill(7);
                blocks.insert(block as usize, early::size(block));
            }
        }
        assert!(blocks.len() > 50 && crate::errno() == libc::ENOMEM);
        let all: Vec<_> = blocks.into_iter().collect();
        assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
        for (size, align) in [(usize::MAX, 1), (usize::MAX - 8, 16), (1, 1 << 40)] {
            assert!(early::allocate(size, align).is_null());
        }
        assert!(!early::owns((&raw const all).cast()));
    }

    #[test]
    fn the_functions_are_there_once_they_were_looked_up() {
        let allocator = Allocator::unknown();
        assert!(allocator.look_up(|name| panic!("{name:?}")) && allocator.look_up(|_| panic!()));
        // SAFETY: the C functions, which were looked up.
        unsafe {
            let block = allocator.calloc(3, 5);
            assert!(allocator.usable_size(block) >= 15);
            allocator.free(allocator.realloc(block, 100));
        }
    }
}

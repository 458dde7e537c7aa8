//! The functions behind this library's, and whose calls are passed on unseen.
//!
//! They are looked up when the library is started, not at the first call: an allocator that maps memory while it
//! holds its own lock must not come back to itself through `dlsym`. Until then the calls go to the kernel.

use crate::objects::{self, find};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! real {
    ($($name:ident = $symbol:literal, ($($argument:ident: $kind:ty),*) -> $result:ty, $kernel:expr;)*) => {
        $(
            #[doc = concat!("The next `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As the C function.
            #[allow(unused_unsafe, reason = "some have no call of the kernel's")]
            pub(super) unsafe fn $name($($argument: $kind),*) -> $result {
                let address = self::addresses::$name.load(Ordering::Relaxed);
                if address == 0 {
                    // SAFETY: as the caller says; the kernel's call of that name.
                    return unsafe { $kernel };
                }
                // SAFETY: dlsym found it under the name of a C function of this type, in a library that
                // stays loaded.
                unsafe {
                    let function: unsafe extern "C" fn($($kind),*) -> $result =
                        std::mem::transmute(address);
                    function($($argument),*)
                }
            }
        )*

        #[expect(non_upper_case_globals, reason = "they bear the functions' names")]
        mod addresses {
            use super::AtomicUsize;
            $(pub(super) static $name: AtomicUsize = AtomicUsize::new(0);)*
        }

        fn look_up() {
            $(addresses::$name.store(find($symbol), Ordering::Relaxed);)*
        }
    };
}

real! {
    mmap = c"mmap", (
        address: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64
    ) -> *mut c_void,
        libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset) as *mut c_void;
    munmap = c"munmap", (address: *mut c_void, length: usize) -> c_int,
        libc::syscall(libc::SYS_munmap, address, length) as c_int;
    mremap = c"mremap", (
        address: *mut c_void, old: usize, new: usize, flags: c_int, to: *mut c_void
    ) -> *mut c_void,
        libc::syscall(libc::SYS_mremap, address, old, new, flags, to) as *mut c_void;
    mprotect = c"mprotect", (address: *mut c_void, length: usize, protection: c_int) -> c_int,
        libc::syscall(libc::SYS_mprotect, address, length, protection) as c_int;
    pkey_mprotect = c"pkey_mprotect", (
        address: *mut c_void, length: usize, protection: c_int, key: c_int
    ) -> c_int,
        libc::syscall(libc::SYS_pkey_mprotect, address, length, protection, key) as c_int;
    madvise = c"madvise", (address: *mut c_void, length: usize, advice: c_int) -> c_int,
        libc::syscall(libc::SYS_madvise, address, length, advice) as c_int;
    sbrk = c"sbrk", (increment: isize) -> *mut c_void, { let _ = increment; libc::MAP_FAILED };
    brk = c"brk", (end: *mut c_void) -> c_int, { let _ = end; -1 };
}

/// Looks everything up. Once, before the program's first instruction.
pub(super) fn resolve() {
    objects::resolve();
    look_up();
}

/// Whether the functions are known.
pub(super) fn is_resolved() -> bool {
    addresses::mmap.load(Ordering::Relaxed) != 0
}

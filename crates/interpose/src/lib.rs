//! What a library needs that is preloaded and stands before a program's C functions.
//!
//! Two are: `libledgerline_preload.so`, which charges what the program allocates, and `libledgerline_record.so`, which
//! notes it. Each depends on this crate as on any other, so each has a copy of its own.
//!
//! | module      | what it holds                                                    |
//! |-------------|------------------------------------------------------------------|
//! | `allocator` | the functions of the allocator behind; memory before it is found |
//! | `objects`   | functions behind the library, and what is loaded                  |
//! | `export`    | C functions that know who called them                             |
//!
//! Nothing here allocates, since it is called within `malloc`.

#![cfg(target_os = "linux")]

mod allocator;
mod export;
mod objects;

pub use allocator::{Allocator, early};
pub use objects::{Loaded, find, find_object, symbol};

use std::ffi::{c_int, c_void};

/// The calling thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the C library returns the address of the calling thread's variable.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// A mapping of so many bytes that belongs to nobody else, all zeros; `None` without room for it.
pub fn anonymous(bytes: usize, protection: c_int) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (place != libc::MAP_FAILED).then_some(place)
}

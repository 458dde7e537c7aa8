//! Memory straight from the kernel.

use std::ffi::{c_int, c_void};

/// A mapping of so many bytes that belongs to nobody else; `None` without room for it.
pub(crate) fn anonymous(bytes: usize, protection: c_int) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (place != libc::MAP_FAILED).then_some(place)
}

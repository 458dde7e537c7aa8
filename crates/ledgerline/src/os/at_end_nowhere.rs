//! For systems on which nothing needs to detect the end of a thread.

use std::ffi::c_void;

/// A stub whose methods return `false`.
pub(crate) struct AtEnd;

impl AtEnd {
    pub(crate) const fn new() -> AtEnd {
        AtEnd
    }

    pub(crate) fn begin(&self, _: unsafe extern "C" fn(*mut c_void)) -> bool {
        false
    }

    pub(crate) fn has_begun(&self) -> bool {
        false
    }

    pub(crate) fn set(&self, _: *const c_void) -> bool {
        false
    }
}

//! Detects the end of a thread, by a key of the C library whose destructor is called with the value that the thread set.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// Keys below this one are stored within the thread, in any C library: setting one takes no memory.
const KEYS_INLINE: libc::pthread_key_t = 32;
const NO_KEY: u32 = u32::MAX;

/// See the module above. It is meant for a `static`.
pub(crate) struct AtEnd(AtomicU32);

impl AtEnd {
    pub(crate) const fn new() -> AtEnd {
        AtEnd(AtomicU32::new(NO_KEY))
    }

    /// Lets threads [`set`](Self::set) a value from now on. Returns `false` if the C library cannot report the end of a
    /// thread, or only by taking memory. Called once. The function must live as long as the program; a library is pinned,
    /// as for `gate::lock::guard_forks`.
    pub(crate) fn begin(&self, ends: unsafe extern "C" fn(*mut c_void)) -> bool {
        let mut key = 0;
        // SAFETY: the call writes the key; for the destructor see above.
        unsafe {
            if libc::pthread_key_create(&raw mut key, Some(ends)) != 0 {
                return false;
            }
            if key >= KEYS_INLINE {
                libc::pthread_key_delete(key);
                return false;
            }
        }
        // Release, partner of the Acquire below: a thread that sees the key can use it.
        self.0.store(key, Ordering::Release);
        true
    }

    /// Returns whether threads may set a value.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire) != NO_KEY
    }

    /// Makes the function run with `value`, which is not null, when the calling thread ends. Takes no memory.
    /// Async-signal-safe. Returns `false` before [`begin`](Self::begin) succeeded, or if the value cannot be set.
    pub(crate) fn set(&self, value: *const c_void) -> bool {
        let key = self.0.load(Ordering::Acquire);
        // SAFETY: the key was made, and is stored within the thread.
        key != NO_KEY && unsafe { libc::pthread_setspecific(key, value) == 0 }
    }
}

//! Hears that a thread ends: a key of the C library, whose destructor is called with what the thread set.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// Keys below this one have their place within the thread, in any C library: setting one takes no memory.
const KEYS_INLINE: libc::pthread_key_t = 32;
const NO_KEY: u32 = u32::MAX;

/// See the module above. It is for a `static`.
pub(crate) struct AtEnd(AtomicU32);

impl AtEnd {
    pub(crate) const fn new() -> AtEnd {
        AtEnd(AtomicU32::new(NO_KEY))
    }

    /// From now on threads may [`set`](Self::set) a value. Says `false` where the C library cannot tell that a thread
    /// ends, or only by taking memory. Called once. The function lives as long as the program (or the library is
    /// pinned, as for `gate::lock::guard_forks`).
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
        // Release, partner of the Acquire below: who finds the key finds it made.
        self.0.store(key, Ordering::Release);
        true
    }

    /// Whether threads may set a value.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire) != NO_KEY
    }

    /// Has the function called with `value`, which is not null, when the calling thread ends. Takes no memory.
    /// Async-signal-safe. Says `false` if that was not begun, or cannot be.
    pub(crate) fn set(&self, value: *const c_void) -> bool {
        let key = self.0.load(Ordering::Acquire);
        // SAFETY: the key was made, and has its place within the thread.
        key != NO_KEY && unsafe { libc::pthread_setspecific(key, value) == 0 }
    }
}

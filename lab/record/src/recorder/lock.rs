//! The one lock of the library. The holder may change objects, shadow and arena (R3).

use crate::recorder::local::{self, Busy};
use std::sync::atomic::{AtomicBool, Ordering};

static LOCKED: AtomicBool = AtomicBool::new(false);

/// The right to change objects, shadow and arena (R3). The holder is busy: a signal handler that interrupts it is not
/// counted and cannot wait for it.
pub(crate) struct Lock(#[allow(dead_code, reason = "released with the lock")] Option<Busy>);

impl Lock {
    pub(crate) fn take() -> Lock {
        let busy = Busy::enter();
        while LOCKED
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            // It is held only as long as it takes to note a block.
            std::thread::yield_now();
        }
        Lock(busy)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Release, partner of the Acquire in `take`.
        LOCKED.store(false, Ordering::Release);
    }
}

/// Takes the lock for a fork.
pub(crate) extern "C" fn hold_for_fork() {
    std::mem::forget(Lock::take());
}

/// Releases it in parent and child, and ends the busy time of the thread that forked.
pub(crate) extern "C" fn end_fork() {
    // Release: as in `drop`.
    LOCKED.store(false, Ordering::Release);
    local::set::<{ local::BUSY }>(0);
}

//! The stock lock: who may change caps and take cells that other CPUs write.
//!
//! One lock for the process, because what it guards is rare (a cell's first cap, a drain) and
//! because a fork has to hold it. The charge paths only try it: when it is taken they go on without
//! a cap. A drain waits for it, unless the thread that holds it is the one that asks (a signal
//! handler that interrupted a drain): then there is nothing to wait for.

use crate::gate::Gate;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The gate of all slow paths of this process.
pub(crate) static GATE: Gate = Gate::new();

static HOLDER: AtomicUsize = AtomicUsize::new(0);

/// The stock lock is held; released when dropped.
#[derive(Debug)]
pub(crate) struct Held(());

impl Drop for Held {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

/// Takes the lock if it is free.
pub(crate) fn try_lock() -> Option<Held> {
    HOLDER
        .compare_exchange(0, thread(), Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
        .then(|| Held(()))
}

/// Waits for the lock; `None` if this very thread holds it.
pub(crate) fn lock() -> Option<Held> {
    let mut turn = 0u32;
    loop {
        if let Some(held) = try_lock() {
            return Some(held);
        }
        if HOLDER.load(Ordering::Relaxed) == thread() {
            return None;
        }
        crate::sync::wait_a_turn(turn);
        turn = turn.saturating_add(1);
    }
}

/// A number that no other living thread of the process has, never zero: the thread pointer.
pub(crate) fn thread() -> usize {
    crate::percpu::thread_pointer()
}

/// `fork` copies the memory of all threads but only the thread that calls it, so a half-done step
/// of another thread would stay half-done in the child. Handlers registered once a process hold
/// the gate and the lock over the fork.
pub(crate) fn guard_forks() {
    static ONCE: std::sync::Once = std::sync::Once::new();

    static CLOSED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    static LOCKED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

    extern "C" fn before() {
        // The gate first: whoever is inside may need the lock to get out.
        CLOSED.store(GATE.close(thread()), Ordering::Relaxed);
        let held = lock();
        LOCKED.store(held.is_some(), Ordering::Relaxed);
        std::mem::forget(held);
    }

    extern "C" fn after() {
        if LOCKED.swap(false, Ordering::Relaxed) {
            drop(Held(()));
        }
        if CLOSED.swap(false, Ordering::Relaxed) {
            GATE.open();
        }
    }

    // SAFETY: the handlers are plain functions that live as long as the program (or the library
    // is pinned: see the C interface), and touch only the statics above.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(after));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_holds_it_is_not_made_to_wait_for_itself() {
        let held = lock().expect("not held by this thread");
        assert!(lock().is_none());
        assert!(try_lock().is_none());
        drop(held);
        assert!(lock().is_some());
    }
}

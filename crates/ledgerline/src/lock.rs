//! The stock lock: who may change caps and take cells that other CPUs write.
//!
//! One lock for the process, because what it guards is rare (a cell's first cap, a drain) and
//! because a fork has to hold it. The charge paths only try it: when it is taken they go on without
//! a cap. A drain waits for it, unless the thread that holds it is the one that asks (a signal
//! handler that interrupted a drain): then there is nothing to wait for.

use crate::gate::{Gate, Pass};
use crate::sync::PATIENCE;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// The threads inside the gate, by thread pointer: a signal handler finds the thread that it
/// interrupted here. Noted after the gate is passed and taken off before it is left, so whoever is
/// noted is inside. (Where eight threads of one hash are inside, the ninth is not noted.)
static INSIDE: [Line; 64] = [const { Line([const { AtomicUsize::new(0) }; 8]) }; 64];

#[repr(align(64))]
struct Line([AtomicUsize; 8]);

/// Somebody is inside the gate; leaves when dropped.
pub(crate) struct Inside {
    noted: Option<&'static AtomicUsize>,
    nested: bool,
    /// Dropped last.
    _pass: Pass<'static>,
}

impl Inside {
    /// How long to wait for somebody else's walk: hardly at all where it may be the one that this
    /// signal handler interrupted.
    pub(crate) fn patience(&self) -> u32 {
        if self.nested { PATIENCE.min(64) } else { PATIENCE }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(slot) = self.noted {
            slot.store(0, Ordering::Release);
        }
    }
}

/// Passes the gate. A signal handler does not wait there if the thread that it interrupted is
/// inside (whoever closed the gate waits for that thread, and has it not closed yet), or holds the
/// lock (which the closer may be waiting for).
pub(crate) fn pass() -> Inside {
    let me = thread();
    let line = &INSIDE[(me >> 6).wrapping_mul(0x9e37_79b9) >> 8 & 63].0;
    let nested = HOLDER.load(Ordering::Relaxed) == me
        || line.iter().any(|slot| slot.load(Ordering::Relaxed) == me);
    if nested {
        return Inside { noted: None, nested, _pass: GATE.enter_anyway(me) };
    }
    let pass = GATE.enter(me);
    let noted = line
        .iter()
        .find(|slot| slot.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok());
    Inside { noted, nested, _pass: pass }
}

/// A mutex that is held inside the gate, so that no fork finds it locked.
pub(crate) struct Gated<'m, T> {
    held: MutexGuard<'m, T>,
    /// Left when the mutex is free again.
    _inside: Inside,
}

/// Locks a mutex inside the gate. (None of ours is left half-changed by a panic.)
pub(crate) fn gated<T>(mutex: &Mutex<T>) -> Gated<'_, T> {
    let inside = pass();
    Gated { held: mutex.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
}

impl<T> std::ops::Deref for Gated<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> std::ops::DerefMut for Gated<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

/// Frees the lock and the gate of threads that this process does not have: it was forked, without
/// the handlers of [`guard_forks`] (an allocator cannot register them; a raw fork runs none). What
/// they were doing they do in the parent, whose cells and totals they do it to.
pub(crate) fn forget_others() {
    HOLDER.store(0, Ordering::Release);
    GATE.forget_others();
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

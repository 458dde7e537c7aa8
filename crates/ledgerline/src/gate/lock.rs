//! The stock lock: who may change caps and take cells that other CPUs write.
//!
//! One lock for the process, because what it guards is rare (a cell's first cap, a drain) and
//! because a fork has to hold it. The charge paths only try it: when it is taken they go on without
//! a cap. A drain waits for it, unless the thread that holds it is the one that asks (a signal
//! handler that interrupted a drain): then there is nothing to wait for.

use crate::gate::{Gate, Pass};
use crate::sync::PATIENCE;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The gate of all slow paths of this process.
pub(crate) static GATE: Gate = Gate::new();

static HOLDER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread is inside. A plain word with nothing to drop: there from the thread's first
    /// instruction to its last, also in a signal handler; an atomic, since handlers change it in between (and
    /// leave it as it was).
    static DEPTH: AtomicU32 = const { AtomicU32::new(0) };
}

/// The stock lock is held; released when dropped.
#[derive(Debug)]
pub(crate) struct Held(());

impl Drop for Held {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

/// Somebody is inside the gate; leaves when dropped.
pub(crate) struct Inside {
    nested: bool,
    _pass: Pass<'static>,
    /// Its thread's own, whose depth it counts in.
    _here: PhantomData<*const ()>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.store(depth.load(Ordering::Relaxed) - 1, Ordering::Relaxed));
        // Only then the pass: a signal handler in between must not take this thread for one that is inside when
        // the closer has seen it leave.
        compiler_fence(Ordering::SeqCst);
    }
}

impl Inside {
    /// How long to wait for somebody else's walk: hardly at all where it may be the one that this
    /// signal handler interrupted.
    pub(crate) fn patience(&self) -> u32 {
        if self.nested { PATIENCE.min(64) } else { PATIENCE }
    }
}

/// Passes the gate. Who is inside already does not wait there (whoever closed the gate waits for this thread, and
/// has it not closed yet), nor does a signal handler whose thread is, or holds the lock (which the closer may be
/// waiting for).
///
/// (For the few instructions in which a thread that found no slot is counted in or out, and its depth is not, a
/// signal handler does not find it inside: if the gate is being closed, it waits until the closer gives up. Where
/// the thread has a slot, that tells.)
pub(crate) fn pass() -> Inside {
    pass_through(&GATE)
}

fn pass_through(gate: &'static Gate) -> Inside {
    let me = thread();
    let depth = DEPTH.with(|depth| depth.load(Ordering::Relaxed));
    let nested = depth > 0 || HOLDER.load(Ordering::Relaxed) == me || gate.is_inside(me);
    let pass = if nested { gate.enter_anyway(me) } else { gate.enter(me) };
    // Not before it is known that this thread may be inside: a handler that finds it there goes in, too.
    compiler_fence(Ordering::SeqCst);
    DEPTH.with(|now| now.store(depth + 1, Ordering::Relaxed));
    Inside { nested, _pass: pass, _here: PhantomData }
}

/// A mutex that is held inside the gate, so that no fork finds it locked.
pub(crate) struct Gated<'m, T> {
    held: MutexGuard<'m, T>,
    /// Left when the mutex is free again.
    _inside: Inside,
}

/// Locks a mutex inside the gate, which forks wait for from then on. (None of ours is left half-changed by a
/// panic.)
pub(crate) fn gated<T>(mutex: &Mutex<T>) -> Gated<'_, T> {
    guard_forks();
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
///
/// Called where a ledger is made in memory, and before each lock of `std` that somebody may hold inside the
/// gate: whose ledger lies in a file may be an allocator before `main`, which cannot register anything, and
/// takes no such lock.
///
/// (A flag, not a `Once`: an allocator that is asked for memory by the registration comes back here, and a
/// forked child must not wait for who was registering. Who comes second may go on a few instructions before
/// the handlers are there.)
pub(crate) fn guard_forks() {
    static CLOSED: AtomicBool = AtomicBool::new(false);
    static LOCKED: AtomicBool = AtomicBool::new(false);

    extern "C" fn before() {
        // The gate first: whoever is inside may need the lock to get out.
        CLOSED.store(GATE.close(thread()), Ordering::Relaxed);
        let held = lock();
        LOCKED.store(held.is_some(), Ordering::Relaxed);
        std::mem::forget(held);
    }

    extern "C" fn in_the_child() {
        // Threads that found the gate closed may just have been asking, and do not exist here. (If it
        // was not closed, this very thread may be inside.)
        if CLOSED.load(Ordering::Relaxed) {
            GATE.forget_askers();
        }
        after();
    }

    extern "C" fn after() {
        if LOCKED.swap(false, Ordering::Relaxed) {
            drop(Held(()));
        }
        if CLOSED.swap(false, Ordering::Relaxed) {
            GATE.open();
        }
    }

    static DONE: AtomicBool = AtomicBool::new(false);
    // Relaxed: the registration is libc's, which locks it.
    if DONE.load(Ordering::Relaxed) || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handlers are plain functions that live as long as the program (or the library
    // is pinned: see the C interface), and touch only the statics above. Guarded by the tests in
    // tests/fork.rs.
    unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(in_the_child));
    }
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

    /// Otherwise it would wait at the gate for whoever closes it, who waits for it.
    #[test]
    fn a_thread_that_found_no_slot_knows_that_it_is_inside() {
        static ONE: Gate = Gate::new();
        // Threads of the same stripe, more than it has slots.
        let others: Vec<_> = (1..20).map(|other| ONE.enter(thread() ^ other)).collect();
        let outer = pass_through(&ONE);
        assert!(!outer.nested && !ONE.is_inside(thread()), "a slot was free");
        let inner = pass_through(&ONE);
        assert!(inner.nested);
        drop(inner);
        assert!(pass_through(&ONE).nested);
        drop(outer);
        assert!(!pass_through(&ONE).nested);
        drop(others);
        assert!(ONE.quiet().is_some());
    }
}

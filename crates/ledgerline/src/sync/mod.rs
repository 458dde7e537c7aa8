//! The one place that chooses between the atomics of `std` and those of `loom`.
//!
//! The protocols (page counter, charge word, free list, gate) use this module, so that the models explore
//! the very code that ships.

#[cfg(not(loom))]
#[cfg_attr(not(unix), path = "thread_of_std.rs")]
pub(crate) mod thread;

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A fence for loom alone, between a SeqCst access and the next one. Loom takes such an access for an
/// AcqRel one, and knows only SeqCst fences.
#[inline(always)]
pub(crate) fn model_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The cheap side of an asymmetric fence: it keeps the compiler from moving what stands before it behind it, and the other
/// way round. The processor's part is done by the other side, whose `membarrier` makes every running thread pass a full
/// barrier. (For loom both sides are fences.)
#[inline(always)]
pub(crate) fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Whether this process must make no system call (see `Ledger::forbid_system_calls`).
static CALLS_FORBIDDEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Relaxed, here and below: the flag is all there is to see.
pub(crate) fn forbid_calls(forbidden: bool) {
    CALLS_FORBIDDEN.store(forbidden, Ordering::Relaxed);
}

pub(crate) fn are_calls_forbidden() -> bool {
    CALLS_FORBIDDEN.load(Ordering::Relaxed)
}

/// Waits one turn for another thread's short step. It spins first, then yields the CPU, then sleeps a
/// little, so that a waiter never keeps the very thread that it waits for off the CPU. Where no system call may
/// be made it spins, about as long. Async-signal-safe.
#[cfg(not(loom))]
pub(crate) fn wait_a_turn(turn: u32) {
    match turn {
        64.. if are_calls_forbidden() => (0..2000).for_each(|_| std::hint::spin_loop()),
        0..64 => std::hint::spin_loop(),
        64..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(100)),
    }
}

/// Under the model checker every wait is a chance for another thread to run.
#[cfg(loom)]
pub(crate) fn wait_a_turn(_turn: u32) {
    loom::thread::yield_now();
}

/// Waits, turn by turn, until `done` says so, or for `patience` turns if that is given. Says whether it did.
pub(crate) fn wait_until(patience: Option<u32>, mut done: impl FnMut() -> bool) -> bool {
    let mut turn = 0;
    while !done() {
        if patience.is_some_and(|most| turn >= most) {
            return false;
        }
        wait_a_turn(turn);
        turn = turn.saturating_add(1);
    }
    true
}

/// How many turns a step waits for another thread's step before it gives up: a fifth of a second and
/// more, enough for a thread that lost its CPU in the middle. Waiting is bounded because the other
/// thread may be the very one that a signal handler interrupted, or a process that was killed.
#[cfg(not(loom))]
pub(crate) const PATIENCE: u32 = 3000;
/// Small under the model checker, so that the give-up path is explored as well.
#[cfg(loom)]
pub(crate) const PATIENCE: u32 = 3;

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

/// Executes a fence under loom only, between a SeqCst access and the next one. Loom treats such an access as an AcqRel
/// one, and supports only SeqCst fences.
#[inline(always)]
pub(crate) fn model_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Executes the cheap side of an asymmetric fence: it keeps the compiler from moving accesses across it in either
/// direction. The other side calls `membarrier`, which makes every running thread pass a full barrier. For loom both
/// sides are fences.
#[inline(always)]
pub(crate) fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Whether this process must make no system call (see `Ledger::forbid_system_calls`).
static CALLS_FORBIDDEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Sets whether this process must make no system call. Relaxed, here and below: the flag publishes no other data.
pub(crate) fn forbid_calls(forbidden: bool) {
    CALLS_FORBIDDEN.store(forbidden, Ordering::Relaxed);
}

pub(crate) fn are_calls_forbidden() -> bool {
    CALLS_FORBIDDEN.load(Ordering::Relaxed)
}

/// Waits one turn for another thread's short step: spins first, then yields the CPU, then sleeps briefly, so that a
/// waiter never keeps the thread that it waits for off the CPU. If system calls are forbidden, it spins for about as
/// long. Async-signal-safe.
#[cfg(not(loom))]
pub(crate) fn wait_a_turn(turn: u32) {
    match turn {
        64.. if are_calls_forbidden() => (0..2000).for_each(|_| std::hint::spin_loop()),
        0..64 => std::hint::spin_loop(),
        64..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(100)),
    }
}

/// Lets another thread run: under the model checker every wait is a scheduling point.
#[cfg(loom)]
pub(crate) fn wait_a_turn(_turn: u32) {
    loom::thread::yield_now();
}

/// Waits, turn by turn, until `done` returns `true`, or for `patience` turns if that is given. Returns whether `done`
/// did.
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

/// How many turns a step waits for another thread's step before it gives up: at least a fifth of a second, which is
/// enough for a thread that was preempted in the middle. Waiting is bounded because the other thread may be the very
/// one that a signal handler interrupted, or a process that was killed.
#[cfg(not(loom))]
pub(crate) const PATIENCE: u32 = 3000;
/// Small under the model checker, so that the give-up path is explored as well.
#[cfg(loom)]
pub(crate) const PATIENCE: u32 = 3;

//! The gate that every slow path passes, so that somebody can wait until none is under way.
//!
//! The fast paths (one section each) are atomic by themselves. The slow ones take several steps,
//! and two readers must not see the steps in between: `fork`, whose child would keep a half-done
//! walk of a thread that it does not have, and a precise reader under fire. Both close the gate,
//! wait until everybody is out, do their work and open it.
//!
//! Passing costs two uncontended atomic additions on a stripe of its own; a fork costs the wait for
//! the slow paths under way (microseconds).

use crate::sync::{AtomicU64, AtomicUsize, Ordering, PATIENCE, fence, wait_a_turn};

#[cfg(not(loom))]
const STRIPES: usize = 16;
#[cfg(loom)]
const STRIPES: usize = 2;

#[repr(align(128))]
#[derive(Debug)]
struct Stripe {
    entered: AtomicU64,
    left: AtomicU64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Gate {
    stripes: [Stripe; STRIPES],
    /// The thread that closed it; zero while it is open.
    closed_by: AtomicUsize,
}

/// Somebody is inside; leaves when dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a>(&'a Stripe);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // Release, partner of the Acquire in `quiet`: whoever counts this one out sees its steps.
        self.0.left.fetch_add(1, Ordering::Release);
    }
}

impl Gate {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Gate {
            stripes: [const { Stripe { entered: AtomicU64::new(0), left: AtomicU64::new(0) } };
                STRIPES],
            closed_by: AtomicUsize::new(0),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Gate {
            stripes: std::array::from_fn(|_| Stripe {
                entered: AtomicU64::new(0),
                left: AtomicU64::new(0),
            }),
            closed_by: AtomicUsize::new(0),
        }
    }

    /// Enters, waiting while somebody else has closed the gate.
    ///
    /// Not bounded: a closer opens the gate again after a bounded time, and is let through itself. (A
    /// signal handler that finds the gate closed while the thread it interrupted is inside waits
    /// until the closer gives up on that thread.)
    pub(crate) fn enter(&self, me: usize) -> Pass<'_> {
        let stripe = self.stripe(me);
        let mut turn = 0;
        loop {
            stripe.entered.fetch_add(1, Ordering::Relaxed);
            // SeqCst, partner of the fence in `close`: either this sees the gate closed, or the
            // closer sees this inside.
            fence(Ordering::SeqCst);
            if self.may_enter(me) {
                return Pass(stripe);
            }
            stripe.left.fetch_add(1, Ordering::Release);
            // Not in and out again: the closer waits for a moment without either.
            while !self.may_enter(me) {
                wait_a_turn(turn);
                turn = turn.saturating_add(1);
            }
        }
    }

    /// Enters whether the gate is closed or not: for a thread for which the closer may be waiting.
    #[cfg(not(loom))]
    pub(crate) fn enter_anyway(&self, me: usize) -> Pass<'_> {
        let stripe = self.stripe(me);
        stripe.entered.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Pass(stripe)
    }

    fn stripe(&self, me: usize) -> &Stripe {
        &self.stripes[(me >> 6).wrapping_mul(0x9e37_79b9) % STRIPES]
    }

    fn may_enter(&self, me: usize) -> bool {
        // Acquire, partner of `open`: what the closer did is seen inside.
        let closed_by = self.closed_by.load(Ordering::Acquire);
        closed_by == 0 || closed_by == me
    }

    /// How often the gate was entered, if nobody is inside. Two equal answers: nobody was inside
    /// in between.
    pub(crate) fn quiet(&self) -> Option<u64> {
        // First those who left, then those who entered: equal sums mean that at some moment in
        // between nobody was inside.
        let sum = |count: fn(&Stripe) -> &AtomicU64| {
            self.stripes
                .iter()
                .fold(0u64, |sum, stripe| sum.wrapping_add(count(stripe).load(Ordering::Acquire)))
        };
        let left = sum(|stripe| &stripe.left);
        let entered = sum(|stripe| &stripe.entered);
        (left == entered).then_some(entered)
    }

    /// Closes the gate and waits until everybody is out. `false` when somebody else has closed it
    /// for too long, or somebody stayed inside for too long; then the gate is as it was.
    pub(crate) fn close(&self, me: usize) -> bool {
        let mut turn = 0;
        while self.closed_by.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            if turn >= PATIENCE {
                return false;
            }
            wait_a_turn(turn);
            turn += 1;
        }
        // Partner of the fence in `enter`.
        fence(Ordering::SeqCst);
        turn = 0;
        while self.quiet().is_none() {
            if turn >= PATIENCE {
                self.open();
                return false;
            }
            wait_a_turn(turn);
            turn += 1;
        }
        true
    }

    /// Nobody is inside, and it is open: the process is a fork's child, with one thread.
    pub(crate) fn forget_others(&self) {
        for stripe in &self.stripes {
            stripe.left.store(stripe.entered.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.closed_by.store(0, Ordering::Release);
    }

    /// Opens the gate again.
    pub(crate) fn open(&self) {
        self.closed_by.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn while_it_is_closed_nobody_is_inside() {
        static GATE: Gate = Gate::new();
        let inside = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for me in 1..5usize {
                let (inside, stop) = (&inside, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let _pass = GATE.enter(me << 6);
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            let mut seen = Vec::new();
            for _ in 0..500 {
                if GATE.close(9 << 6) {
                    seen.push(inside.load(Ordering::SeqCst));
                    GATE.open();
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(seen.len() > 250, "closed {} times of 500", seen.len());
            assert!(seen.iter().all(|&inside| inside == 0));
        });
    }

    #[test]
    fn the_thread_that_closed_it_may_enter() {
        let gate = Gate::new();
        assert!(gate.close(64));
        drop(gate.enter(64));
        gate.open();
    }
}

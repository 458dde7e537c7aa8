//! Every slow path passes the gate, so that a thread can wait until no slow path is in flight.
//!
//! The fast paths are one section each, and therefore atomic. The slow paths take several steps, and two
//! kinds of readers must not see the steps in between. One is `fork`: the child would keep a half-done walk
//! of a thread that it does not have. The other is a precise reader that writers keep disturbing. Both
//! close the gate, wait until every thread is out, do their work and open the gate.
//!
//! A thread that passes takes a slot in a stripe, which a hash of its number chooses, and writes its number
//! there. That costs one uncontended compare-and-swap on the way in and plain stores on the way out. If all
//! slots of the stripe are taken, the thread is counted in and out instead. A fork waits for the slow paths
//! in flight. That takes microseconds, or seconds at most if a thread inside was preempted.

#[cfg(not(loom))]
pub mod forked;
#[cfg(not(loom))]
pub(crate) mod lock;

use crate::sync::{AtomicU64, AtomicUsize, Ordering, PATIENCE, fence, model_fence, wait_until};

/// One for each bit of `used`.
#[cfg(not(loom))]
const STRIPES: usize = 64;
#[cfg(not(loom))]
const SLOTS: usize = 7;
#[cfg(loom)]
const STRIPES: usize = 1;

#[repr(align(128))]
#[derive(Debug)]
struct Stripe {
    #[cfg(not(loom))]
    slots: [Slot; SLOTS],
    #[cfg(loom)]
    slots: Vec<Slot>,
    /// Threads that entered without a slot.
    entered: AtomicU64,
    left: AtomicU64,
}

/// The place of one thread inside the gate.
#[derive(Debug)]
struct Slot {
    /// Zero: the slot is free. A thread's number: that thread is inside. The complement of its number: the
    /// thread asks whether it may enter. No thread's number is the complement of another's, since the
    /// numbers are addresses.
    who: AtomicUsize,
    /// How many threads were inside in this slot and left. Written by the thread inside.
    visits: AtomicU64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Gate {
    stripes: [Stripe; STRIPES],
    /// The stripes that any thread ever took. The closer skips the others.
    used: AtomicU64,
    /// The thread that closed the gate; zero while it is open.
    closed_by: AtomicUsize,
}

/// Proof that one thread is inside, in a slot or counted. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    stripe: &'a Stripe,
    slot: Option<&'a Slot>,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let visits = slot.visits.load(Ordering::Relaxed);
            slot.visits.store(visits.wrapping_add(1), Ordering::Relaxed);
            // Release, partner of the Acquire in `quiet`: a thread that finds the slot empty sees this
            // thread's steps and counts its visit. Also partner of the Acquire with which the next thread
            // takes the slot.
            slot.who.store(0, Ordering::Release);
        } else {
            // Release, partner of the Acquire in `quiet`: a thread that counts this one out sees its steps.
            self.stripe.left.fetch_add(1, Ordering::Release);
        }
    }
}

impl Stripe {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Stripe {
            slots: [const { Slot { who: AtomicUsize::new(0), visits: AtomicU64::new(0) } }; SLOTS],
            entered: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    #[cfg(loom)]
    fn new(slots: usize) -> Self {
        let slot = |_| Slot { who: AtomicUsize::new(0), visits: AtomicU64::new(0) };
        Stripe {
            slots: (0..slots).map(slot).collect(),
            entered: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    /// Writes `number` into a free slot.
    fn take_slot(&self, number: usize) -> Option<&Slot> {
        self.slots.iter().find(|slot| {
            // SeqCst, partner of the fence in `close`, with the load in `may_enter`: either this thread
            // sees the gate closed, or the closer sees this thread asking. Acquire: this thread sees the
            // visits of the slot's previous thread.
            slot.who.load(Ordering::Relaxed) == 0
                && slot.who.compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })
    }

    /// Takes a slot, or counts the thread in.
    fn ask(&self, number: usize) -> Pass<'_> {
        let slot = self.take_slot(number);
        if slot.is_none() {
            self.count_in();
        }
        Pass { stripe: self, slot }
    }

    fn count_in(&self) {
        // SeqCst: as in `take_slot`.
        self.entered.fetch_add(1, Ordering::SeqCst);
    }
}

impl Gate {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Gate {
            stripes: [const { Stripe::new() }; STRIPES],
            used: AtomicU64::new(0),
            closed_by: AtomicUsize::new(0),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new(slots: usize) -> Self {
        Gate {
            stripes: std::array::from_fn(|_| Stripe::new(slots)),
            used: AtomicU64::new(0),
            closed_by: AtomicUsize::new(0),
        }
    }

    /// Enters the gate. Waits while another thread has closed it.
    ///
    /// This wait is not bounded, but a closer opens the gate again after a bounded time, and may enter
    /// itself. A signal handler may find the gate closed while the thread that it interrupted asks to
    /// enter. Then the handler waits until the closer gives up on that thread.
    pub(crate) fn enter(&self, me: usize) -> Pass<'_> {
        let stripe = self.stripe(me);
        loop {
            let pass = stripe.ask(!me);
            if self.may_enter(me) {
                if let Some(slot) = pass.slot {
                    // A signal handler that reads this finds its thread inside (`is_inside`), and enters
                    // whatever the closer does. So the number is stored only once the thread is admitted.
                    slot.who.store(me, Ordering::Relaxed);
                }
                return pass;
            }
            drop(pass);
            // The thread does not ask repeatedly: the closer waits for a moment in which no thread is
            // inside or asks.
            wait_until(None, || self.may_enter(me));
        }
    }

    /// Enters even if the gate is closed: for a thread that the closer may be waiting for.
    #[cfg(not(loom))]
    pub(crate) fn enter_anyway(&self, me: usize) -> Pass<'_> {
        let stripe = self.stripe(me);
        stripe.count_in();
        Pass { stripe, slot: None }
    }

    /// Returns whether the calling thread is inside. A signal handler asks this about the thread that it
    /// interrupted. A thread without a slot is not found; `lock::pass` counts how deep each thread is
    /// inside.
    #[cfg(not(loom))]
    pub(crate) fn is_inside(&self, me: usize) -> bool {
        self.stripe(me).slots.iter().any(|slot| slot.who.load(Ordering::Relaxed) == me)
    }

    fn stripe(&self, me: usize) -> &Stripe {
        let index = ((me >> 6).wrapping_mul(0x9e37_79b9) >> 8) % STRIPES;
        // SeqCst, as in `take_slot`, which follows: if a closer does not see the stripe in use, this thread
        // sees the closer.
        if self.used.load(Ordering::SeqCst) >> index & 1 == 0 {
            self.used.fetch_or(1 << index, Ordering::SeqCst);
        }
        &self.stripes[index]
    }

    fn may_enter(&self, me: usize) -> bool {
        model_fence();
        // Acquire, partner of the Release in `open`: a thread inside sees what the closer did. SeqCst: see
        // `take_slot`.
        let closed_by = self.closed_by.load(Ordering::SeqCst);
        closed_by == 0 || closed_by == me
    }

    /// Iterates over the stripes whose bits are set.
    fn each(&self, mut set: u64) -> impl Iterator<Item = &Stripe> {
        std::iter::from_fn(move || {
            let index = set.trailing_zeros() as usize;
            set &= set.wrapping_sub(1);
            self.stripes.get(index)
        })
    }

    /// Returns how often the gate was entered, or `None` while a thread is inside. If two calls return the
    /// same number, no thread was inside in between.
    ///
    /// A thread that is inside in between took its slot, or was counted in, either before or after the
    /// first call. If before, the first call returns `None`. If after, either the thread is still in its
    /// slot at the second call, which then returns `None`, or it has left and adds to the number.
    pub(crate) fn quiet(&self) -> Option<u64> {
        // SeqCst, partner of the load in `stripe`.
        let used = self.used.load(Ordering::SeqCst);
        // The threads counted out are summed before those counted in: equal sums mean that at some moment
        // in between none of them was inside.
        let sum = |count: fn(&Stripe) -> &AtomicU64| {
            self.each(used)
                .fold(0u64, |sum, stripe| sum.wrapping_add(count(stripe).load(Ordering::Acquire)))
        };
        let left = sum(|stripe| &stripe.left);
        let mut entered = sum(|stripe| &stripe.entered);
        if left != entered {
            return None;
        }
        for slot in self.each(used).flat_map(|stripe| &stripe.slots) {
            if slot.who.load(Ordering::Acquire) != 0 {
                return None;
            }
            entered = entered.wrapping_add(slot.visits.load(Ordering::Acquire));
        }
        Some(entered)
    }

    /// Closes the gate and waits until every thread is out. Returns `false` if another thread keeps the
    /// gate closed for too long, or a thread stays inside for too long; the gate is then unchanged.
    pub(crate) fn close(&self, me: usize) -> bool {
        self.close_within(me, PATIENCE)
    }

    /// Like [`close`](Self::close), but waits at most `patience` turns in each of the two waits.
    pub(crate) fn close_within(&self, me: usize, patience: u32) -> bool {
        let close =
            || self.closed_by.compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if !wait_until(Some(patience), close) {
            return false;
        }
        // Partner of `take_slot` and `may_enter`.
        fence(Ordering::SeqCst);
        let empty = wait_until(Some(patience), || self.quiet().is_some());
        if !empty {
            self.open();
        }
        empty
    }

    /// Makes the gate open and empty: this process is the child of a fork, with one thread.
    pub(crate) fn forget_others(&self) {
        self.forget_askers();
        self.closed_by.store(0, Ordering::Release);
    }

    /// Makes the gate empty: the threads that were inside or asked do not exist in this process.
    pub(crate) fn forget_askers(&self) {
        for stripe in &self.stripes {
            stripe.slots.iter().for_each(|slot| slot.who.store(0, Ordering::Relaxed));
            stripe.left.store(stripe.entered.load(Ordering::Relaxed), Ordering::Relaxed);
        }
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
    fn more_threads_than_a_stripe_has_slots_are_all_waited_for() {
        let gate = Gate::new();
        let mut inside: Vec<_> = (0..SLOTS + 3).map(|_| gate.enter(64)).collect();
        assert!(gate.is_inside(64) && gate.quiet().is_none());
        while let Some(pass) = inside.pop() {
            assert!(gate.quiet().is_none());
            drop(pass);
        }
        assert!(!gate.is_inside(64));
        assert_eq!(gate.quiet(), Some(SLOTS as u64 + 3));
    }

    /// A signal handler of an asking thread is not let in: the closer may have looked at the slot already.
    #[test]
    fn a_thread_that_only_asks_is_not_inside_and_is_waited_for() {
        let gate = Gate::new();
        let asking = gate.stripe(64).ask(!64);
        assert!(!gate.is_inside(64) && gate.quiet().is_none());
        drop(asking);
        assert!(gate.quiet().is_some());
        // In a forked child the only threads that ask are those of the parent.
        std::mem::forget(gate.stripe(64).ask(!64));
        gate.stripe(64).count_in();
        gate.forget_askers();
        assert!(gate.quiet().is_some());
    }

    #[test]
    fn the_thread_that_closed_it_may_enter() {
        let gate = Gate::new();
        assert!(gate.close(64));
        drop(gate.enter(64));
        gate.open();
    }
}

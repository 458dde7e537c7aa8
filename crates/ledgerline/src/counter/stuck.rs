//! Waits until an obstacle to a walk has gone: reservations of other walks, or idle units in flight.
//!
//! The obstacle goes within a few instructions, unless the thread that would remove it was preempted, stopped or
//! killed, or another program wrote over the word. So the wait is bounded, and its end proves nothing. But a program
//! that asks for memory a thousand times must not wait a thousand times for an obstacle that never goes. So the level
//! remembers the amount that was left when a wait ran out: that much is *stuck*.
//!
//! ```text
//! wait for what stands in the way:            it is less than what is stuck: nothing is stuck any more
//!   it is exactly what is stuck:                wait SHORT turns
//!   otherwise:                                  wait as long as the caller's patience lasts; if that was
//!                                                 PATIENCE, what was left at least is stuck
//! ```
//!
//! After eight full waits in vain, a process waits SHORT turns from then on, until a longer wait succeeds.
//!
//! The note lies in the row, so that one process waits on behalf of all. It is a hint: if it is damaged, waits become
//! longer or shorter, within their bounds. It may be out of date, if no thread waited when the rest went. Then one walk
//! waits SHORT turns for another that was preempted.

use super::PageCounter;
use crate::sync::{AtomicU64, Ordering, PATIENCE, wait_a_turn};
use std::sync::atomic::AtomicU32;

/// How many turns a walk waits for an obstacle that outlasted a full wait: some ten microseconds.
const SHORT: u32 = if cfg!(loom) { PATIENCE } else { PATIENCE / 24 };

/// How many full waits of this process were in vain since the last long one that succeeded. Relaxed: it orders nothing.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// After this many, waits are short: in a ledger that was written over, the amount in the way may differ each time.
const MANY: u32 = 8;

/// How much was left when a wait ran out; zero if no wait did.
#[repr(transparent)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Stuck(AtomicU64);

impl Stuck {
    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// One wait.
#[derive(Debug)]
pub(super) struct Waiting {
    turn: u32,
    /// The least that stood in the way at any turn.
    pub(super) least: u64,
    in_vain: &'static AtomicU32,
}

impl Waiting {
    pub(super) fn new() -> Waiting {
        Waiting { turn: 0, least: u64::MAX, in_vain: &IN_VAIN }
    }

    /// Waits one more turn. Returns `false` if the wait is over.
    pub(super) fn turn(&mut self, stuck: &Stuck, in_the_way: u64, patience: u32) -> bool {
        self.least = self.least.min(in_the_way);
        // Relaxed, here and below: the note orders nothing. The models leave out the note and the count of waits in
        // vain: their waits are as short as possible.
        let known = if cfg!(loom) { 0 } else { stuck.0.load(Ordering::Relaxed) };
        if in_the_way < known {
            stuck.forget();
        }
        let are_many = !cfg!(loom) && self.in_vain.load(Ordering::Relaxed) >= MANY;
        let hopeless = known != 0 && in_the_way == known || are_many;
        let most = if hopeless { patience.min(SHORT) } else { patience };
        if self.turn >= most {
            if !cfg!(loom) && self.turn >= PATIENCE {
                stuck.0.store(self.least, Ordering::Relaxed);
                self.in_vain.fetch_add(1, Ordering::Relaxed);
            }
            self.turn = 0;
            return false;
        }
        wait_a_turn(self.turn);
        self.turn += 1;
        true
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The wait succeeded before it ran out.
        if !cfg!(loom) && self.turn > SHORT {
            self.in_vain.store(0, Ordering::Relaxed);
        }
    }
}

impl PageCounter {
    /// Waits while units are in flight and `n` would fit without them.
    pub(crate) fn wait_for_in_flight(&self, n: u64, patience: u32) {
        let mut waiting = Waiting::new();
        loop {
            let in_flight = self.track.in_flight.units();
            if in_flight == 0
                || !self.fits_without_in_flight(n)
                || !waiting.turn(&self.hot.stuck_in_flight, in_flight, patience)
            {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    fn turns(stuck: &Stuck, in_the_way: u64, patience: u32) -> u32 {
        turns_of(Box::leak(Box::default()), stuck, in_the_way, patience)
    }

    fn turns_of(in_vain: &'static AtomicU32, stuck: &Stuck, in_the_way: u64, patience: u32) -> u32 {
        let mut waiting = Waiting { turn: 0, least: u64::MAX, in_vain };
        let mut turns = 0;
        while waiting.turn(stuck, in_the_way, patience) {
            turns += 1;
        }
        turns
    }

    #[test]
    fn what_a_whole_wait_did_not_see_go_is_not_waited_for_again() {
        let stuck = Stuck(AtomicU64::new(0));
        let start = Instant::now();
        assert_eq!(turns(&stuck, 70, PATIENCE), PATIENCE);
        let whole = start.elapsed();
        // The thread may be preempted for longer than that, but not each time.
        let ten_are_shorter = || {
            let start = Instant::now();
            for _ in 0..10 {
                assert_eq!(turns(&stuck, 70, PATIENCE), SHORT);
            }
            start.elapsed() < whole
        };
        assert!((0..8).any(|_| ten_are_shorter()), "ten short waits take less than a whole one");
        assert_eq!(turns(&stuck, 71, PATIENCE), PATIENCE, "another walker is in the way, too");
        assert_eq!(turns(&stuck, 71, PATIENCE), SHORT);
    }

    #[test]
    fn a_process_does_not_wait_in_vain_for_ever_whatever_stands_in_the_way() {
        let stuck = Stuck(AtomicU64::new(0));
        let in_vain: &'static AtomicU32 = Box::leak(Box::default());
        let whole = (1..100).map(|amount| turns_of(in_vain, &stuck, 70 + amount, PATIENCE));
        assert_eq!(whole.filter(|&turns| turns == PATIENCE).count(), MANY as usize);
        // A longer wait that succeeded.
        drop(Waiting { turn: SHORT + 1, least: 0, in_vain });
        assert_eq!(turns_of(in_vain, &stuck, 7000, PATIENCE), PATIENCE);
    }

    #[test]
    fn who_waits_less_than_a_whole_wait_notes_nothing() {
        let stuck = Stuck(AtomicU64::new(0));
        assert_eq!(turns(&stuck, 70, 64), 64);
        assert_eq!(stuck.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_has_gone_was_not_stuck() {
        let stuck = Stuck(AtomicU64::new(70));
        assert_eq!(turns(&stuck, 69, 64), 64);
        assert_eq!(stuck.0.load(Ordering::Relaxed), 0, "it went");
    }
}

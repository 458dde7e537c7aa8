//! Counts the changes of a row's limits and keeps a checksum of them, the *seal*, in one word beside the counter.
//!
//! ```text
//! change                                     is the row's limits' seal whole?
//!   under way += 1                             the word: none is under way
//!   the limit: old -> new  (Release)           the four limits
//!   seal ^= of(old) ^ of(new),                 fence (Acquire)
//!     count += 1, under way -= 1               the same word again: compare its seal with the limits'
//! ```
//!
//! So a reader can tell a limit that was set from one that another program wrote over, with an error of one in 2^24. A
//! change in progress is not taken for damage. The changes of several threads commute, so there is no lock. A process
//! that is killed in the middle leaves "under way" above zero: the row's limits are then no longer checked.
//!
//! A reader of a subtree's counts moves the uncollected changes to the totals (`table/collect.rs`). A group that ends
//! hands them to its parent's row. Both take them out by a swap, so each change is counted once. Groups with limits
//! come and go all the time, so the end of a group must not cost a collection.
//!
//! The seal of the limits that a row begins with is zero, and so is the word of a fresh row.

use super::{COUNTER_MAX, PageCounter};
use crate::sync::{AtomicU64, Ordering};

/// The bits of the count. The seal lies above them, and the number of changes under way above the seal.
const COUNT: u64 = u32::MAX as u64;
const SEAL_SHIFT: u32 = 32;
const SEAL: u64 = 0xff_ffff;
const UNDER_WAY: u64 = 1 << 56;

/// In the word of uncollected changes: those of the row itself. Those of removed groups below lie above them.
const OWN: u64 = u32::MAX as u64;
const BELOW_SHIFT: u32 = 32;
/// Above this, changes must be collected at once: [`PageCounter::add_changes`] returns `true`.
const MANY: u64 = 1 << 31;

/// Changes of limits that no reader has collected yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Those of the row itself.
    pub(crate) own: u64,
    /// Those of removed groups below it.
    pub(crate) below: u64,
}

impl Changes {
    fn of(word: u64) -> Changes {
        Changes { own: word & OWN, below: word >> BELOW_SHIFT }
    }

    pub(crate) fn all(self) -> u64 {
        self.own + self.below
    }
}

/// A limit of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Max,
    High,
    Low,
    Min,
}

impl Which {
    const ALL: [Which; 4] = [Which::Max, Which::High, Which::Low, Which::Min];

    /// Returns the initial value of the limit in a fresh row.
    const fn at_first(self) -> u64 {
        match self {
            Which::Max | Which::High => COUNTER_MAX,
            Which::Low | Which::Min => 0,
        }
    }

    /// Returns what a limit adds to the seal.
    const fn seal(self, limit: u64) -> u64 {
        let place = (self as u64 + 1).wrapping_mul(GOLDEN);
        (mixed(limit.wrapping_add(place)) ^ mixed(self.at_first().wrapping_add(place))) & SEAL
    }
}

/// 2^64 over the golden ratio: its multiples are evenly distributed.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a hash in which each bit of the word counts (the finisher of Steele, Lea and Flood's SplitMix64).
pub(crate) const fn mixed(word: u64) -> u64 {
    let mixed = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A change that is under way. Dropping this ends it.
#[must_use = "the change ends when this is dropped"]
pub(super) struct UnderWay<'c>(&'c PageCounter);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // The models leave it out: only the damage check depends on it. Release: as in `note_change`.
        #[cfg(not(loom))]
        self.0.hot.changes.fetch_sub(UNDER_WAY, Ordering::Release);
    }
}

impl PageCounter {
    /// Returns how often its limits were changed.
    pub(crate) fn changes(&self) -> u64 {
        self.hot.changes.load(Ordering::Relaxed) & COUNT
    }

    /// Changes a limit by `exchange`, which stores with Release and returns the old and the new value, or `None` if it
    /// changed nothing. Returns whether the limit differs from the old one. Async-signal-safe.
    pub(super) fn note_change(
        &self,
        which: Which,
        exchange: impl FnOnce() -> Option<(u64, u64)>,
    ) -> bool {
        let word = &self.hot.changes;
        word.fetch_add(UNDER_WAY, Ordering::Relaxed);
        let changed = exchange().filter(|(old, new)| old != new);
        let Some((old, new)) = changed else {
            word.fetch_sub(UNDER_WAY, Ordering::Relaxed);
            return false;
        };
        let seal = (which.seal(old) ^ which.seal(new)) << SEAL_SHIFT;
        let ended = |word: u64| {
            let rest = word.wrapping_sub(UNDER_WAY) & !COUNT ^ seal;
            Some(rest | word.wrapping_add(1) & COUNT)
        };
        // Release, partner of the first Acquire in `are_limits_sealed`: a reader that sees the new seal sees the limit.
        let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, ended);
        self.hot.uncollected.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Marks a change as under way until the result is dropped, so that the damage check ignores it. Lowering the max
    /// may reserve up to all units that exist, which would look like damage otherwise.
    pub(super) fn begin_change(&self) -> UnderWay<'_> {
        #[cfg(not(loom))]
        self.hot.changes.fetch_add(UNDER_WAY, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Returns whether a change is under way. An Acquire fence before this is the partner of the AcqRel exchange with
    /// which a change reserves: a thread that saw the reservation sees the change.
    pub(super) fn is_change_under_way(&self) -> bool {
        self.hot.changes.load(Ordering::Relaxed) >= UNDER_WAY
    }

    /// Sets high, low or min. Returns whether the limit differs from the old one. Async-signal-safe.
    #[cfg(not(loom))]
    pub(crate) fn set_other(&self, which: Which, limit: u64) -> bool {
        let word = self.limit(which);
        if word.load(Ordering::Relaxed) == limit {
            return false;
        }
        // AcqRel: partner of the fence in `are_limits_sealed`.
        self.note_change(which, || Some((word.swap(limit, Ordering::AcqRel), limit)))
    }

    fn limit(&self, which: Which) -> &AtomicU64 {
        match which {
            Which::Max => &self.limits.max,
            Which::High => &self.limits.high,
            Which::Low => &self.limits.low,
            Which::Min => &self.limits.min,
        }
    }

    /// Returns whether the limits are those that were set. Also `true` while one is being changed.
    pub(crate) fn are_limits_sealed(&self) -> bool {
        let before = self.hot.changes.load(Ordering::Acquire);
        if before >= UNDER_WAY {
            return true;
        }
        let load = |which| match which {
            Which::Max => self.max_as_set(),
            other => self.limit(other).load(Ordering::Relaxed),
        };
        let seal = Which::ALL.into_iter().fold(0, |seal, which| seal ^ which.seal(load(which)));
        // Partner of the Release with which a limit is stored: a thread that read a new one sees that its change is, or
        // was, under way.
        crate::sync::fence(Ordering::Acquire);
        let after = self.hot.changes.load(Ordering::Relaxed);
        before != after || before >> SEAL_SHIFT & SEAL == seal
    }

    /// Returns the changes that were not collected yet.
    pub(crate) fn uncollected(&self) -> Changes {
        Changes::of(self.hot.uncollected.load(Ordering::Relaxed))
    }

    /// Takes out the changes that were not collected yet.
    pub(crate) fn take_uncollected(&self) -> Changes {
        if self.hot.uncollected.load(Ordering::Relaxed) == 0 {
            return Changes::default();
        }
        Changes::of(self.hot.uncollected.swap(0, Ordering::Relaxed))
    }

    /// Adds the uncollected changes of another row. Returns `true` if there are now so many that they must be collected
    /// at once.
    pub(crate) fn add_changes(&self, more: Changes) -> bool {
        let added = more.own | more.below << BELOW_SHIFT;
        let word = self.hot.uncollected.fetch_add(added, Ordering::Relaxed).wrapping_add(added);
        Changes::of(word).below.max(Changes::of(word).own) > MANY
    }

    /// Returns the word of a row that has this max.
    #[cfg(loom)]
    pub(super) fn sealed(max: u64) -> AtomicU64 {
        AtomicU64::new(Which::Max.seal(max) << SEAL_SHIFT)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Ledger, Limit};

    #[test]
    fn each_change_counts_once_and_what_stays_the_same_does_not() {
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("group").unwrap();
        let counter = &group.row().counter;
        assert_eq!((counter.changes(), counter.are_limits_sealed()), (0, true));
        for _ in 0..2 {
            group.set_max(Limit::units(100)).unwrap();
            group.set_high(Limit::units(50));
            group.set_low(Limit::units(20));
            group.set_min(Limit::units(10));
            assert_eq!((counter.changes(), counter.are_limits_sealed()), (4, true));
        }
        assert_eq!(group.set_max_now(Limit::units(5)), Ok(0));
        group.set_mode(crate::ControlMode::Off);
        assert_eq!(counter.changes(), 5, "a mode is no limit");
        group.set_max(Limit::MAX).unwrap();
        assert_eq!((counter.changes(), counter.are_limits_sealed()), (6, true));
    }

    #[test]
    fn a_limit_that_was_written_over_breaks_the_seal() {
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("group").unwrap();
        let counter = &group.row().counter;
        group.set_max(Limit::units(1000)).unwrap();
        for which in Which::ALL {
            let word = counter.limit(which);
            let was = word.load(Ordering::Relaxed);
            for wrong in [was ^ 1, was ^ 1 << 40, 7] {
                word.store(wrong, Ordering::Relaxed);
                assert!(!counter.are_limits_sealed(), "{which:?} {wrong}");
            }
            word.store(was, Ordering::Relaxed);
        }
        assert!(counter.are_limits_sealed());
        // Moves a value from one limit to another.
        counter.limits.low.store(1000, Ordering::Relaxed);
        counter.limits.max.store(0, Ordering::Relaxed);
        assert!(!counter.are_limits_sealed());
    }

    #[test]
    fn a_change_that_was_not_ended_is_believed() {
        let ledger = Ledger::new().unwrap();
        let counter = &ledger.root().row().counter;
        counter.hot.changes.fetch_add(UNDER_WAY, Ordering::Relaxed);
        counter.limits.high.store(7, Ordering::Relaxed);
        assert!(counter.are_limits_sealed());
    }

    #[test]
    fn the_seal_is_whole_at_every_look_while_threads_change_limits() {
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("group").unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let done = &done;
                scope.spawn(move || {
                    for turn in 0..20_000u64 {
                        match (turn + thread) % 4 {
                            0 => group.set_max(Limit::units(turn % 7 + 1)).unwrap(),
                            1 => group.set_high(Limit::units(turn % 5)),
                            2 => group.set_low(Limit::units(turn % 3)),
                            _ => drop(group.set_max_now(Limit::units(turn % 11 + 1))),
                        }
                    }
                    done.store(true, Ordering::Relaxed);
                });
            }
            while !done.load(Ordering::Relaxed) {
                assert!(group.row().counter.are_limits_sealed());
            }
        });
        assert!(group.row().counter.are_limits_sealed());
    }
}

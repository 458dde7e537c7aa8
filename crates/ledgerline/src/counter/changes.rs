//! How often a row's limits were changed, and a seal over them: one word beside the counter.
//!
//! ```text
//! change                                     is the row's limits' seal whole?
//!   under way += 1                             the word: none is under way
//!   the limit: old -> new  (Release)           the four limits
//!   seal ^= of(old) ^ of(new),                 fence (Acquire)
//!     count += 1, under way -= 1               the same word again: compare its seal with the limits'
//! ```
//!
//! So who reads a limit can tell one that was set from one that another program wrote over (to one in 2^24), and a change
//! that is seen half is taken for neither. The changes of several threads commute, so there is no lock. A process that
//! is killed in the middle leaves "under way" above zero: then the row's limits are believed as they are.
//!
//! Who reads the counts of a subtree moves what was not collected yet to the totals (`table/collect.rs`); a group that
//! goes hands it to its parent's row. Each takes it out by a swap, so it is counted once. (Groups with limits come and go
//! all the time, and their ends must not cost a collection each.)
//!
//! The seal of the limits that a row begins with is zero, and so is the word of a fresh row.

use super::{COUNTER_MAX, PageCounter};
use crate::sync::{AtomicU64, Ordering};

/// The bits of the count; the seal lies above them, and how many changes are under way above that.
const COUNT: u64 = u32::MAX as u64;
const SEAL_SHIFT: u32 = 32;
const SEAL: u64 = 0xff_ffff;
const UNDER_WAY: u64 = 1 << 56;

/// In the word of what was not collected: the row's own; above it, that of groups below which are gone.
const OWN: u64 = u32::MAX as u64;
const BELOW_SHIFT: u32 = 32;
/// More than this waits for nobody: [`PageCounter::add_changes`] says so.
const MANY: u64 = 1 << 31;

/// Changes of limits that nobody has collected yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Of the row itself.
    pub(crate) own: u64,
    /// Of groups below it that are gone.
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

    /// What a row begins with.
    const fn at_first(self) -> u64 {
        match self {
            Which::Max | Which::High => COUNTER_MAX,
            Which::Low | Which::Min => 0,
        }
    }

    /// What a limit adds to the seal.
    const fn seal(self, limit: u64) -> u64 {
        let place = (self as u64 + 1).wrapping_mul(GOLDEN);
        (mixed(limit.wrapping_add(place)) ^ mixed(self.at_first().wrapping_add(place))) & SEAL
    }
}

/// 2^64 over the golden ratio: its multiples fall evenly.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number in which each bit of a word counts (the finisher of Steele, Lea and Flood's SplitMix64).
pub(crate) const fn mixed(word: u64) -> u64 {
    let mixed = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A change that is under way.
#[must_use = "the change ends when this is dropped"]
pub(super) struct UnderWay<'c>(&'c PageCounter);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // (The models leave it out: it decides nothing but what damage is.) Release: as in `note_change`.
        #[cfg(not(loom))]
        self.0.hot.changes.fetch_sub(UNDER_WAY, Ordering::Release);
    }
}

impl PageCounter {
    /// How often its limits were changed.
    pub(crate) fn changes(&self) -> u64 {
        self.hot.changes.load(Ordering::Relaxed) & COUNT
    }

    /// Changes a limit by `exchange`, which says what it was and is now, or that it was not changed (`None`). It stores
    /// with Release. Says whether the limit is another one than before. Async-signal-safe.
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
        // Release, partner of the first Acquire in `are_limits_sealed`: who sees the new seal sees the limit.
        let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, ended);
        self.hot.uncollected.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A change is under way until this is dropped. Lowering the max reserves up to all units that there are, which is so
    /// much that it would be taken for damage otherwise.
    pub(super) fn begin_change(&self) -> UnderWay<'_> {
        #[cfg(not(loom))]
        self.hot.changes.fetch_add(UNDER_WAY, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Whether a change is under way. An Acquire fence before this is the partner of the AcqRel exchange with which a
    /// change reserves: who saw the reservation sees the change.
    pub(super) fn is_change_under_way(&self) -> bool {
        self.hot.changes.load(Ordering::Relaxed) >= UNDER_WAY
    }

    /// Sets high, low or min. Says whether it is another one than before. Async-signal-safe.
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

    /// Whether the limits are those that were set. Also `true` while one is being changed.
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
        // Partner of the Release with which a limit is stored: who read a new one sees that its change is, or was, under
        // way.
        crate::sync::fence(Ordering::Acquire);
        let after = self.hot.changes.load(Ordering::Relaxed);
        before != after || before >> SEAL_SHIFT & SEAL == seal
    }

    /// What was not collected yet.
    pub(crate) fn uncollected(&self) -> Changes {
        Changes::of(self.hot.uncollected.load(Ordering::Relaxed))
    }

    /// Takes that out.
    pub(crate) fn take_uncollected(&self) -> Changes {
        if self.hot.uncollected.load(Ordering::Relaxed) == 0 {
            return Changes::default();
        }
        Changes::of(self.hot.uncollected.swap(0, Ordering::Relaxed))
    }

    /// Adds what another row did not collect. Says `true` if so much waits here that it is to be collected at once.
    pub(crate) fn add_changes(&self, more: Changes) -> bool {
        let added = more.own | more.below << BELOW_SHIFT;
        let word = self.hot.uncollected.fetch_add(added, Ordering::Relaxed).wrapping_add(added);
        Changes::of(word).below.max(Changes::of(word).own) > MANY
    }

    /// The word of a row that has this max.
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
        // A value that moved from one limit to another.
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

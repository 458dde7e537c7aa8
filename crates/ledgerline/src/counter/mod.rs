//! The page counter: one row's total and its limits. `walk.rs` walks the counters from a row to the root.
//!
//! It is lockless. A unit is whatever the ledger counts. Two words make up the total:
//!
//! * `reserved` is the requested total. A request adds to it, and is accepted if the sum is within the limit; otherwise
//!   it takes the addition back at once. So the accepted total never exceeds max, except by
//!   [`force_reserve`](PageCounter::force_reserve), which may go over.
//! * `usage` is the granted total. It grows once every level has accepted. So `usage <= reserved` at every instant, and
//!   a request that fails half-way never shows in `usage`.
//!
//! The kernel's counter adds to a single word and undoes that on a refusal. In comparison, two words give:
//!
//! * **I1 no overrun**: `usage <= accepted <= max` at every instant.
//! * **I2 no false refusal**: a request is refused only after `usage + n > max` was *seen*. If only another walk's
//!   reservation stands in the way, whether accepted or about to be taken back, the caller waits until that walk ends,
//!   a few instructions later. The wait is bounded, since the other walk may belong to the thread that this signal
//!   handler interrupted, or to a process that was killed. Only then is a request refused without `usage + n > max`.
//! * **I6 true watermarks**: the watermark follows `usage`, so a request that was taken back never raises it. It
//!   includes the units that lie idle in the cells. A second one, `lower_watermark`, follows the part that was
//!   certainly not idle.
//! * **I7 no surprises**: an uncharge of more than the counter holds changes nothing and is reported. Sums cannot wrap:
//!   a counter passes [`COUNTER_MAX`] at most by the concurrent requests, of up to 2^32 units each.
//!
//! Walks add to the words first and check afterwards, so that many CPUs can walk one group. Each protocol has its file:
//! `reserve`, `grant`, `limit`, `life`. `idle` bounds the idle units, and `watermark` keeps the highest usage.

pub(crate) mod moves;
pub(crate) mod walk;

pub(crate) mod changes;
mod grant;
mod idle;
mod life;
mod limit;
mod reserve;
mod stuck;
mod watermark;

pub(crate) use idle::Tally;
#[cfg(not(loom))]
pub(crate) use idle::Unallowed;
pub(crate) use limit::NotSet;
pub(crate) use reserve::NotReserved;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use stuck::Stuck;

/// The maximum of counters and limits. 2^62 bytes are 4 EiB.
pub(crate) const COUNTER_MAX: u64 = 1 << 62;
/// No word of a counter passes this: all walks together add less than the difference ahead of the check (`reserve.rs`).
/// If a word does, another program wrote over it.
pub(crate) const IMPOSSIBLE: u64 = COUNTER_MAX + (1 << 54);

/// The words that every walk writes, alone on their cache line.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Hot {
    reserved: AtomicU64,
    usage: AtomicU64,
    /// The lower bound of the watermark (`watermark.rs`).
    lower_watermark: AtomicU64,
    /// The lower bound of the highest usage before the watermarks were restarted for one reader (`watermark.rs`).
    /// Seldom written.
    least_before: AtomicU64,
    /// Reservations that stand in the way of walks and do not go away (`stuck.rs`).
    stuck: Stuck,
    stuck_in_flight: Stuck,
    /// How often the limits were changed, and their seal (`changes.rs`). Written only when a limit changes.
    changes: AtomicU64,
    /// How many changes of this row, and of removed groups below it, no reader has collected yet (`changes.rs`).
    uncollected: AtomicU64,
}

/// The words that are written occasionally. They lie on the line beside the hot words, since the same CPUs write both:
/// the pair of lines that a CPU fetches together is written together.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Track {
    watermark: AtomicU64,
    /// The upper bound that belongs to `least_before`.
    most_before: AtomicU64,
    /// `max` events: charges that met this level's limit (refused, or forced over it).
    pub(crate) max_events: AtomicU64,
    /// `high` events: walks that ended above this level's high.
    pub(crate) high_events: AtomicU64,
    /// Sum of the caps of the cells below. The cells of this subtree hold no more units than this.
    pub(crate) prepaid: Tally,
    /// Drains of this subtree in progress: no cell below gets a cap while there is one.
    pub(crate) draining: AtomicU32,
    /// How small the caps of the cells below are made (`idle.rs`).
    cap_shift: AtomicU32,
    /// Idle units in flight between the counters and a cell. `usage` includes them already, or still, and they belong
    /// to no charge.
    pub(crate) in_flight: Tally,
    /// Belongs to the row, not the counter: which columns have its statistics (`table/row.rs`).
    pub(crate) statistics: AtomicU64,
}

/// The words that a walk only reads.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Limits {
    max: AtomicU64,
    pub(crate) high: AtomicU64,
    pub(crate) low: AtomicU64,
    pub(crate) min: AtomicU64,
}

/// One level of the hierarchy.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct PageCounter {
    hot: Hot,
    pub(crate) track: Track,
    pub(crate) limits: Limits,
}

impl PageCounter {
    #[cfg(loom)]
    pub(crate) fn new(max: u64) -> Self {
        let (changes, high) = (PageCounter::sealed(max), AtomicU64::new(COUNTER_MAX));
        PageCounter {
            hot: Hot { changes, ..Hot::default() },
            track: Track::default(),
            limits: Limits { max: AtomicU64::new(max), high, ..Limits::default() },
        }
    }

    /// Makes an empty row ready for its next group; [`open`](Self::open) lets charges in. `draining` and `in_flight`
    /// stay: the threads that raised them for the row's last group lower them. `reserved` and `usage` stay as well:
    /// they hold only what a late walk is about to take back.
    pub(crate) fn reset(&self) {
        for word in [
            &self.track.watermark,
            &self.track.most_before,
            &self.track.max_events,
            &self.track.high_events,
            &self.hot.least_before,
            &self.hot.changes,
            &self.hot.uncollected,
            &self.limits.low,
            &self.limits.min,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.track.cap_shift.store(0, Ordering::Relaxed);
        self.hot.stuck.forget();
        self.hot.stuck_in_flight.forget();
        self.track.prepaid.take_all();
        self.reset_lower_watermark();
        self.limits.max.store(COUNTER_MAX, Ordering::Relaxed);
        self.limits.high.store(COUNTER_MAX, Ordering::Relaxed);
    }

    /// Returns whether a word holds a value that no walk leaves there, so that another program must have written over
    /// it. An overwritten word with a plausible value is not noticed, unless it is a limit.
    pub(crate) fn is_damaged(&self) -> bool {
        let Track { watermark, most_before, max_events, high_events, .. } = &self.track;
        let Limits { high, low, min, .. } = &self.limits;
        let any_above = |words: &[&AtomicU64], most: u64| {
            words.iter().any(|word| word.load(Ordering::Relaxed) > most)
        };
        is_impossible(self.hot.usage.load(Ordering::Relaxed))
            || self.pending() > IMPOSSIBLE
            || any_above(&[watermark, most_before, max_events, high_events], IMPOSSIBLE)
            || any_above(&[&self.hot.least_before], IMPOSSIBLE)
            || self.max_as_set() > COUNTER_MAX
            || any_above(&[high, low, min], COUNTER_MAX)
            || !self.are_limits_sealed()
    }

    /// Adds the events of another counter to this one's.
    pub(crate) fn inherit_events(&self, from: &PageCounter) {
        for (to, from) in [
            (&self.track.max_events, &from.track.max_events),
            (&self.track.high_events, &from.track.high_events),
        ] {
            to.fetch_add(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        self.add_changes(from.take_uncollected());
    }

    /// Counts a refusal by this level.
    pub(crate) fn count_refusal(&self) {
        self.track.max_events.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    // Words are grouped into lines by their writers. The hot words lie alone. The neighbour line, which the same CPUs
    // write, holds the words written occasionally. The limits lie 128 bytes away, since CPUs fetch lines in pairs.
    assert!(offset_of!(PageCounter, hot) == 0);
    assert!(offset_of!(PageCounter, track) == 64);
    assert!(offset_of!(PageCounter, limits) == 128);
    assert!(size_of::<Hot>() == 64 && size_of::<Track>() == 64);
};

/// An uncharge of more than the counter holds; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Underflow;

/// Returns whether no walk leaves this value in `usage`. It may be below zero for a moment, by as much as walks
/// subtract ahead of the check.
const fn is_impossible(word: u64) -> bool {
    word > IMPOSSIBLE && word < (IMPOSSIBLE - COUNTER_MAX).wrapping_neg()
}

/// Replaces `old` by `new` if the word still holds `old`. May fail spuriously: the caller reads again.
#[inline]
fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Returns a word of `usage` as a number of units: zero if it is negative.
const fn at_least_zero(word: u64) -> u64 {
    if word >> 63 == 0 { word } else { 0 }
}

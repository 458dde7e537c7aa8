//! Reads counters: approximately, with a bound, from the totals alone, or exactly from all CPUs.

use super::counters::Counters;
use super::items::Item;
use super::layout::View;
use super::places::PlaceId;
use super::width::{Width, sealed::Difference};
use crate::sync::{Ordering, PATIENCE, fence, wait_a_turn};

/// A reading of a total, without the differences that CPUs keep back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The total; zero if it is negative.
    pub value: u64,
    /// The most by which the true value differs if no update is in flight and the true value is not
    /// negative. It is the sum of CPUs times threshold over this place and all below it. The bound is
    /// tight: every CPU may keep back exactly its threshold. `i64` keeps nothing back.
    pub bound: u64,
}

/// How often values were clamped since the table was made. Values never wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clamps {
    /// How many readings of a value below zero were returned as zero.
    pub below_zero: u64,
    /// How many additions a total took only in part. Each of its stripes ends at ±2^60.
    pub saturated: u64,
}

impl<I: Item, W: Width> Counters<I, W> {
    /// Returns the totals of the place and of all below it, up to four loads each, and the bound on the
    /// error. With `i64` there is no threshold, so all CPUs are added up and the bound is zero.
    ///
    /// With updates in flight, add to the bound the amount that each of their threads carries at that
    /// moment: at most its own amount plus one and a half thresholds. Async-signal-safe.
    pub fn approximate(&self, place: PlaceId, item: I) -> Reading {
        if !W::BOUNDED {
            return Reading { value: self.snapshot(place, item), bound: 0 };
        }
        let place = self.check(place);
        let item = Self::check_item(item);
        let total = |&place: &u32| self.view.total_sum(W::KIND, place as usize, item);
        let sum = self.below[place].iter().map(|place| i128::from(total(place))).sum();
        Reading { value: self.clamp(within(sum)), bound: self.bound(place) }
    }

    /// Returns the total and all differences, clamped at zero, as printers show it. It is as exact as
    /// [`precise`](Self::precise).
    pub fn snapshot(&self, place: PlaceId, item: I) -> u64 {
        self.clamp(self.precise(place, item))
    }

    /// Returns the total and all differences. It is exact if no writer is active, even during a fold;
    /// otherwise it is off by the updates in flight during the call. It is not clamped, except at the ends
    /// of `i64`. It costs a load for each CPU and place below. Async-signal-safe.
    pub fn precise(&self, place: PlaceId, item: I) -> i64 {
        let (place, item) = (self.check(place), Self::check_item(item));
        let view = &self.view;
        // `add_up` is inlined here: a call takes as long as reading two CPUs.
        match try_steady(view, || add_up::<W>(view, place, &self.below[place], item)) {
            (sum, true) => within(sum),
            _ => self.precise_at_last(place, item),
        }
    }

    /// Reads after a fold got in the way.
    #[cold]
    fn precise_at_last(&self, place: usize, item: usize) -> i64 {
        let (view, below) = (&self.view, &self.below[place]);
        within(steady(view, PATIENCE, || add_up::<W>(view, place, below, item)).0)
    }

    /// Returns the threshold of a place: how far a CPU's difference may be from zero; 0 for `i64`.
    pub fn threshold(&self, place: PlaceId) -> u32 {
        self.view.place(self.check(place)).threshold.load(Ordering::Relaxed)
    }

    /// Returns how often values were clamped so far.
    pub fn clamps(&self) -> Clamps {
        let header = self.view.header();
        Clamps {
            below_zero: header.below_zero.load(Ordering::Relaxed),
            saturated: header.saturated.load(Ordering::Relaxed),
        }
    }

    pub(super) fn bound(&self, place: usize) -> u64 {
        let below = self.view.place(place).below.load(Ordering::Relaxed);
        below * u64::from(self.view.layout.columns)
    }

    fn clamp(&self, value: i64) -> u64 {
        u64::try_from(value).unwrap_or_else(|_| {
            self.view.header().below_zero.fetch_add(1, Ordering::Relaxed);
            0
        })
    }
}

/// Adds up the totals and differences of a place and those below it. `below` includes the place itself.
#[inline(always)]
fn add_up<W: Difference>(view: &View, place: usize, below: &[u32], item: usize) -> i128 {
    let here =
        |place| i128::from(view.total_sum(W::KIND, place, item)) + row::<W>(view, place, item);
    // Most places have none below them. A loop of one iteration takes longer than reading two CPUs.
    if below.len() == 1 {
        return here(place);
    }
    below.iter().map(|&place| here(place as usize)).sum()
}

/// Clamps a sum at the ends of an `i64`.
#[inline(always)]
fn within(sum: i128) -> i64 {
    #[cold]
    fn end(negative: bool) -> i64 {
        if negative { i64::MIN } else { i64::MAX }
    }
    i64::try_from(sum).unwrap_or_else(|_| end(sum < 0))
}

/// Adds up the differences of one item at one place over all columns.
#[inline(always)]
pub(super) fn row<W: Difference>(view: &View, place: usize, item: usize) -> i128 {
    let layout = &view.layout;
    let mut at = view.block(0, place).wrapping_add(View::offset(W::KIND, item));
    let mut sum = 0;
    for _ in 0..layout.columns {
        // SAFETY: a live difference of the next column (S1).
        sum += i128::from(unsafe { W::load(at) });
        at = at.wrapping_add(layout.stride);
    }
    sum
}

/// Reads while no fold moves differences to the totals. Returns whether that succeeded. It waits at most
/// `patience` turns for a fold to end: this signal handler may have interrupted the fold, or the fold's
/// process may be dead.
#[inline(always)]
pub(super) fn steady<T>(view: &View, patience: u32, read: impl Fn() -> T) -> (T, bool) {
    match try_steady(view, &read) {
        (value, true) => (value, true),
        _ => steady_at_last(view, patience, &read),
    }
}

#[inline(always)]
fn try_steady<T>(view: &View, read: impl Fn() -> T) -> (T, bool) {
    let sequence = &view.header().sequence;
    // Acquire, partner of the Release at the end of a fold: everything that the fold moved is seen.
    let before = sequence.load(Ordering::Acquire);
    let value = read();
    // Partner of the fence at the start of a fold: a reader that read something that the fold moved sees
    // that the fold has begun.
    fence(Ordering::Acquire);
    (value, before.is_multiple_of(2) && sequence.load(Ordering::Relaxed) == before)
}

#[cold]
fn steady_at_last<T>(view: &View, patience: u32, read: &dyn Fn() -> T) -> (T, bool) {
    for turn in 0..patience {
        wait_a_turn(turn);
        if view.header().sequence.load(Ordering::Relaxed).is_multiple_of(2)
            && let (value, true) = try_steady(view, read)
        {
            return (value, true);
        }
    }
    try_steady(view, read)
}

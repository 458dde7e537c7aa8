//! The holdings of one group over time, in bounded memory: fine for recent time, coarser with age.
//!
//! ```text
//! levels       slots of one length each, on a grid that starts at zero
//!   finest     ....................  step
//!   next       ....................  step × 4
//!   ...
//!   coarsest   ....................  step × 4^(levels - 1), doubled whenever this level is full
//!
//! push:        the newest slot takes the sample, or a new one begins
//! full level:  its oldest slots that share one slot of the next level become that slot
//! ```
//!
//! A slot moves up together with all its neighbours of the coarser grid. So the slots of all levels are in the order of
//! time, and overlap only if the coarsest slots became longer. A merged slot keeps the minimum, the maximum, the last
//! value, and the sums of the counts: no count is lost, however old it is.

use std::time::Duration;

/// The number of levels; each but the last has slots four times as long as the one before.
const LEVELS: usize = 5;
/// The number of slots of one level that make one of the next.
const RATIO: u64 = 4;
/// With fewer slots a level could not hand over some and keep the newest.
const LEAST_SLOTS: usize = 8;
/// An hour, in nanoseconds.
const LONGEST_STEP: u64 = 3_600_000_000_000;

/// The holdings of one group over time: the newest steps one by one, older time in coarser points.
///
/// ```
/// use ledgerline_view::watch::Series;
/// use std::time::Duration;
///
/// let mut series = Series::new(Duration::from_secs(1), 100);
/// for second in 0..10_000 {
///     series.push(Duration::from_secs(second), second * 4096, 1, 0);
/// }
/// let points = series.points();
/// assert!(points.len() <= 100);
/// assert_eq!(points.iter().map(|point| point.refused).sum::<u64>(), 10_000);
/// assert_eq!(points.last().unwrap().last, 9_999 * 4096);
/// ```
#[derive(Clone, Debug)]
pub struct Series {
    levels: [Level; LEVELS],
    /// The most slots of each level.
    most: usize,
}

/// The holdings of a group in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The start, by the clock of the samples.
    pub start: Duration,
    /// The length.
    pub length: Duration,
    /// The smallest value that was seen.
    pub least: u64,
    /// The largest value that was seen, or [known](Series::raise) to have been held.
    pub most: u64,
    /// The last value that was seen.
    pub last: u64,
    /// The refusals.
    pub refused: u64,
    /// The units that caches gave back.
    pub reclaimed: u64,
}

impl Point {
    /// Returns the end.
    pub fn end(&self) -> Duration {
        self.start.saturating_add(self.length)
    }
}

#[derive(Clone, Debug)]
struct Level {
    /// The length of a slot, in nanoseconds.
    length: u64,
    /// The number of times that the slots' length was doubled; only the coarsest level's is.
    doubled: u32,
    slots: Vec<Slot>,
}

/// A point in storage: 48 bytes.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The number of the slot in its level's grid.
    number: u64,
    least: u64,
    most: u64,
    last: u64,
    refused: u64,
    reclaimed: u64,
}

impl Series {
    /// Makes a series whose newest points are `step` long each, and which never has more than `points`, or 40 if that
    /// is more. A step is limited to between a nanosecond and an hour.
    ///
    /// Takes at most 48 bytes per point and some 200 for itself, and little of that before it has points.
    pub fn new(step: Duration, points: usize) -> Series {
        let step = nanoseconds(step).clamp(1, LONGEST_STEP);
        let mut length = step;
        let levels = [(); LEVELS].map(|()| {
            let level = Level { length, doubled: 0, slots: Vec::new() };
            length = length.saturating_mul(RATIO);
            level
        });
        Series { levels, most: (points / LEVELS).max(LEAST_SLOTS) }
    }

    /// Adds a sample: the holding at a time, and the refusals and reclaimed units since the previous sample. A clock
    /// that goes back counts as standing still. Costs some ten nanoseconds, and now and then a pass over a level.
    pub fn push(&mut self, clock: Duration, current: u64, refused: u64, reclaimed: u64) {
        let number = nanoseconds(clock) / self.levels[0].length;
        // After the first sample, the finest level always has a slot, since it never hands over all.
        let newest = self.levels[0].slots.last().map(|slot| slot.number);
        let number = newest.map_or(number, |newest| number.max(newest));
        let slot =
            Slot { number, least: current, most: current, last: current, refused, reclaimed };
        self.add(0, slot);
    }

    /// Raises the newest point's maximum to `most`, if a peak shows that this was held since the last
    /// [`push`](Series::push) but one. Does nothing to an empty series.
    pub fn raise(&mut self, most: u64) {
        if let Some(slot) = self.levels[0].slots.last_mut() {
            slot.most = slot.most.max(most);
        }
    }

    /// Returns all points, the oldest first; none overlap. A time without samples longer than a point is a gap.
    pub fn points(&self) -> Vec<Point> {
        let levels = self.levels.iter().rev();
        let points =
            levels.flat_map(|level| level.slots.iter().map(|slot| slot.point(level.length)));
        let mut points: Vec<Point> = points.collect();
        // A slot that became longer may overlap time that finer slots still cover.
        let mut next = Duration::MAX;
        for point in points.iter_mut().rev() {
            point.length = point.length.min(next - point.start);
            next = point.start;
        }
        points
    }

    /// Returns the maximum of all points; 0 for an empty series.
    pub fn most(&self) -> u64 {
        let slots = self.levels.iter().flat_map(|level| &level.slots);
        slots.map(|slot| slot.most).max().unwrap_or(0)
    }

    /// Returns whether no sample was added yet.
    pub fn is_empty(&self) -> bool {
        self.levels[0].slots.is_empty()
    }

    /// Returns the bytes that the points take now.
    pub fn footprint(&self) -> usize {
        self.levels.iter().map(|level| level.slots.capacity() * size_of::<Slot>()).sum()
    }

    /// Adds a slot, which is not older than any of its level.
    fn add(&mut self, at: usize, mut slot: Slot) {
        let most = self.most;
        let level = &mut self.levels[at];
        slot.number >>= level.doubled;
        if level.takes(slot) {
            return;
        }
        if level.slots.len() == most && at + 1 < LEVELS {
            self.hand_over(at);
        }
        let level = &mut self.levels[at];
        while level.slots.len() == most {
            level.double();
            slot.number /= 2;
        }
        // The newest slot and this one may just have become one.
        if level.takes(slot) {
            return;
        }
        if level.slots.len() == level.slots.capacity() {
            // Doubling could exceed the promised memory.
            let more = level.slots.len().max(LEAST_SLOTS).min(most - level.slots.len());
            level.slots.reserve_exact(more);
        }
        level.slots.push(slot);
    }

    /// Hands the oldest slots of a level to the next: all that share one there.
    fn hand_over(&mut self, at: usize) {
        let level = &mut self.levels[at];
        let coarser = level.slots[0].number / RATIO;
        let many = level.slots.iter().take_while(|slot| slot.number / RATIO == coarser).count();
        let mut moved = level.slots.drain(..many);
        let Some(mut whole) = moved.next() else { return };
        moved.for_each(|slot| whole.take(slot));
        whole.number = coarser;
        self.add(at + 1, whole);
    }
}

impl Level {
    /// Merges `slot` into the newest slot if it is the same one; returns whether it was.
    fn takes(&mut self, slot: Slot) -> bool {
        match self.slots.last_mut() {
            Some(newest) if newest.number == slot.number => {
                newest.take(slot);
                true
            }
            _ => false,
        }
    }

    /// Makes slots twice as long.
    fn double(&mut self) {
        self.doubled += 1;
        self.length = self.length.saturating_mul(2);
        self.slots.iter_mut().for_each(|slot| slot.number /= 2);
        self.slots.dedup_by(|later, earlier| {
            let same = later.number == earlier.number;
            if same {
                earlier.take(*later);
            }
            same
        });
    }
}

impl Slot {
    /// Merges a later slot.
    fn take(&mut self, later: Slot) {
        self.least = self.least.min(later.least);
        self.most = self.most.max(later.most);
        self.last = later.last;
        self.refused = self.refused.saturating_add(later.refused);
        self.reclaimed = self.reclaimed.saturating_add(later.reclaimed);
    }

    fn point(&self, length: u64) -> Point {
        Point {
            start: Duration::from_nanos(self.number.saturating_mul(length)),
            length: Duration::from_nanos(length),
            least: self.least,
            most: self.most,
            last: self.last,
            refused: self.refused,
            reclaimed: self.reclaimed,
        }
    }
}

/// A clock reaches 2^64 nanoseconds after 584 years.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

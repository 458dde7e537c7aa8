//! What one group held over time, in bounded memory: finer for what is recent, coarser with age.
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
//! A slot moves up together with all its neighbours of the coarser grid, so the slots of all levels stand in the order of
//! time, and overlap only where the coarsest slots became longer. A slot that is merged keeps the least and the most of what it stands for, the last value,
//! and the sums of what was counted: nothing that was counted is lost, however old it is.

use std::time::Duration;

/// How many levels there are; each but the last has slots four times as long as the one before.
const LEVELS: usize = 5;
/// How many slots of one level make one of the next.
const RATIO: u64 = 4;
/// With fewer slots a level could not hand over some and keep the newest.
const LEAST_SLOTS: usize = 8;
/// An hour, in nanoseconds.
const LONGEST_STEP: u64 = 3_600_000_000_000;

/// What one group held over time: the newest steps one by one, older time in coarser points.
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
    /// Slots of each level at most.
    most: usize,
}

/// What a group did in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When it begins, by the clock of the samples.
    pub start: Duration,
    /// How long it is.
    pub length: Duration,
    /// The least that was seen in it.
    pub least: u64,
    /// The most that was seen, or [known](Series::raise) to have been held, in it.
    pub most: u64,
    /// What was seen last in it.
    pub last: u64,
    /// Refusals in it.
    pub refused: u64,
    /// Units in it that caches gave back.
    pub reclaimed: u64,
}

impl Point {
    /// When it ends.
    pub fn end(&self) -> Duration {
        self.start.saturating_add(self.length)
    }
}

#[derive(Clone, Debug)]
struct Level {
    /// Of a slot, in nanoseconds.
    length: u64,
    /// How often slots became twice as long as they were; only those of the coarsest level do.
    doubled: u32,
    slots: Vec<Slot>,
}

/// A point, as it is kept: 48 bytes.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Which slot of its level's grid it is.
    number: u64,
    least: u64,
    most: u64,
    last: u64,
    refused: u64,
    reclaimed: u64,
}

impl Series {
    /// A series whose newest points are `step` long each, and which never has more than `points`, or 40 if that is more.
    /// A step is a nanosecond at least and an hour at most.
    ///
    /// Takes at most 48 bytes a point and some 200 for itself, little of it before it has points.
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

    /// Notes what is held at a time, and what was refused and reclaimed since the time before. A clock that goes back
    /// is taken to stand still. Costs some ten nanoseconds, and now and then a pass over a level.
    pub fn push(&mut self, clock: Duration, current: u64, refused: u64, reclaimed: u64) {
        let number = nanoseconds(clock) / self.levels[0].length;
        // (Once there was a sample, the finest level has a slot: it never hands over all.)
        let newest = self.levels[0].slots.last().map(|slot| slot.number);
        let number = newest.map_or(number, |newest| number.max(newest));
        let slot =
            Slot { number, least: current, most: current, last: current, refused, reclaimed };
        self.add(0, slot);
    }

    /// Says that at some time since the last but one [`push`](Series::push) as much as `most` was held, as a peak that
    /// rose shows. Does nothing to an empty series.
    pub fn raise(&mut self, most: u64) {
        if let Some(slot) = self.levels[0].slots.last_mut() {
            slot.most = slot.most.max(most);
        }
    }

    /// All points, the oldest first; none overlap. Where nothing was pushed for longer than a point there is a gap.
    pub fn points(&self) -> Vec<Point> {
        let levels = self.levels.iter().rev();
        let points =
            levels.flat_map(|level| level.slots.iter().map(|slot| slot.point(level.length)));
        let mut points: Vec<Point> = points.collect();
        // A slot that became longer may reach into time of which finer slots still tell.
        let mut next = Duration::MAX;
        for point in points.iter_mut().rev() {
            point.length = point.length.min(next - point.start);
            next = point.start;
        }
        points
    }

    /// The most of all points; 0 of an empty series.
    pub fn most(&self) -> u64 {
        let slots = self.levels.iter().flat_map(|level| &level.slots);
        slots.map(|slot| slot.most).max().unwrap_or(0)
    }

    /// Whether nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.levels[0].slots.is_empty()
    }

    /// Bytes that the points take now.
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
        // (The newest slot and this one may just have become one.)
        if level.takes(slot) {
            return;
        }
        if level.slots.len() == level.slots.capacity() {
            // (Doubling could end beyond what is promised.)
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
    /// Whether the newest slot is the one that `slot` belongs to, and took it.
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
    /// Takes in what came after it.
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

/// (A clock reaches 2^64 nanoseconds after 584 years.)
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

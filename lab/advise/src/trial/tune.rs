//! Makes an operation alone take the time of the profile.
//!
//! Reading a list takes time that the program does not need. So a list is timed alone, on memory that no other thread
//! uses, and its work is shortened until a pass takes the time of its work and its accesses without the list. If no
//! work is left to shorten, the pass is too short for a faithful replay, and the result records that.

use std::hint::black_box;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::trial::acts::{Act, sums};
use crate::trial::play::{Actor, Block, Op, chain, ready};

/// The length of one measurement.
const STRETCH: Duration = Duration::from_micros(300);
/// The number of measurements. The fastest counts, since disturbances only add time.
const STRETCHES: usize = 5;
/// Most corrections of the work.
const CORRECTIONS: usize = 5;
/// A pass whose error is below this share has the right length.
const CLOSE: f64 = 0.003;

/// The times of a list's parts on this machine, in nanoseconds, on lines that no other CPU uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// A multiplication of a chain.
    multiplication: f64,
    /// A load that is waited for.
    awaited: f64,
    /// Another load, or a store.
    passing: f64,
    /// An atomic addition.
    add: f64,
}

/// A list whose passes are as close to the wanted time as possible.
#[derive(Clone, Debug)]
pub(crate) struct Tuned {
    pub(crate) ops: Vec<Op>,
    /// The wanted time of a pass alone, in nanoseconds.
    pub(crate) wanted: f64,
    /// Its actual time.
    pub(crate) taken: f64,
}

impl Pace {
    pub(crate) fn measure() -> Pace {
        let bytes: [AtomicU8; 64] = std::array::from_fn(|_| AtomicU8::new(0));
        let bytes = black_box(&bytes);
        let zero = black_box(0);
        let turns = 1000;
        let each = |of: &dyn Fn() -> u64| {
            let passes = |passes| {
                for _ in 0..passes {
                    black_box(of());
                }
            };
            fastest(passes) / f64::from(turns)
        };
        let relaxed = Ordering::Relaxed;
        Pace {
            multiplication: each(&|| chain(black_box(1), turns)),
            awaited: each(&|| {
                (0..turns).fold(0, |at, _| u64::from(bytes[(at & zero) as usize].load(relaxed)))
            }),
            passing: each(&|| {
                // One load and one store for each turn.
                let both = |sum: u64, _| {
                    bytes[9].store(1, relaxed);
                    sum.wrapping_add(u64::from(bytes[0].load(relaxed)))
                };
                (0..turns).fold(0, both)
            }) / 2.0,
            add: each(&|| (0..turns).fold(0, |_, _| u64::from(bytes[0].fetch_add(1, relaxed)))),
        }
    }

    /// Returns the wanted time of a pass alone.
    pub(crate) fn wanted(&self, acts: &[Act]) -> f64 {
        let sums = sums(acts);
        sums.work + sums.awaited * self.awaited + sums.passing * self.passing + sums.adds * self.add
    }

    /// Tunes a list to the wanted time. `extent` is the end of the bytes that it accesses.
    pub(crate) fn tune(&self, acts: &[Act], extent: usize) -> Tuned {
        let wanted = self.wanted(acts);
        let block = Block::new(extent);
        let alone = |part: f64| {
            // Other lines than the touched ones are evicted: fetching those again is not part of reading a list.
            let ops = ready(acts, part / self.multiplication, false);
            let mut actor = Actor::new(0, vec![0]);
            let taken = fastest(|passes| actor.play(&ops, &block, passes));
            Tuned { ops: ready(acts, part / self.multiplication, true), wanted, taken }
        };
        let work = sums(acts).work;
        let (mut part, mut best) = (1.0, alone(1.0));
        for _ in 0..CORRECTIONS {
            let over = best.taken - wanted;
            if over.abs() <= CLOSE * wanted || work == 0.0 || (part == 0.0 && over > 0.0) {
                break;
            }
            // A nanosecond less of work shortens the pass by at most a nanosecond.
            part = (part - over / work).max(0.0);
            let next = alone(part);
            if (next.taken - wanted).abs() >= over.abs() {
                break;
            }
            best = next;
        }
        best
    }
}

impl Tuned {
    /// Returns by which share a pass is too long.
    pub(crate) fn excess(&self) -> f64 {
        self.taken / self.wanted.max(f64::MIN_POSITIVE) - 1.0
    }
}

/// Returns the time of a pass in the fastest of some measurements, in nanoseconds.
fn fastest(mut play: impl FnMut(u64)) -> f64 {
    let mut passes = 1;
    let mut time = |passes| {
        let start = Instant::now();
        play(passes);
        start.elapsed()
    };
    while time(passes) < STRETCH {
        passes *= 2;
    }
    let stretches = (0..STRETCHES).map(|_| time(passes).as_nanos() as f64 / passes as f64);
    stretches.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(ns: f64) -> Tuned {
        let acts = [
            Act::Work { ns, spread: 0.1 },
            Act::Load { at: 0, awaited: true },
            Act::Sometimes { chance: 0.1, count: 1 },
            Act::Add { at: 64 },
        ];
        Pace::measure().tune(&acts, 128)
    }

    #[test]
    fn an_operation_alone_takes_what_it_should() {
        // Other programs may have the CPU for a while: one good try is enough.
        let good = |ns| (0..20).map(|_| tuned(ns)).any(|tuned| tuned.excess().abs() < 0.05);
        assert!([30.0, 100.0, 1000.0].into_iter().all(good));
    }

    #[test]
    fn what_is_too_short_is_as_short_as_it_can_be_and_says_so() {
        let acts = [
            Act::Sometimes { chance: 0.5, count: 0 },
            Act::Work { ns: 0.1, spread: 0.1 },
            Act::Sometimes { chance: 0.5, count: 0 },
        ];
        assert!(Pace::measure().tune(&acts, 1).excess() > 1.0);
    }
}

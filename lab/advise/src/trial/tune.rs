//! Makes an operation alone take what the profile says.
//!
//! Whoever reads a list takes time that the program does not take. So a list is timed alone, where nobody shares its
//! memory, and its work is shortened until a pass takes what its work and its accesses take without a list. Where no
//! work is left to shorten, the pass is too short to be replayed faithfully, and that is said.

use std::hint::black_box;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::trial::acts::{Act, sums};
use crate::trial::play::{Actor, Block, Op, chain, ready};

/// A stretch of timing.
const STRETCH: Duration = Duration::from_micros(300);
/// Stretches, of which the fastest counts: nothing but the work itself takes no longer than it must.
const STRETCHES: usize = 5;
/// How often the work is corrected.
const CORRECTIONS: usize = 5;
/// A pass that is off by this share is as long as it should be.
const CLOSE: f64 = 0.003;

/// What this machine takes for what lists are made of, in nanoseconds, on lines that nobody else uses.
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

/// A list whose passes are as long as they can be made.
#[derive(Clone, Debug)]
pub(crate) struct Tuned {
    pub(crate) ops: Vec<Op>,
    /// What a pass should take alone, in nanoseconds.
    pub(crate) wanted: f64,
    /// What it takes.
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
                // A load and a store a turn.
                let both = |sum: u64, _| {
                    bytes[9].store(1, relaxed);
                    sum.wrapping_add(u64::from(bytes[0].load(relaxed)))
                };
                (0..turns).fold(0, both)
            }) / 2.0,
            add: each(&|| (0..turns).fold(0, |_, _| u64::from(bytes[0].fetch_add(1, relaxed)))),
        }
    }

    /// What a pass should take alone.
    pub(crate) fn wanted(&self, acts: &[Act]) -> f64 {
        let sums = sums(acts);
        sums.work + sums.awaited * self.awaited + sums.passing * self.passing + sums.adds * self.add
    }

    /// Makes a list take that. `extent` is how far its accesses reach.
    pub(crate) fn tune(&self, acts: &[Act], extent: usize) -> Tuned {
        let wanted = self.wanted(acts);
        let block = Block::new(extent);
        let alone = |part: f64| {
            // What leaves the first cache is not what is touched: fetching that again is no part of reading a list.
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
            // A nanosecond less of work makes the pass a nanosecond shorter, or less.
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
    /// How much longer than it should be a pass is, as a share.
    pub(crate) fn excess(&self) -> f64 {
        self.taken / self.wanted.max(f64::MIN_POSITIVE) - 1.0
    }
}

/// The time of a pass in the fastest of some stretches, in nanoseconds.
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
        // Others may have the CPU for a while: one good try of some is enough.
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

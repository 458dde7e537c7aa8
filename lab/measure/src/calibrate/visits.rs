//! For how long a line that two CPUs fight for stays where it has come, and what it takes to come.
//!
//! Both change words of one line, and work for themselves between two operations. The value that an operation finds
//! says whether the other came between, so operations are counted by visit. With little work a visit has several
//! operations; from some length of work on the line is gone before the second. That length says how long the CPU that
//! has the line can use it, and how sharply visits change over says how much that differs from visit to visit. With
//! much work each operation fetches the line, and nobody waits for the other.
//!
//! ```text
//! cycle  = the time of a block / the visits of both CPUs       where visits have some operations: the line never rests
//! usable = the work at which half of the visits have no second operation
//! fetch  = an operation's time, less the work, where each is a visit
//! ```
//!
//! Once they add atomically to one word. Once each loads what the other stored, and stores beside it.

use super::team::{Block, Seat};
use super::work::multiply;
use super::world::{Field, Memory, Real, World};
use crate::stats::median;
use std::ops::Range;

/// The work that is tried, in multiplications. The last is longer than any transfer that fits the range of the others.
const TRIED: [usize; 26] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 320];
/// Operations of a CPU in a block.
const OPERATIONS: u64 = 250;
/// Fewer visits say nothing.
const LEAST: u64 = 25;
/// Where visits have so many operations on average, a request for the line waits there all the time.
const LIMITED: Range<f64> = 1.5..4.5;
/// Where nearly every operation is a visit, it has fetched the line.
const FETCHED: f64 = 1.05;

/// What CPUs do to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// They add to one word.
    Atomics,
    /// Each loads the other's word, and stores its own.
    Stores,
}

/// A CPU's part in one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    block: Block,
    visits: u64,
    /// Visits with one operation.
    single: u64,
}

/// What fights for lines came to, in nanoseconds unless said otherwise. Not a number where every try was disturbed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fights {
    /// An operation without work between, their time by all their operations.
    pub(super) contended: f64,
    /// Operations of a visit then.
    pub(super) visit: f64,
    /// From one arrival of a line to the next.
    pub(super) cycle: f64,
    /// How long a CPU can use the line after its first operation.
    pub(super) usable: f64,
    /// By what share of the whole visit that differs, evenly to both sides.
    pub(super) spread: f64,
    /// An operation that fetches the line, beyond the work that follows it.
    pub(super) fetch: f64,
}

/// Fights for each of the lines, with each length of work. By line, the parts by work.
pub(super) fn fight(seat: &Seat<'_>, memory: &Memory, lines: &[Field], how: How) -> Vec<Vec<Part>> {
    match how {
        How::Atomics => fights(seat, memory, lines, |real, line| real.add(line), 1),
        // The other's next value differs by any number. (An own store changes what is loaded of no other word.)
        How::Stores => {
            let (own, other) = (8 * seat.index, 8 * (1 - seat.index));
            let mut stored = 0;
            let operation = |real: &mut Real<'_, 0, true>, line: Field| {
                real.load(Field { offset: other, ..line });
                stored += 1;
                real.put(Field { offset: own, ..line }, stored);
            };
            fights(seat, memory, lines, operation, 0)
        }
    }
}

/// `step` is what an operation adds to the value that the next one of the same visit finds.
#[inline(always)]
fn fights(
    seat: &Seat<'_>,
    memory: &Memory,
    lines: &[Field],
    mut operation: impl FnMut(&mut Real<'_, 0, true>, Field),
    step: u64,
) -> Vec<Vec<Part>> {
    let mut real = Real::<0, true>::new(memory, seat.index);
    let mut part = |line, work: usize| {
        let (mut next, mut moved) = (u64::MAX, false);
        let (mut visits, mut single) = (0, 0);
        // All in registers: an atomic waits for stores before it.
        let block = seat.together(OPERATIONS, || {
            operation(&mut real, line);
            let moves = real.token() != next;
            single += u64::from(moved & moves);
            visits += u64::from(moves);
            moved = moves;
            next = real.token().wrapping_add(step);
            let zero = real.zero();
            real.wait_for(multiply(zero, work));
        });
        Part { block, visits, single }
    };
    lines.iter().map(|&line| TRIED.iter().map(|&work| part(line, work)).collect()).collect()
}

impl Fights {
    /// What two CPUs saw of the same fights; `multiplication` is how long one takes, in nanoseconds.
    pub(super) fn of(one: &[Vec<Part>], other: &[Vec<Part>], multiplication: f64) -> Fights {
        let lines: Vec<Vec<Option<Both>>> = (one.iter().zip(other))
            .map(|(one, other)| one.iter().zip(other).map(|(a, b)| Both::of(a, b)).collect())
            .collect();
        let middle = |values: Vec<f64>| if values.is_empty() { f64::NAN } else { median(&values) };
        let idle = || lines.iter().filter_map(|line| line[0]);
        let limited = lines.iter().flatten().flatten();
        let limited = limited.filter(|both| LIMITED.contains(&both.visit));
        let changes: Vec<[f64; 3]> = lines.iter().filter_map(|line| changes_over(line)).collect();
        let at = |which: usize| middle(changes.iter().map(|change| change[which]).collect());
        let cycle = middle(limited.map(|both| both.nanoseconds).collect());
        let longest = TRIED.len() - 1;
        let fetched = lines.iter().filter_map(|line| line[longest]);
        // Each of the two CPUs has every second visit.
        let fetch = |both: Both| 2.0 * both.nanoseconds - TRIED[longest] as f64 * multiplication;
        Fights {
            contended: middle(idle().map(|both| both.nanoseconds / both.visit).collect()),
            visit: middle(idle().map(|both| both.visit).collect()),
            cycle,
            usable: at(1) * multiplication,
            // From a tenth to nine tenths is 0.8 of the width of what is even.
            spread: ((at(2) - at(0)) * multiplication / 0.8 / cycle).clamp(0.0, 1.0),
            fetch: middle(fetched.filter(|both| both.visit < FETCHED).map(fetch).collect()),
        }
    }
}

/// A block, as both CPUs saw it.
#[derive(Clone, Copy, Debug)]
struct Both {
    /// Nanoseconds from visit to visit.
    nanoseconds: f64,
    /// Operations of a visit.
    visit: f64,
    /// The share of visits that have more than one.
    several: f64,
}

impl Both {
    fn of(one: &Part, other: &Part) -> Option<Both> {
        let visits = one.visits + other.visits;
        let calm = one.block.undisturbed && other.block.undisturbed && visits >= LEAST;
        calm.then(|| {
            let operations = one.block.operations + other.block.operations;
            Both {
                nanoseconds: f64::midpoint(one.block.nanoseconds, other.block.nanoseconds)
                    / visits as f64,
                visit: operations as f64 / visits as f64,
                several: 1.0 - (one.single + other.single) as f64 / visits as f64,
            }
        })
    }
}

/// The multiplications at which nine tenths, a half and a tenth of the visits have several operations.
fn changes_over(line: &[Option<Both>]) -> Option<[f64; 3]> {
    let known: Vec<(f64, f64)> = TRIED
        .iter()
        .zip(line)
        .filter_map(|(&work, both)| both.map(|both| (work as f64, both.several)))
        .collect();
    let crossing = |share: f64| {
        // The last length at which so many still do: resonances make single lengths stand out below it.
        let last = known.iter().rposition(|&(_, several)| several >= share)?;
        let &(work, several) = &known[last];
        let &(next, fewer) = known.get(last + 1)?;
        Some(work + (next - work) * (several - share) / (several - fewer))
    };
    Some([crossing(0.9)?, crossing(0.5)?, crossing(0.1)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(line: &[Part], multiplication: f64) -> Fights {
        let lines = [line.to_vec()];
        Fights::of(&lines, &lines, multiplication)
    }

    fn part(several: u64) -> Part {
        let block = Block { nanoseconds: 25.0 * 200.0, operations: 180, undisturbed: true };
        Part { block, visits: 100, single: 100 - several }
    }

    #[test]
    fn a_visit_ends_where_half_of_them_have_no_second_operation() {
        // All until 9 multiplications, none from 12 on.
        let line: Vec<Part> =
            TRIED.iter().map(|&work| part(if work <= 10 { 100 } else { 0 })).collect();
        let fights = both(&line, 0.9);
        assert!((fights.usable - 11.0 * 0.9).abs() < 1e-9, "{fights:?}");
        assert!((fights.cycle - 25.0).abs() < 1e-9 && (fights.visit - 1.8).abs() < 1e-9);
        assert!((fights.contended - 25.0 / 1.8).abs() < 1e-9);
        // 0.8 of two multiplications, of a visit of 25 ns.
        assert!((fights.spread - 2.0 * 0.9 / 25.0).abs() < 1e-9, "{fights:?}");
        let disturbed: Vec<Part> = line
            .iter()
            .map(|part| Part { block: Block { undisturbed: false, ..part.block }, ..*part })
            .collect();
        let none = both(&disturbed, 0.9);
        assert!(none.cycle.is_nan() && none.usable.is_nan() && none.spread.is_nan());
    }

    #[test]
    fn stays_that_differ_change_over_slowly() {
        let line: Vec<Part> =
            TRIED.iter().map(|&work| part(100u64.saturating_sub(5 * work as u64))).collect();
        let fights = both(&line, 1.0);
        assert!((fights.usable - 10.0).abs() < 0.1, "{fights:?}");
        assert!((fights.spread - 20.0 / 25.0).abs() < 0.02, "{fights:?}");
    }
}

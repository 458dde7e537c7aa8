//! Fights: the times of two CPUs that want one line over and over, with real lines and in the model.
//!
//! Both change the line, and do private work between two accesses, for a shorter or a longer time. The time of an
//! operation then depends on the transfer of a line, on its stay, and on whether the next access still finds it
//! there. None of these can be measured separately. So fights are timed, and [`fit`](super::fit) searches for the
//! settings with which the model takes the same times.

use super::team::{Block, Seat};
use super::world::{Field, Memory, Real, World};
use ledgerline_bench::measure::stats::median;

/// The accesses of a CPU to the line in an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    /// It adds to the word that both add to.
    Atomics,
    /// It loads the other's word and stores to its own.
    Stores,
    /// It adds to the shared word and loads another word of the line, after this many halves of its work. After none,
    /// the load comes right behind the atomic; after both, right before the next.
    Beside { halves: usize },
}

/// One of the fights: the accesses, and the number of multiplications of private work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fight {
    pub(super) how: How,
    pub(super) work: usize,
}

const HOW: [How; 5] = [
    How::Atomics,
    How::Stores,
    How::Beside { halves: 0 },
    How::Beside { halves: 1 },
    How::Beside { halves: 2 },
];
/// The lengths of work, in multiplications: from none to longer than most transfers.
const TRIED: [usize; 12] = [0, 4, 8, 12, 18, 26, 36, 50, 70, 96, 130, 180];
/// Operations of a CPU in a block.
const OPERATIONS: u64 = 400;

/// Returns all fights: each way with each length of work.
pub(super) fn all() -> impl Iterator<Item = Fight> {
    HOW.iter().flat_map(|&how| TRIED.iter().map(move |&work| Fight { how, work }))
}

impl Fight {
    /// Returns the fight with the same work in which only atomics use the line.
    pub(super) fn without_loads(self) -> Fight {
        Fight { how: How::Atomics, ..self }
    }

    /// Does an operation, on a pair of lines.
    #[inline(always)]
    pub(super) fn operation<W: World>(self, world: &mut W, pair: usize) {
        let word = |index: usize| Field { pair, offset: 8 * index };
        match self.how {
            How::Atomics => {
                world.add(word(0));
                world.work_for(self.work);
            }
            How::Stores => {
                world.load(word(1 - world.cpu()));
                world.store(word(world.cpu()));
                world.work_for(self.work);
            }
            How::Beside { halves } => {
                let between = self.work * halves / 2;
                world.add(word(0));
                world.work_for(between);
                world.load(word(2));
                world.work_for(self.work - between);
            }
        }
    }
}

/// Fights on each of the lines, in blocks. The distance to the directory of a line differs by line.
pub(super) fn fight(seat: &Seat<'_>, memory: &Memory, lines: &[usize]) -> Vec<Vec<Block>> {
    let mut real = Real::<0, true>::new(memory, seat.index);
    let mut block =
        |fight: Fight, line| seat.together(OPERATIONS, || fight.operation(&mut real, line));
    all().map(|fight| lines.iter().map(|&line| block(fight, line)).collect()).collect()
}

/// Returns the time of an operation of each fight, from what both CPUs saw of it. It is not a number if every try was
/// disturbed.
pub(super) fn times(one: &[Vec<Block>], other: &[Vec<Block>]) -> Vec<f64> {
    let both = |(one, other): (&Vec<Block>, &Vec<Block>)| {
        let calm = (one.iter().zip(other))
            .filter(|(one, other)| one.undisturbed && other.undisturbed)
            .map(|(one, other)| {
                let nanoseconds = f64::midpoint(one.nanoseconds, other.nanoseconds);
                2.0 * nanoseconds / (one.operations + other.operations) as f64
            });
        let calm: Vec<f64> = calm.collect();
        if calm.is_empty() { f64::NAN } else { median(&calm) }
    };
    one.iter().zip(other).map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fight_takes_what_its_undisturbed_blocks_took() {
        let block = |nanoseconds, undisturbed| Block { nanoseconds, operations: 100, undisturbed };
        let one = [vec![block(900.0, true), block(5000.0, true), block(1100.0, true)]];
        let other = [vec![block(1100.0, true), block(900.0, false), block(1300.0, true)]];
        assert_eq!(times(&one, &other), [11.0]);
        let none = [vec![block(900.0, false)]];
        assert!(times(&none, &none)[0].is_nan());
    }

    #[test]
    fn loads_lie_where_the_way_says() {
        use super::super::world::{Data, Told};
        use ledgerline_coherence::program::Step;
        let steps = |halves| {
            let mut data = Data::new(1);
            let mut told = Told::new(0, &mut data);
            told.multiplication = 3.0;
            Fight { how: How::Beside { halves }, work: 10 }.operation(&mut told, 0);
            let work = |step: &Step| match step {
                Step::Compute { cycles, .. } if *cycles > 1.0 => Some(*cycles),
                Step::Load { .. } => Some(0.0),
                _ => None,
            };
            told.steps.iter().filter_map(work).collect::<Vec<f64>>()
        };
        assert_eq!(
            [steps(0), steps(1), steps(2)],
            [vec![0.0, 30.0], vec![15.0, 0.0, 15.0], vec![30.0, 0.0]]
        );
    }
}

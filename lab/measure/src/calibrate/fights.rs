//! Fights: what two CPUs take that want one line over and over, with real lines and as the model sees it.
//!
//! Both change the line, and work for themselves between two accesses, for a shorter or a longer time. How long an
//! operation takes then depends on how long a line is on its way, on how long it stays, and on whether the next access
//! still finds it there. None of that can be seen by itself. So fights are timed, and [`fit`](super::fit) looks for the
//! settings with which the model takes the same times.

use super::team::{Block, Seat};
use super::world::{Field, Memory, Real, World};
use ledgerline_bench::measure::stats::median;

/// What a CPU does to the line in an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    /// It adds to the word that both add to.
    Atomics,
    /// It loads the other's word and stores to its own.
    Stores,
    /// It adds to the word of both and loads another word of the line, after so many halves of its work. After none, the
    /// load comes right behind the atomic; after both, right before the next.
    Beside { halves: usize },
}

/// One of the fights: what both do, and for how many multiplications they work.
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
/// The work that is tried, in multiplications: from none to longer than most transfers.
const TRIED: [usize; 12] = [0, 4, 8, 12, 18, 26, 36, 50, 70, 96, 130, 180];
/// Operations of a CPU in a block.
const OPERATIONS: u64 = 400;

/// All fights: each way with each length of work.
pub(super) fn all() -> impl Iterator<Item = Fight> {
    HOW.iter().flat_map(|&how| TRIED.iter().map(move |&work| Fight { how, work }))
}

impl Fight {
    /// The fight with the same work in which nothing but atomics use the line.
    pub(super) fn without_loads(self) -> Fight {
        Fight { how: How::Atomics, ..self }
    }

    /// An operation, on a pair of lines.
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

/// Fights on each of the lines, in blocks. How far it is to where a line is kept track of differs by line.
pub(super) fn fight(seat: &Seat<'_>, memory: &Memory, lines: &[usize]) -> Vec<Vec<Block>> {
    let mut real = Real::<0, true>::new(memory, seat.index);
    let mut block =
        |fight: Fight, line| seat.together(OPERATIONS, || fight.operation(&mut real, line));
    all().map(|fight| lines.iter().map(|&line| block(fight, line)).collect()).collect()
}

/// What an operation of each fight took, by what both CPUs saw of it. Not a number where every try was disturbed.
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

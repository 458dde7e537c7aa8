//! Real runs of a pattern, each between two games of ping-pong that show the machine's state at the time.

use super::patterns::{Part, Pattern};
use super::probe::game;
use super::team::{Block, play, timed};
use super::work::{add_chain, multiplications};
use super::world::{Memory, Real};
use ledgerline_bench::measure::transfer::Line;

/// The private work that is tried, in cycles of the processor.
pub(super) const WORK: [usize; 12] = [0, 10, 16, 25, 36, 50, 70, 100, 200, 400, 700, 1000];

/// The approximate length of a block in nanoseconds: short enough that most are not interrupted.
const BLOCK: f64 = 60_000.0;

/// The distance in pairs of lines to the start of the next pass.
const PASS: usize = 5;

/// Hundreds of additions between a game and a block.
const PACE: u64 = 100;

/// One block of a pattern on all CPUs.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Nanoseconds of a transfer between the first two CPUs, before and after.
    pub(super) before: f64,
    pub(super) after: f64,
    /// Nanoseconds of an operation, of each CPU.
    pub(super) per_operation: Vec<f64>,
    /// Nanoseconds of an addition in a chain, before and after, on the slowest CPU. A hypervisor that takes a CPU
    /// away, or gives its core to others as well, shows here and nowhere else.
    pub(super) cycle: f64,
    pub(super) undisturbed: bool,
}

impl Run {
    /// Returns the nanoseconds of an operation of the CPUs of a part in the simulation's terms: their time over their
    /// operations.
    pub(super) fn nanoseconds(&self, part: Part) -> f64 {
        let of_part = &self.per_operation[part.of(self.per_operation.len())];
        let rate: f64 = of_part.iter().map(|ns| 1.0 / ns).sum();
        of_part.len() as f64 / rate
    }
}

/// Runs `blocks` blocks of a pattern in which each CPU does `work` cycles of private work. Each pass uses other
/// lines.
///
/// # Errors
/// If a CPU cannot be used.
pub(super) fn runs(
    cpus: &[usize],
    pattern: Pattern,
    work: usize,
    blocks: usize,
    pass: usize,
) -> Result<Vec<Run>, String> {
    macro_rules! among {
        ($($cycles:literal)*) => {
            match work {
                $($cycles => of_length::<{ multiplications($cycles) }>(cpus, pattern, blocks, pass),)*
                _ => Err(format!("{work} cycles of work are not among {WORK:?}")),
            }
        };
    }
    among!(0 10 16 25 36 50 70 100 200 400 700 1000)
}

fn of_length<const N: usize>(
    cpus: &[usize],
    pattern: Pattern,
    blocks: usize,
    pass: usize,
) -> Result<Vec<Run>, String> {
    // Each pattern has a loop of its own, so that the loop contains no branch on it.
    match pattern {
        Pattern::Shared => measured::<N, true>(cpus, blocks, pass, Pattern::Shared),
        Pattern::Padded => measured::<N, true>(cpus, blocks, pass, Pattern::Padded),
        Pattern::FalseShared => measured::<N, true>(cpus, blocks, pass, Pattern::FalseShared),
        Pattern::StoredBeside => measured::<N, true>(cpus, blocks, pass, Pattern::StoredBeside),
        Pattern::AddedBeside => measured::<N, true>(cpus, blocks, pass, Pattern::AddedBeside),
        Pattern::SequenceLock => measured::<N, true>(cpus, blocks, pass, Pattern::SequenceLock),
        Pattern::TicketLock => measured::<N, true>(cpus, blocks, pass, Pattern::TicketLock),
        Pattern::OverlappedTicketLock => {
            measured::<N, false>(cpus, blocks, pass, Pattern::OverlappedTicketLock)
        }
    }
}

#[inline(always)]
fn measured<const N: usize, const CHAINED: bool>(
    cpus: &[usize],
    blocks: usize,
    pass: usize,
    pattern: Pattern,
) -> Result<Vec<Run>, String> {
    let memory = Memory::beyond(PASS * pass, pattern.pairs(cpus.len()));
    let line = Line::default();
    let seats = play(cpus, |seat| {
        let mut real = Real::<N, CHAINED>::new(&memory, seat.index);
        let mut quota = 200;
        let mut seen = Vec::with_capacity(blocks);
        for block in 0..=blocks {
            let before = (game(&line, seat), cycle());
            let run = seat.together(quota, || pattern.operation(&mut real));
            let after = (cycle(), game(&line, seat));
            if block == 0 {
                // The first run finds cold caches, and gives the length of an operation.
                quota = (BLOCK / run.per_operation()).clamp(20.0, 1e6) as u64;
            } else {
                seen.push((before, run, after));
            }
        }
        seen
    })?;
    Ok((0..blocks).map(|block| combined(seats.iter().map(|seen| &seen[block]))).collect())
}

type Seen = ((f64, f64), Block, (f64, f64));

/// Returns the current time of an addition in a chain.
fn cycle() -> f64 {
    let block = timed(|| {
        add_chain(PACE);
        100 * PACE
    });
    block.per_operation()
}

/// Combines what the CPUs saw of one block.
fn combined<'a>(seats: impl Iterator<Item = &'a Seen> + Clone) -> Run {
    let (before, _, after) = seats.clone().next().expect("a team has a first");
    Run {
        before: before.0,
        after: after.1,
        cycle: seats.clone().map(|(before, _, after)| before.1.max(after.0)).fold(0.0, f64::max),
        per_operation: seats.clone().map(|(_, run, _)| run.per_operation()).collect(),
        undisturbed: seats.clone().all(|(_, run, _)| run.undisturbed),
    }
}

//! The single measurements of the effects of two CPUs on each other. All figures are taken within a few milliseconds,
//! so that the machine is in one state for all of them.

use super::fights;
use super::patterns::Pattern;
use super::queue_lock::QueueLock;
use super::team::{Block, Seat, play};
use super::work::{add_chain, time_stamp, work};
use super::world::{Field, Memory, Real, World};
use ledgerline_bench::measure::shuffle::shuffled;
use ledgerline_bench::measure::stats::median;
use ledgerline_bench::measure::transfer::Line;

/// Lines of a walk: they fit into three quarters of a first cache of 32 KiB.
const LINES: usize = 192;
/// Pairs of lines from one of them to the next. At a smaller distance, prefetchers that know regions bring some of
/// them.
const APART: usize = 5;
/// Repetitions of each walk; the median counts.
const WALKS: usize = 15;
/// Operations of a CPU by itself, and of those that fight for a line.
const ALONE: u64 = 4_000;
const TOGETHER: u64 = 4_000;
/// Multiplications behind an atomic: more than its remaining time.
const WORKED: usize = 30;
/// Repetitions of each of these.
const TIMES: usize = 7;

/// The results. Figures are nanoseconds unless stated otherwise, and not a number if every try was disturbed.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// A transfer by ping-pong, before all else and after.
    pub(super) before: f64,
    pub(super) after: f64,
    /// A cycle: an addition in a chain.
    pub(super) cycle: f64,
    /// A multiplication in a chain, the unit of private work.
    pub(super) multiplication: f64,
    /// Ticks of the time-stamp counter in a nanosecond.
    pub(super) time_stamp: f64,
    /// A load of a line of the CPU's own, in a chain.
    pub(super) load: f64,
    /// The time of an atomic on such a line beyond that load.
    pub(super) atomic: f64,
    /// Like `atomic`, if work follows that needs the atomic's value.
    pub(super) value: f64,
    /// A load of a line that the other CPU has changed.
    pub(super) modified: f64,
    /// A load of that line by the CPU that changed it, after the other has read it.
    pub(super) returned: f64,
    /// The time of an atomic on a line that both have, beyond one on a line of the CPU's own.
    pub(super) upgrade: f64,
    /// The time of an atomic on a line that the other CPU has changed, beyond a load of such a line.
    pub(super) moved: f64,
    /// An operation of each fight for a line, in the order of [`fights::all`].
    pub(super) fights: Vec<f64>,
    /// The share of a store's transfer that a following atomic on another line does not wait for.
    pub(super) early: f64,
    /// An atomic while the other adds to the same line, to its neighbour in the pair, and to a separate one.
    pub(super) same: f64,
    pub(super) neighbour: f64,
    pub(super) apart: f64,
    /// From one holder of a contended lock to the next.
    pub(super) ticket: f64,
    pub(super) queue: f64,
}

/// A CPU's view of it, without the other's work.
struct Seen {
    before: f64,
    after: f64,
    own: Option<[f64; 6]>,
    modified: Vec<Block>,
    returned: Vec<Block>,
    upgrade: Vec<Block>,
    forth: [Vec<Block>; 2],
    fights: Vec<Vec<Block>>,
    beside: [Vec<Block>; 3],
    locks: [Vec<Block>; 2],
}

/// Measures a pair of CPUs once.
///
/// # Errors
/// If a CPU cannot be used.
pub(super) fn visit(pair: [usize; 2]) -> Result<Found, String> {
    let memory = Memory::new(LINES * APART);
    let tickets = Memory::new(Pattern::TicketLock.pairs(2));
    let queue = QueueLock::default();
    let line = Line::default();
    let seen = play(&pair, |seat| {
        let before = game(&line, seat);
        let own = own(seat, &memory);
        let [modified, returned, upgrade] = walks(seat, &memory);
        let forth = forth(seat, &memory);
        let fights = fights::fight(seat, &memory, &fought_for());
        let beside = [(0, 8), (0, 64), (1, 0)].map(|(pair, offset)| {
            let field = Field { pair: pair * seat.index, offset: offset * seat.index };
            let mut real = Real::<0, true>::new(&memory, seat.index);
            together(seat, || real.add(field))
        });
        let mut real = Real::<0, true>::new(&tickets, seat.index);
        let ticket = together(seat, || Pattern::TicketLock.operation(&mut real));
        let queue = together(seat, || queue.pass(seat.index));
        let locks = [ticket, queue];
        let after = game(&line, seat);
        Seen { before, after, own, modified, returned, upgrade, forth, fights, beside, locks }
    })?;
    let [first, second] = seen.as_slice() else { return Err("two CPUs make a pair".to_owned()) };
    let [cycle, time_stamp, load, atomic, multiplication, worked] =
        first.own.unwrap_or([f64::NAN; 6]);
    let [adds, behind] = [0, 1].map(|which| of(&first.forth[which]));
    let modified = of(&second.modified) - cycle;
    let beside = |which: usize| both(&first.beside[which], &second.beside[which]);
    let lock = |which: usize| both(&first.locks[which], &second.locks[which]) / 2.0;
    Ok(Found {
        before: first.before,
        after: first.after,
        cycle,
        multiplication,
        time_stamp,
        load: load - cycle,
        atomic: atomic - load,
        value: worked - WORKED as f64 * multiplication - load,
        modified,
        returned: of(&first.returned) - cycle,
        upgrade: of(&first.upgrade) - atomic,
        moved: adds - cycle - modified,
        fights: fights::times(&first.fights, &second.fights),
        early: 1.0 - (behind - adds) / modified,
        same: beside(0),
        neighbour: beside(1),
        apart: beside(2),
        ticket: lock(0),
        queue: lock(1),
    })
}

/// Returns the time of a transfer at this moment, by ping-pong between the first two of a team.
pub(super) fn game(line: &Line, seat: &Seat<'_>) -> f64 {
    seat.meet();
    let nanoseconds = if seat.index < 2 { line.play(seat.index == 1) } else { f64::NAN };
    seat.meet();
    nanoseconds
}

/// Returns the median of undisturbed blocks; not a number if there is none.
fn of(blocks: &[Block]) -> f64 {
    let calm = blocks.iter().filter(|block| block.undisturbed);
    middle(&calm.map(Block::per_operation).collect::<Vec<f64>>())
}

/// Returns the median of two CPUs' blocks, of those in which both were undisturbed.
fn both(one: &[Block], other: &[Block]) -> f64 {
    let pairs = one.iter().zip(other).filter(|(one, other)| one.undisturbed && other.undisturbed);
    let each =
        pairs.map(|(one, other)| 2.0 / (1.0 / one.per_operation() + 1.0 / other.per_operation()));
    middle(&each.collect::<Vec<f64>>())
}

fn middle(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { median(values) }
}

/// Measures figures of the first CPU alone: a cycle, the time-stamp counter, a load, an atomic, a multiplication, an
/// atomic with work behind it.
fn own(seat: &Seat<'_>, memory: &Memory) -> Option<[f64; 6]> {
    let mut figures: [Vec<Block>; 5] = Default::default();
    let mut ticks = Vec::new();
    let mut real = Real::<0, true>::new(memory, seat.index);
    for _ in 0..TIMES {
        let mut stamps = None;
        let cycles = seat.alone(0, || {
            let before = time_stamp();
            add_chain(ALONE / 100);
            stamps = time_stamp().zip(before).map(|(after, before)| after.wrapping_sub(before));
            ALONE
        });
        let loads = seat.alone(0, || {
            (0..ALONE).for_each(|_| real.load(Field::first_of(0)));
            ALONE
        });
        let atomics = seat.alone(0, || {
            (0..ALONE).for_each(|_| real.add(Field::first_of(0)));
            ALONE
        });
        let multiplications = seat.alone(0, || {
            // The compiler may move pure work; `black_box` makes it happen here.
            std::hint::black_box((0..ALONE / 100).fold(0, |zero, _| work::<100>(zero)));
            ALONE
        });
        let worked = seat.alone(0, || {
            (0..ALONE / 4).for_each(|_| {
                real.add(Field::first_of(0));
                real.work_for(WORKED);
            });
            ALONE / 4
        });
        let blocks = [cycles, loads, atomics, multiplications, worked];
        for (figure, block) in figures.iter_mut().zip(blocks) {
            figure.extend(block);
        }
        ticks.extend(stamps.zip(cycles).map(|(stamps, block)| stamps as f64 / block.nanoseconds));
    }
    let [cycles, loads, atomics, multiplications, worked] = figures.map(|blocks| of(&blocks));
    (seat.index == 0).then(|| [cycles, middle(&ticks), loads, atomics, multiplications, worked])
}

/// Measures three walks: the second CPU loads lines that the first has changed, the first loads them again, and then
/// changes them.
fn walks(seat: &Seat<'_>, memory: &Memory) -> [Vec<Block>; 3] {
    let mut real = Real::<0, true>::new(memory, seat.index);
    // In an order that no prefetcher can learn.
    let order = shuffled(LINES);
    let lines = || order.iter().map(|&line| Field::first_of(APART * line));
    let mut seen: [Vec<Block>; 3] = Default::default();
    for _ in 0..WALKS {
        let _ = seat.alone(0, || lines().map(|line| real.add(line)).count() as u64);
        let modified = seat.alone(1, || lines().map(|line| real.load(line)).count() as u64);
        let returned = seat.alone(0, || lines().map(|line| real.load(line)).count() as u64);
        let _ = seat.alone(1, || lines().map(|line| real.load(line)).count() as u64);
        let upgrade = seat.alone(0, || lines().map(|line| real.add(line)).count() as u64);
        for (blocks, block) in seen.iter_mut().zip([modified, returned, upgrade]) {
            blocks.extend(block);
        }
    }
    seen
}

/// Measures two walks, after the second CPU has changed the lines. The first CPU adds to every other line; then it
/// also stores to one of the remaining lines before each addition.
fn forth(seat: &Seat<'_>, memory: &Memory) -> [Vec<Block>; 2] {
    let mut real = Real::<0, true>::new(memory, seat.index);
    let order = shuffled(LINES);
    let line = |line: usize| Field::first_of(APART * line);
    let lines = || order.chunks_exact(2).map(|two| [two[0], two[1]].map(line));
    let mut seen: [Vec<Block>; 2] = Default::default();
    for _ in 0..WALKS {
        for (which, blocks) in seen.iter_mut().enumerate() {
            let _ = seat.alone(1, || lines().flatten().map(|line| real.add(line)).count() as u64);
            let block = seat.alone(0, || {
                let walk = lines().map(|[beside, line]| match which {
                    0 => real.add(line),
                    _ => {
                        real.store(beside);
                        real.add(line);
                    }
                });
                walk.count() as u64
            });
            blocks.extend(block);
        }
    }
    seen
}

/// Returns lines to fight for, one after the other: the distance to a line's directory differs by line.
fn fought_for() -> [usize; WALKS] {
    std::array::from_fn(|walk| APART * (walk * LINES / WALKS))
}

#[inline(always)]
fn together(seat: &Seat<'_>, mut operation: impl FnMut()) -> Vec<Block> {
    (0..TIMES).map(|_| seat.together(TOGETHER, &mut operation)).collect()
}

//! A sum over many CPUs that is read in one load, with a bound on the error.
//!
//! Each CPU adds to a cell of its own. What passes a multiple of the batch there is carried to a node that
//! a few CPUs share. What passes a larger multiple there is carried to a node above it, and so on to the
//! top, which readers read. The [`Shape`] says how many words there are and which multiples they pass on.
//! The error of the top is what lies below the multiples in all words.
//!
//! ```text
//! add(n):      old, new = the running CPU's cell before and after += n
//!              carry = round(new) - round(old)                  to a multiple of the batch
//!              for each node from the CPU to the top, while carry != 0:
//!                  old, new = node before and after += carry    one atomic addition
//!                  carry = round(new) - round(old)              to a multiple of that level
//!              top += carry
//! ```
//!
//! A carry is a difference of two rounded values of one word, so whatever the order of the additions,
//! the carries that left a word add up to its rounded value, and nothing is lost or carried twice.
//!
//! The kernel's counter of this kind truncates, so that its top is never above the truth and as far
//! below as all its words can hold. Here each word rounds to the nearest multiple, which halves the
//! error at no cost: a word starts at half a multiple instead of at zero, and is truncated. (There
//! is an even number of remainders and so no middle one; words round the odd one up and down in turn.)

mod shape;
#[cfg(test)]
mod tests;

pub use shape::{BadShape, Shape};

use crate::percpu::{Words, columns_of_cpus, stripe};
use crate::sync::{AtomicU64, Ordering};
use std::cmp;

/// A word alone on the pair of lines that CPUs fetch together.
#[repr(align(128))]
#[derive(Debug)]
struct Line(AtomicU64);

/// A signed sum that many CPUs add to, with a top that is read in one load.
///
/// Threads may share it. [`add`](Sum::add) is async-signal-safe and costs about a nanosecond, and an atomic
/// addition once a batch. A sum takes 128 bytes for each CPU and each node. Sums wrap at 2^63 like the
/// machine.
///
/// ```
/// use ledgerline::stat::tree::Sum;
///
/// let pages = Sum::new(32)?;
/// pages.add(1000);
/// assert_eq!(pages.precise(), 1000);
/// let about = pages.approximate();
/// assert!(about.least() <= 1000 && 1000 <= about.most());
/// # Ok::<(), ledgerline::stat::tree::BadShape>(())
/// ```
#[derive(Debug)]
pub struct Sum {
    shape: Shape,
    /// The words of all levels, the CPUs' cells first, the top last.
    lines: Box<[Line]>,
    /// The cells, if a section updates the running CPU's. `None`: atomics update them, so any thread may
    /// write any cell.
    running: Option<Words>,
    /// What the cells held at the start.
    started: i64,
}

/// The result of [`Sum::approximate`]: the truth lies between [`least`](Self::least) and
/// [`most`](Self::most) when no update is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approximation {
    /// The sum, as far as the top knows.
    pub value: i64,
    /// By how much the truth may be below it.
    pub below: u64,
    /// By how much the truth may be above it.
    pub above: u64,
}

impl Approximation {
    /// The smallest sum that is possible; clamped at the ends of an `i64`.
    pub const fn least(self) -> i64 {
        self.value.saturating_sub_unsigned(self.below)
    }

    /// The largest sum that is possible; clamped at the ends of an `i64`.
    pub const fn most(self) -> i64 {
        self.value.saturating_add_unsigned(self.above)
    }
}

impl Sum {
    /// Makes a sum over the CPUs of this machine. A cell holds back less than a batch.
    ///
    /// # Errors
    /// When the batch is not a power of two up to 2^20.
    pub fn new(batch: u64) -> Result<Sum, BadShape> {
        let mut sum = Sum::with_shape(Shape::new(columns_of_cpus(), batch)?);
        // SAFETY: there is a line for every possible CPU, 128 bytes apart, and the box is as long
        // alive as the sum. The cells are written through `Words` alone (`add_on` refuses).
        sum.running = Some(unsafe { Words::new(&raw const sum.lines[0].0, size_of::<Line>()) });
        Ok(sum)
    }

    /// Makes a sum over as many CPUs as the shape has, whatever this machine has. Any thread may add on any
    /// of them, by atomics. It is for CPUs of a simulation, and for stripes that are not CPUs.
    pub fn with_shape(shape: Shape) -> Sum {
        let starts =
            shape.levels.iter().flat_map(|level| (0..level.words).map(move |n| level.start(n)));
        let lines: Box<[Line]> =
            starts.chain([0]).map(|start| Line(AtomicU64::new(start))).collect();
        let started = lines[..shape.cpus() as usize].iter().map(|line| line.get()).sum();
        Sum { shape, lines, running: None, started }
    }

    /// Its shape, which gives the bounds.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Adds `n` on the running CPU. Async-signal-safe.
    #[inline]
    pub fn add(&self, n: i64) {
        let Some(running) = &self.running else {
            return self.add_on(stripe() % self.shape.cpus(), n);
        };
        // SAFETY: the cell is the one word of each column.
        let (new, distance) = unsafe { running.add_return(0, n) };
        let carry = carry(new.wrapping_sub(n), new, self.shape.batch());
        if carry != 0 {
            self.climb(running.column(distance), carry);
        }
    }

    #[cold]
    fn climb(&self, cpu: u32, carry: i64) {
        let mut update = Update { sum: self, cpu, level: 1, carry };
        while update.step() {}
    }

    /// Adds `n` on a CPU of the shape, from any thread. Async-signal-safe.
    ///
    /// # Panics
    /// If the shape has no such CPU, or if the sum was made by [`new`](Self::new), where only its own CPU
    /// writes a cell.
    pub fn add_on(&self, cpu: u32, n: i64) {
        let mut update = self.begin(cpu, n);
        while update.step() {}
    }

    /// The first step of [`add_on`](Self::add_on); the rest is in flight.
    fn begin(&self, cpu: u32, n: i64) -> Update<'_> {
        assert!(self.running.is_none(), "a cell of this sum is written by its CPU alone");
        assert!(cpu < self.shape.cpus(), "CPU {cpu} of {}", self.shape.cpus());
        Update { sum: self, cpu, level: 0, carry: n }
    }

    /// The sum within a bound, in one load: exact to the shape's bounds when no update is in flight,
    /// and to [`Shape::in_flight_bound`] more while some are.
    pub fn approximate(&self) -> Approximation {
        // Acquire, partner of the Release in `Update::step`: a precise sum that is read next has all that
        // the top has.
        let value = self.lines[self.lines.len() - 1].0.load(Ordering::Acquire) as i64;
        Approximation { value, below: self.shape.below(), above: self.shape.above() }
    }

    /// The sum, from all cells. It is exact when writers are still, otherwise off by what was added during
    /// the call. Costs about a nanosecond a CPU, and a line transfer for each that wrote.
    pub fn precise(&self) -> i64 {
        let cells = &self.lines[..self.shape.cpus() as usize];
        cells.iter().fold(0i64, |sum, cell| sum.wrapping_add(cell.get())).wrapping_sub(self.started)
    }
}

impl Line {
    /// Relaxed: a cell is all there is to see in it.
    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }
}

/// The carry of a word that changes: the difference of the multiples below its two values. (A word starts
/// at half a multiple, so this rounds to the nearest.)
#[inline(always)]
fn carry(old: i64, new: i64, multiple: u64) -> i64 {
    let whole = !(multiple as i64 - 1);
    (new & whole).wrapping_sub(old & whole)
}

/// An update in flight to the top.
struct Update<'s> {
    sum: &'s Sum,
    cpu: u32,
    /// The level that it reaches next.
    level: usize,
    /// The carry that it adds there.
    carry: i64,
}

impl Update<'_> {
    /// Makes one atomic addition. Says whether there is another to do.
    fn step(&mut self) -> bool {
        let shape = &self.sum.shape;
        let Some(level) = shape.levels.get(self.level) else {
            let top = &self.sum.lines[self.sum.lines.len() - 1];
            // Release, partner of the Acquire in `approximate`: a reader that sees a carry there sees the
            // cell that it came from. (AcqRel below passes that on from node to node.)
            top.0.fetch_add(self.carry as u64, Ordering::Release);
            return false;
        };
        let word = &self.sum.lines[level.first + (self.cpu >> level.shift) as usize];
        let old = word.0.fetch_add(self.carry as u64, Ordering::AcqRel) as i64;
        self.carry = carry(old, old.wrapping_add(self.carry), level.multiple);
        self.level += 1;
        self.carry != 0
    }
}

/// Compares two sums: by their tops where those are further apart than both bounds, by the precise
/// sums otherwise. Right whenever no update is in flight; while some are, right for sums that are
/// further apart than the [`in_flight_bound`](Shape::in_flight_bound) of both.
///
/// ```
/// use ledgerline::stat::tree::{Sum, compare};
///
/// let (a, b) = (Sum::new(32)?, Sum::new(32)?);
/// a.add(1_000_000);
/// b.add(1);
/// assert!(compare(&a, &b).is_gt());
/// # Ok::<(), ledgerline::stat::tree::BadShape>(())
/// ```
pub fn compare(a: &Sum, b: &Sum) -> cmp::Ordering {
    by_bounds(a.approximate(), b.approximate(), || a.precise().cmp(&b.precise()))
}

/// Compares a sum with a number, in the same way.
pub fn compare_value(sum: &Sum, value: i64) -> cmp::Ordering {
    let exact = Approximation { value, below: 0, above: 0 };
    by_bounds(sum.approximate(), exact, || sum.precise().cmp(&value))
}

#[inline]
fn by_bounds(
    a: Approximation,
    b: Approximation,
    precisely: impl FnOnce() -> cmp::Ordering,
) -> cmp::Ordering {
    if a.least() > b.most() {
        cmp::Ordering::Greater
    } else if a.most() < b.least() {
        cmp::Ordering::Less
    } else {
        precisely()
    }
}

//! A sum over many CPUs that is read in one load, with a bound on the error.
//!
//! Each CPU adds to its own cell. When a cell passes a multiple of the batch, it carries that multiple to
//! a node that a few CPUs share. When the node passes a larger multiple, it carries that to a node above
//! it, and so on to the top, which readers read. The [`Shape`] defines how many words there are and which
//! multiples they pass on. The error of the top is the sum of the remainders in all words.
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
//! A carry is the difference of two rounded values of one word. So whatever the order of the additions,
//! the carries that left a word add up to its rounded value, and nothing is lost or carried twice.
//!
//! The kernel's counter of this kind truncates: its top is never above the truth, and may be as far below
//! it as all its words can hold. Here each word rounds to the nearest multiple, which halves the error at
//! no cost: a word starts at half a multiple instead of at zero, and is truncated. The number of
//! remainders is even, so one of them is as close to either side; neighbouring words round it up and down
//! in turn.

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
/// Threads may share it. [`add`](Sum::add) is async-signal-safe and costs about a nanosecond, and an
/// atomic addition once per batch. A sum takes 128 bytes for each CPU and each node. Sums wrap at 2^63.
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
    /// The cells, if a section updates the running CPU's cell. `None` if atomics update them, so that any
    /// thread may write any cell.
    running: Option<Words>,
    /// The sum of the cells' start values.
    started: i64,
}

/// The result of [`Sum::approximate`]: the truth lies between [`least`](Self::least) and
/// [`most`](Self::most) when no update is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approximation {
    /// The value of the top.
    pub value: i64,
    /// The most by which the true sum may be below it.
    pub below: u64,
    /// The most by which the true sum may be above it.
    pub above: u64,
}

impl Approximation {
    /// Returns the smallest possible sum, clamped at the ends of an `i64`.
    pub const fn least(self) -> i64 {
        self.value.saturating_sub_unsigned(self.below)
    }

    /// Returns the largest possible sum, clamped at the ends of an `i64`.
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
        // SAFETY: there is a line for every possible CPU, 128 bytes apart, and the box lives as long as
        // the sum. The cells are written only through `Words`, since `add_on` refuses.
        sum.running = Some(unsafe { Words::new(&raw const sum.lines[0].0, size_of::<Line>()) });
        Ok(sum)
    }

    /// Makes a sum over as many CPUs as the shape has, whatever this machine has. Any thread may add on
    /// any of them, by atomics. For simulated CPUs, and for stripes that are not CPUs.
    pub fn with_shape(shape: Shape) -> Sum {
        let starts =
            shape.levels.iter().flat_map(|level| (0..level.words).map(move |n| level.start(n)));
        let lines: Box<[Line]> =
            starts.chain([0]).map(|start| Line(AtomicU64::new(start))).collect();
        let started = lines[..shape.cpus() as usize].iter().map(|line| line.get()).sum();
        Sum { shape, lines, running: None, started }
    }

    /// Returns its shape, which gives the bounds.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Adds `n` on the running CPU. Async-signal-safe.
    #[inline]
    pub fn add(&self, n: i64) {
        let Some(running) = &self.running else {
            return self.add_on(stripe() % self.shape.cpus(), n);
        };
        // SAFETY: the cell is the only word of each column.
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
    /// If the shape has no such CPU, or if the sum was made by [`new`](Self::new), where only a cell's
    /// own CPU writes it.
    pub fn add_on(&self, cpu: u32, n: i64) {
        let mut update = self.begin(cpu, n);
        while update.step() {}
    }

    /// Begins [`add_on`](Self::add_on). The update is in flight until all its steps are done.
    fn begin(&self, cpu: u32, n: i64) -> Update<'_> {
        assert!(self.running.is_none(), "a cell of this sum is written by its CPU alone");
        assert!(cpu < self.shape.cpus(), "CPU {cpu} of {}", self.shape.cpus());
        Update { sum: self, cpu, level: 0, carry: n }
    }

    /// Returns the sum within a bound, in one load. The error is within the shape's bounds if no update
    /// is in flight, and at most [`Shape::in_flight_bound`] larger while some are.
    pub fn approximate(&self) -> Approximation {
        // Acquire, partner of the Release in `Update::step`: a precise sum that is read next includes
        // everything that the top includes.
        let value = self.lines[self.lines.len() - 1].0.load(Ordering::Acquire) as i64;
        Approximation { value, below: self.shape.below(), above: self.shape.above() }
    }

    /// Returns the sum of all cells. It is exact if no writer is active, otherwise off by additions
    /// during the call. Costs about a nanosecond per CPU, and a line transfer for each that wrote.
    pub fn precise(&self) -> i64 {
        let cells = &self.lines[..self.shape.cpus() as usize];
        cells.iter().fold(0i64, |sum, cell| sum.wrapping_add(cell.get())).wrapping_sub(self.started)
    }
}

impl Line {
    /// Reads the word. Relaxed: a cell publishes no other data.
    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }
}

/// Returns the carry of a word that changes: the difference of the multiples below its two values. A word
/// starts at half a multiple, so this rounds to the nearest.
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
    /// Makes one atomic addition. Returns whether there is another to do.
    fn step(&mut self) -> bool {
        let shape = &self.sum.shape;
        let Some(level) = shape.levels.get(self.level) else {
            let top = &self.sum.lines[self.sum.lines.len() - 1];
            // Release, partner of the Acquire in `approximate`: a reader that sees a carry there sees the
            // cell that it came from. AcqRel below passes that on from node to node.
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

/// Compares two sums: by their tops if those are further apart than both bounds, by the precise sums
/// otherwise. The result is right whenever no update is in flight. While some are, it is right for sums
/// that are further apart than the [`in_flight_bound`](Shape::in_flight_bound) of both.
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

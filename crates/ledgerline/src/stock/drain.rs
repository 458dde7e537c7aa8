//! Taking idle units back from the cells of any CPU, from any thread.
//!
//! ```text
//! drain(top), with the stock lock:
//!   mark every stocked cell below top as frozen
//!   fence: sections that had read a word before its mark have now committed or been aborted
//!   a mark that such a section stored over: mark it again, fence again
//!   each cell (now ours): take the stock, fold the counts, cap := 0
//!     return the units to the counters, open the cell empty
//! ```
//!
//! (In that order: who looks at a cell that is empty and not frozen finds nothing of it in the usage.)

use crate::gate::lock;
use crate::ledger::{DEPTH_MAX, Ledger};
use crate::percpu::word;
use crate::sync::{Ordering, fence};
use crate::table::path::RowPath;
use std::iter::successors;

/// No caps below a group, so that what is drained stays drained, and what is returned reaches the
/// counters; allowed again when this is dropped.
pub(crate) struct HeldOff<'l> {
    ledger: &'l Ledger,
    top: u32,
}

impl<'l> HeldOff<'l> {
    /// Holds caps off, and drains.
    pub(crate) fn begin(ledger: &'l Ledger, top: u32) -> Self {
        ledger.row(top).counter.track.draining.fetch_add(1, Ordering::SeqCst);
        // Partner of the fence in `PageCounter::allow`: no cell below gets a cap from here on.
        fence(Ordering::SeqCst);
        let _pass = lock::pass();
        ledger.drain_held_off(top);
        HeldOff { ledger, top }
    }
}

impl Drop for HeldOff<'_> {
    fn drop(&mut self) {
        self.ledger.row(self.top).counter.track.draining.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ledger {
    /// As [`drain`](Self::drain), for who holds caps off there: a look at one word where nothing can lie
    /// idle below, so that a refusal does not pay for the stock of others.
    pub(crate) fn drain_held_off(&self, top: u32) {
        // SeqCst, after the caller's fence: a cap that is not seen here sees that caps are held off; and a
        // cap is taken back after what lay in its cell was returned.
        if self.row(top).counter.track.prepaid.units() != 0 {
            self.drain(top);
        }
    }

    /// Returns the idle units of a subtree to the counters; how many they were.
    ///
    /// Cells of other processes are left alone. Zero also when this thread is already draining
    /// (it is in a signal handler that interrupted itself).
    pub(crate) fn drain(&self, top: u32) -> u64 {
        let Some(_held) = lock::lock() else { return 0 };
        let mine = |row: u32| {
            self.row(row).owner.load(Ordering::Relaxed) == self.process() && self.is_below(row, top)
        };
        let cells = || {
            (0..self.columns().count()).flat_map(move |column| {
                self.stocked(column)
                    .iter()
                    .filter(move |&row| mine(row))
                    .map(move |row| (column, row))
            })
        };
        let mut any = false;
        for (column, row) in cells() {
            self.columns().freeze(column, row);
            any = true;
        }
        if !any || !self.settle_marks(cells) {
            return 0;
        }
        let mut drained = 0;
        let mut path = RowPath::blank(self);
        for (column, row) in cells() {
            let cell = self.columns().cell(column, row);
            if !path.follow(self, row) {
                // (Another process wrote nonsense.)
                cell.word.fetch_and(!word::FROZEN, Ordering::AcqRel);
                continue;
            }
            let (stock, cap) = self.empty_cell(column, &path);
            self.return_idle(&path, stock, cap);
            cell.open(word::empty(word::generation(cell.word.load(Ordering::Relaxed))));
            drained += stock;
        }
        drained
    }

    /// Whether a row lies in the subtree of `top` (which is in its own).
    fn is_below(&self, row: u32, top: u32) -> bool {
        let parent = |&row: &u32| {
            let parent = (row != 0).then(|| self.row(row).parent.load(Ordering::Relaxed))?;
            (parent < self.capacity()).then_some(parent)
        };
        top == 0 || successors(Some(row), parent).take(DEPTH_MAX).any(|row| row == top)
    }

    /// Closes all cells of one row for good, so that it can be destroyed, and returns the units that
    /// lay idle in them; how many they were. (With the lock held, as in a drain: who waits for it
    /// before it refuses a charge finds them returned.) `None` when this thread holds the stock lock already.
    pub(crate) fn close_cells(&self, path: &RowPath<'_>) -> Option<u64> {
        let _held = lock::lock()?;
        let row = path.leaf();
        let stocked = || {
            self.row(row)
                .noted_columns(self.columns().count())
                .filter(move |&column| self.is_open(column, row))
        };
        let mut remote = 0;
        for column in stocked() {
            // The running CPU's own cell needs no fence: one section takes it.
            let cell = self.columns().cell(column, row);
            let word = cell.word.load(Ordering::Acquire);
            if !self.columns().swap(column, row, word, word | word::FROZEN) {
                self.columns().freeze(column, row);
                remote += 1;
            }
        }
        if remote > 0 && !self.settle_marks(|| stocked().map(|column| (column, row))) {
            return None;
        }
        let (mut idle, mut caps) = (0, 0);
        for column in stocked() {
            let (stock, cap) = self.empty_cell(column, path);
            idle += stock;
            caps += cap;
        }
        self.return_idle(path, idle, caps);
        Some(idle)
    }

    /// Returns what was taken from cells, and then the caps that allowed it: a reader in between
    /// sees too much of the latter (read.rs).
    fn return_idle(&self, path: &RowPath<'_>, stock: u64, caps: u64) {
        if stock > 0 {
            self.return_units(path, stock);
        }
        if caps > 0 {
            for counter in path.counters() {
                counter.disallow(caps);
            }
        }
    }

    /// Whether a cell holds a cap, or serves the row's present group without one.
    fn is_open(&self, column: u32, row: u32) -> bool {
        let cell = self.columns().cell(column, row);
        cell.cap.load(Ordering::Relaxed) > 0
            || word::generation(cell.word.load(Ordering::Relaxed))
                == self.cell_generation(self.row(row))
    }

    /// Fences until every mark holds. `false` when fencing is forbidden (a sandbox entered after
    /// start-up); then the marks are taken off again.
    fn settle_marks<I: Iterator<Item = (u32, u32)>>(&self, cells: impl Fn() -> I) -> bool {
        loop {
            if !self.columns().fence() {
                for (column, row) in cells() {
                    self.columns()
                        .cell(column, row)
                        .word
                        .fetch_and(!word::FROZEN, Ordering::AcqRel);
                }
                return false;
            }
            let mut lost = false;
            for (column, row) in cells() {
                if !self.columns().is_owned(column, row) {
                    self.columns().freeze(column, row);
                    lost = true;
                }
            }
            if !lost {
                return true;
            }
        }
    }

    /// Takes everything from a frozen cell and leaves it frozen, without a cap: its stock and the
    /// cap that it had.
    fn empty_cell(&self, column: u32, path: &RowPath<'_>) -> (u64, u64) {
        let row = path.leaf();
        let cell = self.columns().cell(column, row);
        let word = cell.word.load(Ordering::Acquire);
        let cap = u64::from(cell.cap.swap(0, Ordering::Relaxed));
        self.add_counts(column, row, word);
        cell.open(word::empty(word::generation(word)) | word::FROZEN);
        self.unstock(column, row);
        (word::stock(word), cap)
    }
}

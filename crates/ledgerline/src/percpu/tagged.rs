//! Cells of statistics: a tag and several sums. The running CPU adds to one sum at a time.
//!
//! The tag names the group that the cell serves. An addition is one section that stores only while the tag
//! is as expected. A thread that clears the tag and fences owns the sums until the tag is set again.

use super::columns::Columns;
use super::registration::{COMPACT, CPU, Registration};
use super::{probe, rseq};
use crate::sync::AtomicU64;

/// The addresses of the cells: `width` bytes per row, `stride` bytes per column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagged {
    cells: *const AtomicU64,
    width: usize,
    stride: usize,
    at: Registration,
}

// SAFETY: the pointer is to shared memory that is only accessed through atomics and sections. The table
// that made this value keeps it mapped (invariant R1 in `region/mod.rs`).
unsafe impl Send for Tagged {}
// SAFETY: as above.
unsafe impl Sync for Tagged {}

impl Tagged {
    /// # Safety
    /// `cells + column * stride + row * width` is the start of `width` live bytes for each column
    /// of `columns` and each row that is ever named; a word is zero before its first use.
    pub(crate) unsafe fn new(
        cells: *const AtomicU64,
        width: usize,
        stride: usize,
        columns: &Columns,
    ) -> Self {
        Tagged { cells, width, stride, at: columns.registration() }
    }

    /// Returns a word of a cell: the tag (0), or a sum (from 1 on).
    pub(crate) fn word(&self, column: u32, row: u32, word: usize) -> &AtomicU64 {
        debug_assert!(word * 8 < self.width);
        let offset = column as usize * self.stride + row as usize * self.width + word * 8;
        // SAFETY: within the cells by `new`'s contract; callers pass checked numbers.
        unsafe { &*self.cells.byte_add(offset) }
    }

    /// Returns whether there are cells that a CPU may add to. Without sections there are none.
    pub(crate) fn is_used(&self) -> bool {
        self.at.is_some()
    }

    /// Adds `n` to a sum in the running column. Returns `false` if the cell there has another tag, or
    /// sections do not work. Async-signal-safe. Costs about a nanosecond.
    #[inline(always)]
    pub(crate) fn add(&self, row: u32, tag: u64, word: usize, n: i64) -> bool {
        debug_assert!(word > 0 && word * 8 < self.width);
        // SAFETY: there is a cell in every column that the kernel can report (`new`).
        unsafe {
            let cell = self.cells.byte_add(row as usize * self.width);
            let area = probe::fast_area();
            if area != 0 {
                return rseq::add_tagged::<COMPACT>(area, cell, self.stride, tag, word * 8, n);
            }
            // With compact ids, only a thread that is not registered yet comes here: the slow path
            // registers it.
            if let Registration::Cpu { area } = self.at.of_this_thread() {
                return rseq::add_tagged::<CPU>(area, cell, self.stride, tag, word * 8, n);
            }
        }
        false
    }
}

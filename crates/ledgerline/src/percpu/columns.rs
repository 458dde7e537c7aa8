//! Cells by column, with one interface over restartable sections and atomics.

use super::lent::Lent;
use super::machine::{columns_of_cpus, possible_cpus, shared_column};
use super::owned::Owner;
use super::registration::{COMPACT, Registration, by_index};
use super::word::{self, Cell, STRIDE_SHIFT};
use super::{Mode, lent, membarrier, probe, rseq, thread_slots};
use std::sync::atomic::{Ordering, fence};

/// The addresses of a table's cells in all columns, for the slow paths.
///
/// Local operations ([`deposit`](Self::deposit), [`swap`](Self::swap)) may be called by any thread
/// at any time, signal handlers included. The remote ones ([`freeze`](Self::freeze) …) belong to
/// the holder of the stock lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    cells: *const Cell,
    at: Registration,
    columns: u32,
    /// The end of the columns that threads own, from the start of the first column; 0 if there are none. The owned
    /// columns lie behind the first [`possible_cpus`] columns, which the threads without an owned column share.
    owned_end: usize,
}

// SAFETY: the pointer is to shared memory that is only accessed through atomics and sections. The table that made this
// value keeps it mapped (invariant R1 in `region/mod.rs`).
unsafe impl Send for Columns {}
// SAFETY: as above.
unsafe impl Sync for Columns {}

/// Takes `units <= STOCK_MAX` from the running column's stock and counts a charge, if compact ids make that fast.
/// Returns `false` otherwise, too.
///
/// # Safety
/// `cell` is [`Columns::first`] of a row, and `id` is that of the charged group.
#[inline(always)]
pub(crate) unsafe fn take_fast(cell: *const Cell, id: u64, units: u64) -> bool {
    let area = probe::fast_area();
    let delta = word::CHARGE.wrapping_sub(units);
    // SAFETY: there is a cell in every column that the kernel can report (`Columns::new`).
    area != 0 && unsafe { rseq::take::<COMPACT>(area, cell, id, delta) }
}

/// Puts `units <= STOCK_MAX` into the running column's stock and counts an uncharge, if compact ids make that fast.
/// Returns `false` otherwise, too.
///
/// # Safety
/// As for [`take_fast`].
#[inline(always)]
pub(crate) unsafe fn put_fast(cell: *const Cell, id: u64, units: u64) -> bool {
    let area = probe::fast_area();
    // SAFETY: as in `take_fast`.
    area != 0 && unsafe { rseq::put::<COMPACT>(area, cell, id, word::UNCHARGE + units) }
}

/// Like [`take_fast`], but for a caller that knows that sections are fast here.
///
/// # Safety
/// As for [`take_fast`], and [`probe::fast_area`] is not zero.
#[inline(always)]
pub(crate) unsafe fn take_known(cell: *const Cell, id: u64, units: u64) -> bool {
    let delta = word::CHARGE.wrapping_sub(units);
    // SAFETY: there is a cell in every column that the kernel can report (`Columns::new`).
    probe::serves_this_thread()
        && unsafe { rseq::take::<COMPACT>(probe::fast_area(), cell, id, delta) }
}

/// Like [`take_fast`], but for the first group in a row, and for a caller that keeps the offset of the registration.
///
/// # Safety
/// `cell` is [`Columns::first`] of a row, and `area` is [`probe::fast_area`], not zero.
#[inline(always)]
pub(crate) unsafe fn take_first(area: isize, cell: *const Cell, units: u64) -> bool {
    let delta = word::CHARGE.wrapping_sub(units);
    // SAFETY: there is a cell in every column that the kernel can report (`Columns::new`).
    probe::serves_this_thread() && unsafe { rseq::take_first::<COMPACT>(area, cell, delta) }
}

/// Like [`put_fast`], but for the first group in a row, and for a caller that keeps the offset of the registration.
///
/// # Safety
/// As for [`take_first`].
#[inline(always)]
pub(crate) unsafe fn put_first(area: isize, cell: *const Cell, units: u64) -> bool {
    // SAFETY: as in `take_first`.
    probe::serves_this_thread()
        && unsafe { rseq::put_first::<COMPACT>(area, cell, word::UNCHARGE + units) }
}

/// Like [`take_fast`], but in the ledger that is lent under a number. Also returns `false` if the number is not lent.
///
/// # Safety
/// While the number is lent there, `lent.cells` is the first column of a ledger, in which `id` names a place (R5). That
/// also holds after the number was taken away, until the remote fence.
#[inline(always)]
pub(crate) unsafe fn take_lent(lent: &Lent, number: u64, id: u64, units: u64) -> bool {
    let area = probe::fast_area();
    let delta = word::CHARGE.wrapping_sub(units);
    // SAFETY: as the caller says; there is a cell in every column that the kernel can report.
    area != 0 && unsafe { lent::take::<COMPACT>(area, lent, number, id, delta) }
}

/// Like [`put_fast`], but in the ledger that is lent under a number.
///
/// # Safety
/// As for [`take_lent`].
#[inline(always)]
pub(crate) unsafe fn put_lent(lent: &Lent, number: u64, id: u64, units: u64) -> bool {
    let area = probe::fast_area();
    let delta = word::UNCHARGE + units;
    // SAFETY: as in `take_lent`.
    area != 0 && unsafe { lent::put::<COMPACT>(area, lent, number, id, delta) }
}

impl Columns {
    /// The offset of `owned_end` in a value of this type, for `windows.rs`.
    pub(crate) const OWNED_END: usize = std::mem::offset_of!(Columns, owned_end);

    /// # Safety
    /// `cells + column * STRIDE` is the start of a live array of cells for each column below `columns`, and `columns`
    /// is at least [`columns_of_cpus`], so that every index that the kernel reports has its column. The array outlives
    /// every use of this value. If `may_own`, only this process maps the array, and maps it once, so that threads may
    /// own the columns beyond one for each CPU (W4).
    pub(crate) unsafe fn new(cells: *const Cell, columns: u32, may_own: bool) -> Self {
        let owns = may_own && super::detect() == Mode::Owned;
        let owned_end = if owns { (columns as usize) << STRIDE_SHIFT } else { 0 };
        Columns { cells, at: probe::registration(), columns, owned_end }
    }

    /// Makes columns that are only read and never charged, whatever their number.
    ///
    /// # Safety
    /// As for [`new`](Self::new), except that there may be fewer columns than CPUs.
    pub(crate) unsafe fn of_copy(cells: *const Cell, columns: u32) -> Self {
        Columns { cells, at: Registration::None, columns, owned_end: 0 }
    }

    /// Returns a row's cell in the first column, where the fast paths start.
    #[inline(always)]
    pub(crate) fn first(&self, row: u32) -> *const Cell {
        self.cells.wrapping_add(row as usize)
    }

    pub(crate) fn count(&self) -> u32 {
        self.columns
    }

    /// Returns whether [`take_fast`] and [`put_fast`] serve this machine.
    pub(crate) fn is_fast(&self) -> bool {
        matches!(self.at, Registration::Compact { .. })
    }

    pub(crate) fn registration(&self) -> Registration {
        self.at
    }

    /// Returns how the cells are updated.
    pub(crate) fn mode(&self) -> Mode {
        match (self.at, self.owned_end) {
            (Registration::Compact { .. } | Registration::Cpu { .. }, _) => Mode::Rseq,
            (Registration::None, 0) => Mode::Fallback,
            (Registration::None, _) => Mode::Owned,
        }
    }

    /// Returns the cell of a row in a column.
    #[inline(always)]
    pub(crate) fn cell(&self, column: u32, row: u32) -> &Cell {
        debug_assert!(column < self.columns);
        // SAFETY: within the array by `new`'s contract; callers pass checked rows and columns.
        unsafe { &*self.first(row).byte_add((column as usize) << STRIDE_SHIFT) }
    }

    /// Returns whether threads may own a column.
    fn is_owned(&self, column: u32) -> bool {
        column >= possible_cpus() && ((column as usize) << STRIDE_SHIFT) < self.owned_end
    }

    /// Takes `units <= STOCK_MAX` from the running column's stock and counts a charge, in any mode.
    pub(crate) fn take(&self, id: u64, units: u64) -> bool {
        self.update(id, word::CHARGE.wrapping_sub(units), false)
    }

    /// Puts `units <= STOCK_MAX` into the running column's stock and counts an uncharge.
    pub(crate) fn put(&self, id: u64, units: u64) -> bool {
        self.update(id, word::UNCHARGE + units, true)
    }

    /// Puts `units` of a refill into the running column's stock. Counts nothing.
    pub(crate) fn deposit(&self, id: u64, units: u64) -> bool {
        // Release, partner of the Acquire with which readers load the word: a reader that sees the units sees the usage
        // that includes them. A section's commit alone orders nothing on arm64; x86-64 needs no instruction for this.
        fence(Ordering::Release);
        self.update(id, units, true)
    }

    fn update(&self, id: u64, delta: u64, put: bool) -> bool {
        let cell = self.first(id as u32);
        // SAFETY: there is a cell in every column that the kernel can report (`new`), and ids name
        // places within a column (R5).
        let done = unsafe {
            if put {
                by_index!(self.at, |INDEX, area| rseq::put::<INDEX>(area, cell, id, delta))
            } else {
                by_index!(self.at, |INDEX, area| rseq::take::<INDEX>(area, cell, id, delta))
            }
        };
        // This also holds in the calling thread's own column: only this thread changes it by plain stores, and it is
        // not in a window (W1).
        done.unwrap_or_else(|| self.cell(self.current(), id as u32).update(id, delta, put))
    }

    /// Returns the column that the calling thread would use now. Under rseq it may have changed by the time the caller
    /// acts, which is why [`swap`](Self::swap) checks it again.
    pub(crate) fn current(&self) -> u32 {
        // SAFETY: the thread is registered.
        let index = unsafe { by_index!(self.at, |INDEX, area| rseq::index::<INDEX>(area)) };
        if let Some(column) = index {
            return column;
        }
        if self.owned_end > 0
            && let Some(column) = thread_slots::column()
            && self.is_owned(column)
        {
            return column;
        }
        shared_column(self.at.is_some())
    }

    /// Removes a handshake about an earlier window of the column. The caller has the stock lock, uses the column, and is
    /// about to enlarge a cell there.
    pub(crate) fn forget_handshake(&self, column: u32) {
        if self.is_owned(column)
            && let Some(owner) = thread_slots::owner(column)
        {
            owner.is_outside();
        }
    }

    /// Replaces the word of a cell in the running column. Fails if the thread has moved, the word has changed, or a
    /// drain has frozen it.
    pub(crate) fn swap(&self, column: u32, row: u32, expected: u64, new: u64) -> bool {
        let cell = self.cell(column, row);
        // SAFETY: `cell` is the row's cell in `column`. The section checks that the thread still runs there.
        let done = unsafe {
            by_index!(self.at, |INDEX, area| rseq::compare_store::<INDEX>(
                area, cell, column, expected, new
            ))
        };
        if let Some(done) = done {
            return done;
        }
        // As in `update`. The column of another owner is not the running one, and a CPU's column is not that of a
        // stranger.
        (!self.is_owned(column) && !self.at.is_some() || column == self.current())
            && cell
                .word
                .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Freezes a remote cell: the first step of taking it. The caller then calls [`fence`](Self::fence) once for all
    /// the cells that it froze, and [`is_frozen`](Self::is_frozen) for each.
    pub(crate) fn freeze(&self, column: u32, row: u32) {
        self.cell(column, row).freeze();
    }

    /// Waits for the sections that had read a word before it was frozen: the second step. It does not wait for owners
    /// (see [`seize`](Self::seize)).
    pub(crate) fn fence(&self) -> bool {
        match self.mode() {
            Mode::Rseq => membarrier::fence(),
            Mode::Owned => membarrier::fence_memory(),
            Mode::Fallback => true,
        }
    }

    /// Returns whether the cell is still frozen: the third step. A section that had read the word before the freeze,
    /// and committed before the fence, has stored over it; then the caller freezes and fences again.
    pub(crate) fn is_frozen(&self, column: u32, row: u32) -> bool {
        self.cell(column, row).word.load(Ordering::Acquire) & word::FROZEN != 0
    }

    /// Takes a cell that was still frozen after a fence: the last step. Returns its word, which the caller owns until
    /// it opens the cell. Takes nothing and returns `None` if the owner is in the middle of an update and a fence is
    /// forbidden by now.
    pub(crate) fn seize(&self, column: u32, row: u32) -> Option<u64> {
        let cell = self.cell(column, row);
        if self.is_owned(column) {
            Owner::seize(|| thread_slots::owner(column), cell, || self.fence())
        } else {
            Some(cell.word.load(Ordering::Acquire))
        }
    }
}

/// Returns how many columns a table has that only one process writes: one for each CPU, and in a process whose threads
/// own columns as many again, but between 32 and 64.
pub(crate) fn columns_in_memory() -> u32 {
    match super::detect() {
        Mode::Owned => possible_cpus() + thread_slots::owned_columns(),
        Mode::Rseq | Mode::Fallback => columns_of_cpus(),
    }
}

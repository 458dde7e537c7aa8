//! Cells by column, with one interface over restartable sections and atomics.

use super::lent::Lent;
use super::probe;
use super::registration::Registration;
use super::word::{self, Cell, STRIDE_SHIFT};
#[cfg(rseq)]
use super::{
    lent,
    registration::{COMPACT, CPU},
    rseq,
};
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
}

// SAFETY: the pointer is to shared memory that is only touched through atomics and sections; the table that
// made this value keeps it mapped (invariant R1 in `region/mod.rs`).
unsafe impl Send for Columns {}
// SAFETY: as above.
unsafe impl Sync for Columns {}

/// Takes `units <= STOCK_MAX` from the running column's stock and counts a charge, where compact ids make
/// that fast; says `false` elsewhere, too.
///
/// # Safety
/// `cell` is [`Columns::first`] of a row, and `id` that of the group that is charged.
#[inline(always)]
pub(crate) unsafe fn take_fast(cell: *const Cell, id: u64, units: u64) -> bool {
    #[cfg(rseq)]
    {
        let area = probe::fast_area();
        let delta = word::CHARGE.wrapping_sub(units);
        // SAFETY: there is a cell in every column that the kernel can report (`Columns::new`).
        area != 0 && unsafe { rseq::take::<COMPACT>(area, cell, id, delta) }
    }
    #[cfg(not(rseq))]
    {
        let _ = (cell, id, units);
        false
    }
}

/// Puts `units <= STOCK_MAX` into the running column's stock and counts an uncharge, where compact ids make
/// that fast; says `false` elsewhere, too.
///
/// # Safety
/// As [`take_fast`].
#[inline(always)]
pub(crate) unsafe fn put_fast(cell: *const Cell, id: u64, units: u64) -> bool {
    #[cfg(rseq)]
    {
        let area = probe::fast_area();
        // SAFETY: as in `take_fast`.
        area != 0 && unsafe { rseq::put::<COMPACT>(area, cell, id, word::UNCHARGE + units) }
    }
    #[cfg(not(rseq))]
    {
        let _ = (cell, id, units);
        false
    }
}

/// As [`take_fast`], for a caller that knows that sections are fast here.
///
/// # Safety
/// As [`take_fast`], and [`probe::fast_area`] is not zero.
#[inline(always)]
pub(crate) unsafe fn take_known(cell: *const Cell, id: u64, units: u64) -> bool {
    #[cfg(rseq)]
    {
        let delta = word::CHARGE.wrapping_sub(units);
        // SAFETY: there is a cell in every column that the kernel can report (`Columns::new`).
        unsafe { rseq::take::<COMPACT>(probe::fast_area(), cell, id, delta) }
    }
    #[cfg(not(rseq))]
    {
        let _ = (cell, id, units);
        false
    }
}

/// As [`take_fast`] for the first group in a row, for a caller that keeps the offset of the registration.
///
/// # Safety
/// `cell` is [`Columns::first`] of a row, and `area` is [`probe::fast_area`], not zero.
#[inline(always)]
pub(crate) unsafe fn take_first(area: isize, cell: *const Cell, units: u64) -> bool {
    #[cfg(rseq)]
    {
        let delta = word::CHARGE.wrapping_sub(units);
        // SAFETY: there is a cell in every column that the kernel can report (`Columns::new`).
        unsafe { rseq::take_first::<COMPACT>(area, cell, delta) }
    }
    #[cfg(not(rseq))]
    {
        let _ = (area, cell, units);
        false
    }
}

/// As [`put_fast`] for the first group in a row, for a caller that keeps the offset of the registration.
///
/// # Safety
/// As [`take_first`].
#[inline(always)]
pub(crate) unsafe fn put_first(area: isize, cell: *const Cell, units: u64) -> bool {
    #[cfg(rseq)]
    {
        // SAFETY: as in `take_first`.
        unsafe { rseq::put_first::<COMPACT>(area, cell, word::UNCHARGE + units) }
    }
    #[cfg(not(rseq))]
    {
        let _ = (area, cell, units);
        false
    }
}

/// As [`take_fast`] in the ledger that is lent under a number; `false`, too, if that is not lent.
///
/// # Safety
/// While the number is lent there, `lent.cells` is the first column of a ledger, in which `id` names a place
/// (R5); when it is not lent any more, that stays so until the remote fence.
#[inline(always)]
pub(crate) unsafe fn take_lent(lent: &Lent, number: u64, id: u64, units: u64) -> bool {
    #[cfg(rseq)]
    {
        let area = probe::fast_area();
        let delta = word::CHARGE.wrapping_sub(units);
        // SAFETY: as the caller says; there is a cell in every column that the kernel can report.
        area != 0 && unsafe { lent::take::<COMPACT>(area, lent, number, id, delta) }
    }
    #[cfg(not(rseq))]
    {
        let _ = (lent, number, id, units);
        false
    }
}

/// As [`put_fast`] in the ledger that is lent under a number.
///
/// # Safety
/// As [`take_lent`].
#[inline(always)]
pub(crate) unsafe fn put_lent(lent: &Lent, number: u64, id: u64, units: u64) -> bool {
    #[cfg(rseq)]
    {
        let area = probe::fast_area();
        let delta = word::UNCHARGE + units;
        // SAFETY: as in `take_lent`.
        area != 0 && unsafe { lent::put::<COMPACT>(area, lent, number, id, delta) }
    }
    #[cfg(not(rseq))]
    {
        let _ = (lent, number, id, units);
        false
    }
}

impl Columns {
    /// # Safety
    /// `cells + column * STRIDE` is the start of a live array of cells for each column below
    /// `columns`, and `columns` is at least [`possible_cpus`] (so that every index that the kernel
    /// reports has its column). The array outlives every use of this value.
    pub(crate) unsafe fn new(cells: *const Cell, columns: u32) -> Self {
        Columns { cells, at: probe::registration(), columns }
    }

    /// Columns that are read and that nobody charges, whatever their number.
    ///
    /// # Safety
    /// As [`new`](Self::new), but that there may be fewer columns than CPUs.
    pub(crate) unsafe fn of_copy(cells: *const Cell, columns: u32) -> Self {
        Columns { cells, at: Registration::None, columns }
    }

    /// A row's cell in the first column: what the fast paths start from.
    #[inline(always)]
    pub(crate) fn first(&self, row: u32) -> *const Cell {
        self.cells.wrapping_add(row as usize)
    }

    pub(crate) fn count(&self) -> u32 {
        self.columns
    }

    /// Whether [`take_fast`] and [`put_fast`] serve this machine.
    pub(crate) fn is_fast(&self) -> bool {
        matches!(self.at, Registration::Compact { .. })
    }

    pub(crate) fn registration(&self) -> Registration {
        self.at
    }

    pub(crate) fn is_rseq(&self) -> bool {
        self.at.is_some()
    }

    /// The cell of a row in a column.
    #[inline(always)]
    pub(crate) fn cell(&self, column: u32, row: u32) -> &Cell {
        debug_assert!(column < self.columns);
        // SAFETY: within the array by `new`'s contract; callers pass checked rows and columns.
        unsafe { &*self.first(row).byte_add((column as usize) << STRIDE_SHIFT) }
    }

    /// Takes `units <= STOCK_MAX` from the running column's stock and counts a charge, in any mode.
    pub(crate) fn take(&self, id: u64, units: u64) -> bool {
        self.update(id, word::CHARGE.wrapping_sub(units), false)
    }

    /// Puts `units <= STOCK_MAX` into the running column's stock and counts an uncharge.
    pub(crate) fn put(&self, id: u64, units: u64) -> bool {
        self.update(id, word::UNCHARGE + units, true)
    }

    /// Puts `units` of a refill into the running column's stock; counts nothing.
    pub(crate) fn deposit(&self, id: u64, units: u64) -> bool {
        // Release, partner of the Acquire with which readers load the word: who sees the units sees the usage that
        // holds them. (A section's commit alone orders nothing on arm64; x86-64 needs no instruction for this.)
        fence(Ordering::Release);
        self.update(id, units, true)
    }

    fn update(&self, id: u64, delta: u64, put: bool) -> bool {
        #[cfg(rseq)]
        // SAFETY: there is a cell in every column that the kernel can report (`new`), and ids name
        // places within a column (R5).
        unsafe {
            let cell = self.first(id as u32);
            match (self.at, put) {
                (Registration::Compact { area }, false) => {
                    return rseq::take::<COMPACT>(area, cell, id, delta);
                }
                (Registration::Compact { area }, true) => {
                    return rseq::put::<COMPACT>(area, cell, id, delta);
                }
                (Registration::Cpu { area }, false) => {
                    return rseq::take::<CPU>(area, cell, id, delta);
                }
                (Registration::Cpu { area }, true) => {
                    return rseq::put::<CPU>(area, cell, id, delta);
                }
                (Registration::None, _) => {}
            }
        }
        self.cell(self.current(), id as u32).update(id, delta, put)
    }

    /// The column that the calling thread would use now. Under rseq it may have changed by the
    /// time the caller acts, which is why [`swap`](Self::swap) checks it again.
    pub(crate) fn current(&self) -> u32 {
        #[cfg(rseq)]
        // SAFETY: every thread of a glibc that registered one thread is registered.
        unsafe {
            match self.at {
                Registration::Compact { area } => {
                    return rseq::index::<COMPACT>(area);
                }
                Registration::Cpu { area } => {
                    return rseq::index::<CPU>(area);
                }
                Registration::None => {}
            }
        }
        stripe() % possible_cpus()
    }

    /// Replaces the word of a cell in the running column; fails when the thread has moved, the
    /// word has changed, or a drain has frozen it.
    pub(crate) fn swap(&self, column: u32, row: u32, expected: u64, new: u64) -> bool {
        let cell = self.cell(column, row);
        #[cfg(rseq)]
        // SAFETY: `cell` is the row's cell in `column`; the section checks that the thread still
        // runs there.
        unsafe {
            use rseq::compare_store;
            match self.at {
                Registration::Compact { area } => {
                    return compare_store::<COMPACT>(area, cell, column, expected, new);
                }
                Registration::Cpu { area } => {
                    return compare_store::<CPU>(area, cell, column, expected, new);
                }
                Registration::None => {}
            }
        }
        cell.word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// First step of taking a remote cell: freezes it. The caller then calls [`fence`](Self::fence) once
    /// for all the cells that it froze, and [`is_owned`](Self::is_owned) for each.
    pub(crate) fn freeze(&self, column: u32, row: u32) {
        self.cell(column, row).freeze();
    }

    /// Second step: waits for the sections that had read a word before it was frozen.
    pub(crate) fn fence(&self) -> bool {
        !self.at.is_some() || super::membarrier::fence()
    }

    /// Third step: whether the cell is still frozen. A section that had read the word before that, and
    /// committed before the fence, has stored over it; then the caller freezes and fences again.
    pub(crate) fn is_owned(&self, column: u32, row: u32) -> bool {
        self.cell(column, row).word.load(Ordering::Acquire) & word::FROZEN != 0
    }
}

/// The calling thread's stripe in the fallback: its thread pointer, mixed.
pub(crate) fn stripe() -> u32 {
    // Fibonacci hashing: thread control blocks lie a stack apart, so the low bits say nothing.
    ((thread_pointer() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// The calling thread's thread pointer: no other living thread has it, and it is never zero. Needs
/// no thread-local variable, so it works in the first and the last instruction of a thread's life.
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    // SAFETY: the first word of the thread control block points to itself on x86-64 ELF systems.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags, pure));
    }
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    // SAFETY: reads the thread pointer register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags, pure));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
    {
        thread_local!(static HERE: u8 = const { 0 });
        pointer = HERE.with(|here| std::ptr::from_ref(here) as usize);
    }
    pointer
}

/// How many CPUs this machine may ever have: no CPU number and no compact id reaches it.
///
/// Read from `/sys/devices/system/cpu/possible` without allocating; where that cannot be read, the
/// larger of the configured CPUs and 1 024 (address space is cheap, a wild index is not).
pub(crate) fn possible_cpus() -> u32 {
    static FOUND: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut text = [0u8; 256];
        // SAFETY: opens a NUL-terminated path, reads at most the buffer's length into it, closes.
        let length = unsafe {
            let file = libc::open(
                c"/sys/devices/system/cpu/possible".as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            );
            if file < 0 {
                0
            } else {
                let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
                libc::close(file);
                length.max(0) as usize
            }
        };
        last_cpu(&text[..length]).map_or_else(
            || {
                // SAFETY: sysconf takes a constant and has no preconditions.
                let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
                u32::try_from(configured).unwrap_or(1).max(1024)
            },
            |last| last.saturating_add(1),
        )
    })
}

/// The last number of a list like `0-3,8-11`.
fn last_cpu(list: &[u8]) -> Option<u32> {
    let list = list.trim_ascii_end();
    let start = list.iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    std::str::from_utf8(&list[start..]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_list_is_found() {
        assert_eq!(last_cpu(b"0-1\n"), Some(1));
        assert_eq!(last_cpu(b"0\n"), Some(0));
        assert_eq!(last_cpu(b"0-3,8-11"), Some(11));
        assert_eq!(last_cpu(b""), None);
        assert_eq!(last_cpu(b"0-\n"), None);
    }

    #[test]
    fn the_current_column_is_always_below_the_count() {
        assert!(possible_cpus() >= 1);
        assert!(std::thread::available_parallelism().unwrap().get() <= possible_cpus() as usize);
    }
}

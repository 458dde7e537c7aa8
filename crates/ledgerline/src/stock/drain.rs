//! A drain takes idle units back from the cells of any CPU and the thread caches of any thread.
//!
//! ```text
//! drain(top), with the stock lock:
//!   freeze every stocked cell below top, and every open thread cache
//!   fence: sections that had read a word before it was frozen have now committed or been aborted
//!   such a section stored over a frozen word: freeze it again, fence again
//!   each cell (now ours, wherever its owner is): take the stock, fold the counts, cap := 0
//!     return the units to the counters, open the cell empty (a thread cache stays closed)
//! ```
//!
//! The order matters: if a reader finds a cell empty and not frozen, the usage holds none of its units.

use super::returns;
use crate::gate::lock;
use crate::percpu::thread_cache::places::{self, Moving};
use crate::percpu::thread_cache::{self, ThreadCache};
use crate::percpu::word;
use crate::sync::{Ordering, fence};
use crate::table::path::{DEPTH_MAX, RowPath};
use crate::table::{self, Table, counts};
use std::iter::successors;

/// While this lives, no cell below a group gets a cap. So drained cells stay empty, and returned units reach the
/// counters.
pub(crate) struct HeldOff<'l> {
    table: &'l Table,
    top: u32,
}

impl<'l> HeldOff<'l> {
    /// Holds caps off, and drains the subtree.
    pub(crate) fn begin(table: &'l Table, top: u32) -> Self {
        table.row(top).counter.track.draining.fetch_add(1, Ordering::SeqCst);
        // Partner of the fence in `PageCounter::allow`: no cell below gets a cap from here on.
        fence(Ordering::SeqCst);
        let _pass = lock::pass();
        held_off(table, top);
        HeldOff { table, top }
    }
}

impl Drop for HeldOff<'_> {
    fn drop(&mut self) {
        self.table.row(self.top).counter.track.draining.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Like [`subtree`], but for a caller that holds caps off there. If nothing can lie idle below, it reads only one
/// word, so that a refusal does not pay for the stock of other groups.
pub(crate) fn held_off(table: &Table, top: u32) {
    // SeqCst, after the caller's fence: a thread whose cap is not seen here sees that caps are held off. A cap is
    // taken back only after its cell's stock was returned.
    if table.row(top).counter.track.prepaid.units() != 0 {
        subtree(table, top);
    }
}

/// Returns the idle units of a subtree to the counters. The result is their number.
///
/// Leaves cells of other processes alone. The result is also zero if this thread is draining already, that is, in a
/// signal handler that interrupted the drain.
pub(crate) fn subtree(table: &Table, top: u32) -> u64 {
    let Some(_held) = lock::lock() else { return 0 };
    let mine = |row: u32| table.is_mine(row) && is_below(table, row, top);
    let cells = || {
        (0..table.columns.count()).flat_map(move |column| {
            table.stocked(column).iter().filter(move |&row| mine(row)).map(move |row| (column, row))
        })
    };
    let thread_caches = |see: &mut dyn FnMut(u32, &'static ThreadCache)| {
        table::thread_caches::each(table, |id, thread_cache| {
            if mine(id.index()) {
                see(id.index(), thread_cache);
            }
        });
    };
    let mut any = false;
    for (column, row) in cells() {
        table.columns.freeze(column, row);
        any = true;
    }
    thread_caches(&mut |_, thread_cache| {
        thread_cache.freeze();
        any = true;
    });
    if !any || !fence_until_frozen(table, cells, thread_caches) {
        return 0;
    }
    let mut drained = 0;
    let mut path = RowPath::blank(table);
    thread_caches(&mut |row, thread_cache| {
        if path.follow(table, row) {
            let (units, cap) = empty_thread_cache(table, &path, thread_cache);
            return_idle(table, &path, units, cap);
            places::note(thread_cache, false);
            drained += units;
        } else {
            thread_cache.thaw();
        }
    });
    for (column, row) in cells() {
        let cell = table.columns.cell(column, row);
        if !path.follow(table, row) {
            // Another process wrote over the row.
            cell.word.fetch_and(!word::FROZEN, Ordering::AcqRel);
            continue;
        }
        let Some((stock, cap)) = empty_cell(table, column, &path) else { continue };
        return_idle(table, &path, stock, cap);
        cell.open(word::empty(word::generation(cell.word.load(Ordering::Relaxed))));
        drained += stock;
    }
    drained
}

/// Returns whether a row is `top` or lies below it.
fn is_below(table: &Table, row: u32, top: u32) -> bool {
    let parent = |&row: &u32| {
        let parent = (row != 0).then(|| table.row(row).parent.load(Ordering::Relaxed))?;
        (parent < table.capacity()).then_some(parent)
    };
    top == 0 || successors(Some(row), parent).take(DEPTH_MAX).any(|row| row == top)
}

/// Closes all cells and thread caches of rows for good, so that they can be destroyed, and returns the units that lay idle in
/// them. Calls `closed` with the position of each row in `rows` and the number of its units. The number is `None` if
/// this thread holds the stock lock already. It holds the lock, like a drain: a thread that waits for the lock before
/// it refuses a charge finds the units returned. One fence serves all rows.
pub(crate) fn close_cells(table: &Table, rows: &[u32], closed: &mut dyn FnMut(usize, Option<u64>)) {
    let held = lock::lock();
    if held.is_none() || !take_cells(table, rows) {
        return (0..rows.len()).for_each(|at| closed(at, None));
    }
    let mut path = RowPath::blank(table);
    for (at, &row) in rows.iter().enumerate() {
        if path.follow(table, row) {
            closed(at, empty_row(table, &path));
        } else {
            // Another process wrote over the row.
            thaw_row(table, row);
            closed(at, None);
        }
    }
}

/// Gives the cells and thread caches of a row back to their owners as they are.
fn thaw_row(table: &Table, row: u32) {
    for column in stocked(table, row) {
        table.columns.cell(column, row).word.fetch_and(!word::FROZEN, Ordering::AcqRel);
    }
    table::thread_caches::each_of_row(table, row, ThreadCache::thaw);
}

/// Returns the columns in which a row has cells that are open or hold a cap.
fn stocked(table: &Table, row: u32) -> impl Iterator<Item = u32> {
    let noted = table.row(row).noted_columns(table.columns.count());
    noted.filter(move |&column| is_open(table, column, row))
}

/// Takes over all cells and thread caches of rows. The caller has the stock lock. Returns `false` if fencing is forbidden.
fn take_cells(table: &Table, rows: &[u32]) -> bool {
    let cells =
        || rows.iter().flat_map(|&row| stocked(table, row).map(move |column| (column, row)));
    let thread_caches = |see: &mut dyn FnMut(u32, &'static ThreadCache)| {
        for &row in rows {
            table::thread_caches::each_of_row(table, row, |thread_cache| see(row, thread_cache));
        }
    };
    let mut remote = 0;
    for (column, row) in cells() {
        // The running CPU's own cell needs no fence: one section takes it.
        let cell = table.columns.cell(column, row);
        let word = cell.word.load(Ordering::Acquire);
        if !table.columns.swap(column, row, word, word | word::FROZEN) {
            table.columns.freeze(column, row);
            remote += 1;
        }
    }
    thread_caches(&mut |_, thread_cache| {
        // This thread's own thread cache needs no fence either: no other thread takes from it.
        thread_cache.freeze();
        remote += usize::from(!thread_cache.is_of(lock::thread()));
    });
    remote == 0 || fence_until_frozen(table, cells, thread_caches)
}

/// Returns the idle units in the cells and thread caches of one row, which the caller has taken over.
fn empty_row(table: &Table, path: &RowPath<'_>) -> Option<u64> {
    let row = path.leaf();
    let thread_caches = |see: &mut dyn FnMut(&'static ThreadCache)| {
        table::thread_caches::each_of_row(table, row, see);
    };
    let (mut idle, mut caps, mut all) = (0, 0, true);
    thread_caches(&mut |thread_cache| {
        let (units, cap) = empty_thread_cache(table, path, thread_cache);
        idle += units;
        caps += cap;
    });
    for column in stocked(table, row) {
        match empty_cell(table, column, path) {
            Some((stock, cap)) => {
                idle += stock;
                caps += cap;
            }
            None => all = false,
        }
    }
    return_idle(table, path, idle, caps);
    thread_caches(&mut |thread_cache| places::note(thread_cache, false));
    all.then_some(idle)
}

/// Returns units that were taken from cells, and then the caps that allowed them. A reader in between sees too large a
/// bound, never too small a one (`report/estimate.rs`).
pub(super) fn return_idle(table: &Table, path: &RowPath<'_>, stock: u64, caps: u64) {
    if stock > 0 {
        returns::idle(table, path, stock);
    }
    if caps > 0 {
        for counter in path.counters() {
            counter.disallow(caps);
        }
    }
}

/// Returns whether a cell holds a cap, or serves the row's present group without one.
fn is_open(table: &Table, column: u32, row: u32) -> bool {
    let cell = table.columns.cell(column, row);
    cell.cap.load(Ordering::Relaxed) > 0
        || word::generation(cell.word.load(Ordering::Relaxed))
            == table.cell_generation(table.row(row))
}

/// How often cells are frozen again. A section stores over a frozen word at most once, so more than a few times means
/// that another program writes over the ledger.
pub(super) const ROUNDS: usize = 100;

/// Fences until every cell and thread cache is still frozen after a fence. Returns `false` if fencing is forbidden (by a
/// sandbox entered after start-up), or if cells do not stay frozen; then all are thawed.
fn fence_until_frozen<I: Iterator<Item = (u32, u32)>>(
    table: &Table,
    cells: impl Fn() -> I,
    thread_caches: impl Fn(&mut dyn FnMut(u32, &'static ThreadCache)),
) -> bool {
    for _ in 0..ROUNDS {
        if !table.columns.fence() {
            break;
        }
        let mut lost = false;
        for (column, row) in cells() {
            if !table.columns.is_frozen(column, row) {
                table.columns.freeze(column, row);
                lost = true;
            }
        }
        thread_caches(&mut |_, thread_cache| {
            if !thread_cache::is_frozen(thread_cache.word()) {
                thread_cache.freeze();
                lost = true;
            }
        });
        if !lost {
            return true;
        }
    }
    for (column, row) in cells() {
        table.columns.cell(column, row).word.fetch_and(!word::FROZEN, Ordering::AcqRel);
    }
    thread_caches(&mut |_, thread_cache| thread_cache.thaw());
    false
}

/// Takes everything from a frozen cell, and leaves it frozen and without a cap. Returns the stock and the cap that it
/// had. If fencing is forbidden by now and the cell cannot be taken, thaws it and returns `None`.
fn empty_cell(table: &Table, column: u32, path: &RowPath<'_>) -> Option<(u64, u64)> {
    let row = path.leaf();
    let cell = table.columns.cell(column, row);
    let Some(word) = table.columns.seize(column, row) else {
        cell.word.fetch_and(!word::FROZEN, Ordering::AcqRel);
        return None;
    };
    let cap = u64::from(cell.cap.swap(0, Ordering::Relaxed));
    counts::fold(table, column, row, word);
    cell.open(word::empty(word::generation(word)) | word::FROZEN);
    table.unstock(column, row);
    Some((word::stock(word), cap))
}

/// Takes everything from a thread cache that the caller has taken over, and closes it. Returns its units and its cap. Once
/// the caller has returned these, it notes that the thread cache is not open: until then the thread cache shows that a drain has
/// it.
pub(super) fn empty_thread_cache(
    table: &Table,
    path: &RowPath<'_>,
    thread_cache: &ThreadCache,
) -> (u64, u64) {
    let _moving = Moving::begin();
    let (word, most) = thread_cache.close();
    counts::add(table, table.columns.current(), path.leaf(), thread_cache::counts(word));
    (thread_cache::units(word), most)
}

//! Tries one cell again: the fast path did not look at it, or only a full count kept it from serving.

use crate::percpu::word;
use crate::sync::Ordering;
use crate::table::handle::CAPACITY_MAX;
use crate::table::id::GroupId;
use crate::table::{Table, counts};

/// Takes from the running column's cell, if the fast path has not looked at it.
#[inline]
pub(super) fn take_unlooked(table: &Table, id: GroupId, n: u64) -> bool {
    unlooked(table, id) && n <= word::STOCK_MAX && table.columns.take(table.cell_id(id), n)
}

/// Puts into the running column's cell, if the fast path has not looked at it.
#[inline]
pub(super) fn put_unlooked(table: &Table, id: GroupId, n: u64) -> bool {
    unlooked(table, id) && n <= word::STOCK_MAX && table.columns.put(table.cell_id(id), n)
}

/// Returns whether the fast path has not looked at the cell, because it serves neither this machine nor a
/// ledger that keeps flows or is audited.
fn unlooked(table: &Table, id: GroupId) -> bool {
    (!table.columns.is_fast() || table.detour != 0) && id.index() < CAPACITY_MAX as u32
}

/// Folds a full count, if only that kept the cell from serving, and takes. This is by far the most common
/// slow step (one operation in 127). It comes before every other step and reads nothing else: in a loop
/// over many groups each further line of the ledger is a cache miss.
#[inline]
pub(crate) fn fold_and_take(table: &Table, id: GroupId, n: u64) -> bool {
    serves(table, id, n) && fold_if_full(table, id) && table.columns.take(table.cell_id(id), n)
}

/// Like `fold_and_take`, but puts units back.
#[inline]
pub(crate) fn fold_and_put(table: &Table, id: GroupId, n: u64) -> bool {
    serves(table, id, n) && fold_if_full(table, id) && table.columns.put(table.cell_id(id), n)
}

/// Returns whether a cell of the ledger may serve such a request, if there is one.
#[inline(always)]
fn serves(table: &Table, id: GroupId, n: u64) -> bool {
    table.detour == 0 && n <= word::STOCK_MAX && id.index() < table.capacity()
}

/// Moves a full count from the word of the running column's cell to the counts beside it.
pub(super) fn fold_if_full(table: &Table, id: GroupId) -> bool {
    if id.index() >= table.capacity() {
        return false;
    }
    let column = table.columns.current();
    let word = table.columns.cell(column, id.index()).word.load(Ordering::Relaxed);
    let folded = word::counts_full(word)
        && word::passes(word, table.cell_id(id))
        && table.columns.swap(column, id.index(), word, word::without_counts(word));
    if folded {
        counts::fold(table, column, id.index(), word);
    }
    folded
}

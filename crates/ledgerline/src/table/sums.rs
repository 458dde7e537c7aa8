//! Groups count more than their units: the cells also hold sums, for the group and for its subtree. The lines of
//! `memory.stat` are made of these (`report/memory_stat.rs`).
//!
//! ```text
//! add(group, item, n)                                 collect, with the stock lock
//!   the running CPU's cell has the group's tag:         clear the tag of every cell that changed
//!     add n to the item's sum there: done               fence: no section that saw a tag still runs
//!   otherwise, with the stock lock: note that           each of them: move its sums to the totals of
//!     the cell changed, set its tag, add again            the row, and of the subtree of every ancestor
//!   the lock is taken: add to the totals instead
//! ```
//!
//! So a cell holds the additions since it was last collected. A reader pays for the changes since the last reading, times
//! the depth: an idle group costs nothing, however many CPUs ran it. The blocks (charges and uncharges) are counted in the
//! charge words anyway, and the events in the rows. The totals remember how many of them were collected (`COUNTED`), and a
//! reader drains the subtree, which folds the words.
//!
//! Invariant T1: while a cell's tag is set, only sections of the tag's group write its sums; while it is
//! not set, only the holder of the stock lock writes them, after the fence. A thread that sets a tag holds
//! the lock too. Invariant T2: a row whose cell has a tag, or whose counts changed, is in the column's set
//! of changed rows.
//!
//! In the fallback without sections, and for rows of other processes, additions go to the totals at once. That costs two
//! atomic additions a level.

use super::Table;
use super::id::GroupId;
use super::path::RowPath;
use super::row::state;
use crate::gate::lock::{self, Held};
use crate::sync::Ordering;

/// The sums of a cell. The program's own items follow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Sum {
    Charged,
    Freed,
    Refused,
    Reclaimed,
    /// How often charges were slowed down, and for how many microseconds (`control/throttle.rs`).
    Throttled,
    ThrottledTime,
    /// Events (`control/events.rs`) that the rows do not count themselves.
    Low,
    Oom,
    OomKill,
    OomGroupKill,
}

/// How many sums every ledger has.
pub(crate) const FIXED: usize = 10;
/// How many words the totals have before the sums: charges and uncharges (the blocks), `max` and `high` events, and
/// changes of limits. The rows count these elsewhere; the totals hold the part that was collected.
pub(crate) const COUNTED: usize = 5;
/// How many of those are copies of a row's counts. The last one, of changes of limits, is moved to the totals instead.
pub(crate) const EVENTS: usize = 4;
pub(crate) const CHANGES: usize = 4;
/// How many of those are blocks. A freed row passes them on with the counts in its columns.
pub(crate) const BLOCKS: usize = 2;

/// The words of a row's cell: the tag and the sums.
pub(crate) const fn cell_words(items: usize) -> usize {
    1 + FIXED + items
}

/// The words of a row's totals: the row's own and its subtree's.
pub(crate) const fn total_words(items: usize) -> usize {
    2 * (COUNTED + FIXED + items)
}

/// Adds to a sum that the ledger itself keeps. Does nothing for a group that is gone by now: its charges are refused.
#[inline]
pub(crate) fn note(table: &Table, id: GroupId, sum: Sum, n: i64) {
    if !add_fast(table, id, sum as usize, n) {
        let _known = add_slow(table, id, sum as usize, n);
    }
}

/// Adds units charged or freed, in a ledger that keeps flows.
pub(crate) fn note_flow(table: &Table, id: GroupId, sum: Sum, n: u64) {
    if table.flows && n != 0 {
        note(table, id, sum, n as i64);
    }
}

/// Adds if the running CPU's cell already serves the group. Returns whether it did.
#[inline]
pub(crate) fn add_fast(table: &Table, id: GroupId, sum: usize, n: i64) -> bool {
    id.index() < table.capacity() && table.statistics.add(id.index(), id.raw(), 1 + sum, n)
}

/// Adds after [`add_fast`] did not. Returns `false` if there is no such group.
#[cold]
#[inline(never)]
pub(crate) fn add_slow(table: &Table, id: GroupId, sum: usize, n: i64) -> bool {
    let _pass = lock::pass();
    let Some(path) = RowPath::of(table, id).filter(|path| path.is_current(table)) else {
        return false;
    };
    let cells = &table.statistics;
    if cells.is_used() && table.is_mine(path.leaf()) {
        // Tries twice: the thread may move to another column whose cell is closed.
        for _ in 0..2 {
            let Some(held) = lock::try_lock() else { break };
            if !open_sums(table, &held, &path, id) {
                break;
            }
            drop(held);
            if cells.add(id.index(), id.raw(), 1 + sum, n) {
                return true;
            }
        }
    }
    add_totals(table, &path, COUNTED + sum, n as u64);
    true
}

/// Sets the tag of the group's cell in the running column. Returns `false` if the group is being destroyed.
fn open_sums(table: &Table, _held: &Held, path: &RowPath<'_>, id: GroupId) -> bool {
    let row = table.row(path.leaf());
    if row.state.load(Ordering::SeqCst) != state::LIVE || !path.is_current(table) {
        return false;
    }
    let column = table.columns.current();
    row.note_statistics(column);
    table.changed(column).insert(path.leaf());
    // Release, partner of the section's load (x86 keeps the order): the sums are as the last collection left them.
    table.statistics.word(column, path.leaf(), 0).store(id.raw(), Ordering::Release);
    true
}

/// Adds to the totals of a row and of its ancestors' subtrees.
pub(super) fn add_totals(table: &Table, path: &RowPath<'_>, word: usize, n: u64) {
    table.row(path.leaf()).note_totals();
    table.total(path.leaf(), word).fetch_add(n, Ordering::Relaxed);
    add_subtrees(table, path, word, n);
}

/// Adds to the totals of all subtrees that a row is in.
pub(super) fn add_subtrees(table: &Table, path: &RowPath<'_>, word: usize, n: u64) {
    let words = total_words(table.plan.items) / 2;
    for &row in path.rows() {
        table.row(row).note_totals();
        table.total(row, words + word).fetch_add(n, Ordering::Relaxed);
    }
}

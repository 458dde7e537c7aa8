//! Folds the row of an ended process into another row, which takes over its counts, and frees the row for a new group.
//!
//! Only the settler (`stock/settler.rs`) changes rows of ended processes, so no other change of the row races with this.
//! A reader that looks at both rows in between may count the moved numbers twice, or not at all.

use super::row::state;
use super::{Table, allocate, collect, counts};
use crate::gate::lock::Held;
use crate::sync::Ordering;

/// Folds a row whose units were returned before into another below the same parent. The topmost row of a process also
/// hands over its peak and the units that it held at its end.
pub(crate) fn fold(table: &Table, _held: &Held, index: u32, into: u32, is_top: bool) {
    let (row, heir) = (table.row(index), table.row(into));
    if is_top {
        heir.counter.raise_to_peak_of(&row.counter);
        heir.at_exit.fetch_add(row.at_exit.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    row.begin_change();
    heir.counter.inherit_events(&row.counter);
    collect::hand_over(table, index, into);
    counts::hand_over(table, index, into);
    row.counter.abandon();
    let parent = row.parent.load(Ordering::Relaxed).min(table.capacity() - 1);
    allocate::free(table, index);
    table.row(parent).remove_child();
}

/// Returns the topmost row of the ended process that a row belongs to, if all rows on the way there are settled.
pub(crate) fn top(table: &Table, index: u32) -> Option<u32> {
    let owner = table.row(index).owner.load(Ordering::Relaxed);
    let mut at = index;
    for _ in 0..super::path::DEPTH_MAX {
        let row = table.row(at);
        let is_over = matches!(row.state.load(Ordering::Acquire), state::SETTLED | state::RETIRED);
        if owner == 0 || !is_over || row.owner.load(Ordering::Relaxed) != owner {
            return None;
        }
        let parent = row.parent.load(Ordering::Relaxed).min(table.capacity() - 1);
        if table.row(parent).owner.load(Ordering::Relaxed) != owner {
            return (row.state.load(Ordering::Acquire) == state::SETTLED).then_some(at);
        }
        at = parent;
    }
    None
}

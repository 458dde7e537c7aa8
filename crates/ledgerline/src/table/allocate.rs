//! Takes a row when a group is created, and frees it when the group's last unit is returned.

use super::id::GroupId;
use super::path::RowPath;
use super::row::state;
use super::{DETOUR, Table, collect, counts};
use crate::counter::walk::Emptied;
use crate::gate::lock;
use crate::sync::{AtomicU32, Ordering};
use std::iter::repeat_with;

/// How many rows are tried for a new group. If all tried rows are in use, another program wrote over the ledger's free
/// list or its number of rows.
const TRIES: usize = 64;

/// Takes a row for a new group below `parent`. The caller has already counted the group among the parent's children.
pub(crate) fn allocate(
    table: &Table,
    parent: u32,
    depth: u32,
    owner: u32,
    name: &str,
) -> Option<GroupId> {
    let free =
        |&index: &u32| index != 0 && table.row(index).state.load(Ordering::Acquire) == state::FREE;
    // A row that is in use, or was never used, does not belong on the free list, so dropping it is no loss.
    let freed = |index: &u32| free(index) && table.row(*index).generation() != 0;
    let reused = repeat_with(|| reuse(table)).take(TRIES).map_while(|row| row).find(freed);
    let fresh = || repeat_with(|| take_fresh(table)).take(TRIES).map_while(|row| row).find(free);
    let index = reused.or_else(fresh)?;
    let row = table.row(index);
    row.begin_change();
    row.counter.reset();
    row.forget_statistics();
    // No group has the generation `GroupId::NO_GENERATION`, with or without the detour's bit.
    let last = if table.detour != 0 { !DETOUR - 1 } else { GroupId::NO_GENERATION - 1 };
    let generation = row.begin(parent, depth, owner, name, last);
    Some(GroupId::from_parts(index, generation))
}

/// Frees a row that has no open cell, no charge and no child.
pub(super) fn free(table: &Table, index: u32) {
    let row = table.row(index);
    row.state.store(state::FREE, Ordering::Release);
    // The parent becomes the next free row.
    row.begin_change();
    table.header().given.free.push(index, &row.parent);
}

/// Frees a destroyed group's row whose last unit was returned. The row's counts move to its parent, so that the counts of
/// a subtree never run backwards.
pub(crate) fn recycle(table: &Table, index: u32) {
    let row = table.row(index);
    row.begin_change();
    let parent = row.parent.load(Ordering::Relaxed).min(table.capacity() - 1);
    // Neither a collection nor a reader may see half of this change.
    let counted = row.has_statistics() || row.columns_noted() != 0;
    let _held = row.has_statistics().then(lock::lock);
    let _under_way = counted.then(|| table.collections().begin());
    collect::hand_up(table, index, parent);
    counts::hand_over(table, index, parent);
    free(table, index);
}

fn reuse(table: &Table) -> Option<u32> {
    table.header().given.free.pop(|row| (row < table.capacity()).then(|| &table.row(row).parent))
}

fn take_fresh(table: &Table) -> Option<u32> {
    take_next(&table.header().given.high_water, table.capacity(), |told| table.rows_used(told))
}

/// Takes the first row that was never used. `used` returns the number of rows ever used, given the header's number.
fn take_next(word: &AtomicU32, capacity: u32, used: impl Fn(u32) -> u32) -> Option<u32> {
    let mut told = word.load(Ordering::Acquire);
    loop {
        let next = used(told);
        let exchange =
            || word.compare_exchange_weak(told, next + 1, Ordering::AcqRel, Ordering::Relaxed);
        if next < capacity && exchange().is_ok() {
            return Some(next);
        }
        // If the number grew in the meantime, `told` is stale: the row behind it is now in use, just as if another
        // program had written over the number.
        let now = word.load(Ordering::Acquire);
        if next >= capacity && now == told {
            return None;
        }
        told = now;
    }
}

/// Recycles the rows of a path whose last unit a walk returned.
pub(crate) fn recycle_emptied(table: &Table, path: &RowPath<'_>, emptied: Emptied) {
    for level in emptied.levels() {
        recycle(table, path.row(level));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_number_of_rows_that_grows_meanwhile_does_not_make_a_ledger_full() {
        let (word, looked) = (AtomicU32::new(4), Cell::new(0));
        let used = |told| {
            looked.set(looked.get() + 1);
            if looked.get() == 1 {
                // Another thread takes the row and uses it: `told` now looks wrong, and all rows look used.
                word.store(told + 1, Ordering::Release);
                return 256;
            }
            told
        };
        assert_eq!(take_next(&word, 256, used), Some(5));
        assert_eq!(take_next(&word, 256, |_| 256), None);
    }
}

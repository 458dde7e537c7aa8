//! Takes a row when a group is made, and frees it when the group's last unit is returned.

use super::id::GroupId;
use super::path::RowPath;
use super::row::state;
use super::{DETOUR, Table, collect, counts};
use crate::counter::walk::Emptied;
use crate::gate::lock;
use crate::sync::{AtomicU32, Ordering};
use std::iter::repeat_with;

/// How many rows are tried for a new group. All but the first are in use, so the ledger's free list, or its number
/// of rows, was written over.
const TRIES: usize = 64;

/// Takes a row for a new group below `parent`, in whose children the caller has counted it.
pub(crate) fn allocate(
    table: &Table,
    parent: u32,
    depth: u32,
    owner: u32,
    name: &str,
) -> Option<GroupId> {
    let free =
        |&index: &u32| index != 0 && table.row(index).state.load(Ordering::Acquire) == state::FREE;
    // (A row that is in use, or never was, is no loss to the list: it did not belong there.)
    let freed = |index: &u32| free(index) && table.row(*index).generation() != 0;
    let reused = repeat_with(|| reuse(table)).take(TRIES).map_while(|row| row).find(freed);
    let fresh = || repeat_with(|| take_fresh(table)).take(TRIES).map_while(|row| row).find(free);
    let index = reused.or_else(fresh)?;
    let row = table.row(index);
    row.begin_change();
    row.counter.reset();
    row.forget_statistics();
    // No group has the last generation (`GroupId::NO_GENERATION`), with the detour's bit or without.
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

/// Frees a destroyed group's row whose last unit was returned. Its parent gets what it counted, so that the
/// counts of a subtree never run backwards.
pub(crate) fn recycle(table: &Table, index: u32) {
    let row = table.row(index);
    row.begin_change();
    let parent = row.parent.load(Ordering::Relaxed).min(table.capacity() - 1);
    // A collection must not see one half of this, nor must a reader.
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

/// Takes the first row that was never used. `used` says how many were, where the number in the header is `told`.
fn take_next(word: &AtomicU32, capacity: u32, used: impl Fn(u32) -> u32) -> Option<u32> {
    let mut told = word.load(Ordering::Acquire);
    loop {
        let next = used(told);
        let exchange =
            || word.compare_exchange_weak(told, next + 1, Ordering::AcqRel, Ordering::Relaxed);
        if next < capacity && exchange().is_ok() {
            return Some(next);
        }
        // What was told says nothing if it grew meanwhile: the row behind it is in use by now, as if somebody had
        // written over the number.
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
                // Somebody takes the row and uses it: now it looks as if the number were wrong, and all rows in use.
                word.store(told + 1, Ordering::Release);
                return 256;
            }
            told
        };
        assert_eq!(take_next(&word, 256, used), Some(5));
        assert_eq!(take_next(&word, 256, |_| 256), None);
    }
}

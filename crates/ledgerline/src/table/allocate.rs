//! Takes a row when a group is made, and frees it when the group's last unit is returned.

use super::id::GroupId;
use super::path::RowPath;
use super::row::state;
use super::{DETOUR, Table, collect};
use crate::counter::walk::Emptied;
use crate::gate::lock;
use crate::sync::Ordering;

/// Takes a row for a new group below `parent`, in whose children the caller has counted it.
pub(crate) fn allocate(
    table: &Table,
    parent: u32,
    depth: u32,
    owner: u32,
    name: &str,
) -> Option<GroupId> {
    let index = reuse(table).or_else(|| take_fresh(table))?;
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
fn free(table: &Table, index: u32) {
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
    let column = table.columns.current();
    // A collection must not see one half of this.
    let _held = row.has_statistics().then(lock::lock);
    collect::hand_up(table, index, parent);
    for from in row.noted_columns(table.columns.count()) {
        let counts = table.counts(from, index);
        let charges = counts.charges.swap(0, Ordering::Relaxed);
        let uncharges = counts.uncharges.swap(0, Ordering::Relaxed);
        if charges | uncharges != 0 {
            table.row(parent).note_column(column);
            let inherited = table.counts(column, parent);
            inherited.charges.fetch_add(charges, Ordering::Relaxed);
            inherited.uncharges.fetch_add(uncharges, Ordering::Relaxed);
            table.note_changed(column, parent);
        }
    }
    row.forget_columns();
    free(table, index);
}

fn reuse(table: &Table) -> Option<u32> {
    table.header().given.free.pop(|row| (row < table.capacity()).then(|| &table.row(row).parent))
}

fn take_fresh(table: &Table) -> Option<u32> {
    let capacity = table.capacity();
    table
        .header()
        .given
        .high_water
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            (used < capacity).then(|| used + 1)
        })
        .ok()
}

/// Recycles the rows of a path whose last unit a walk returned.
pub(crate) fn recycle_emptied(table: &Table, path: &RowPath<'_>, emptied: Emptied) {
    for level in emptied.levels() {
        recycle(table, path.row(level));
    }
}

//! Returns units to the counters of a path, and notifies the waiters there.

use crate::counter::walk;
use crate::table::path::RowPath;
use crate::table::{Table, allocate};

/// Returns units. The result is `false`, and nothing is returned, if the path holds fewer.
pub(crate) fn units(table: &Table, path: &RowPath<'_>, n: u64) -> bool {
    let (emptied, result) = walk::uncharge(path.counters(), n);
    if result.is_err() {
        table.count_underflow();
    }
    table.heads.tell(path.rows());
    allocate::recycle_emptied(table, path, emptied);
    result.is_ok()
}

/// Returns units that lay idle in cells of the path's row. If a mistaken uncharge has put more there than the group
/// holds, it returns as much as the group holds, and counts the mistake. Otherwise those units would stay charged for
/// ever.
pub(crate) fn idle(table: &Table, path: &RowPath<'_>, n: u64) {
    if !units(table, path, n) {
        let held = path.counters()[0].usage().min(n);
        if held > 0 {
            units(table, path, held);
        }
    }
}

//! Returns units to the counters of a path, and tells the waiters there.

use crate::counter::walk;
use crate::table::path::RowPath;
use crate::table::{Table, allocate};

/// Returns units. Says `false`, and returns nothing, if they are more than there were.
pub(crate) fn units(table: &Table, path: &RowPath<'_>, n: u64) -> bool {
    let (emptied, result) = walk::uncharge(path.counters(), n);
    if result.is_err() {
        table.count_underflow();
    }
    table.heads.tell(path.rows());
    allocate::recycle_emptied(table, path, emptied);
    result.is_ok()
}

/// Returns units that lay idle in cells of the path's row. A mistaken uncharge may have put more there than the group has: then it
/// returns what the group has, and the mistake is counted. (Otherwise that would stay charged for ever.)
pub(crate) fn idle(table: &Table, path: &RowPath<'_>, n: u64) {
    if !units(table, path, n) {
        let held = path.counters()[0].usage().min(n);
        if held > 0 {
            units(table, path, held);
        }
    }
}

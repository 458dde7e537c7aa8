//! The open purses of a table, and the rows that they belong to.

use super::Table;
use super::handle::Packed;
use super::id::GroupId;
use crate::percpu::purse::{Purse, places};

/// Calls `see` for each open purse of a table, with the purse's group. A caller with the stock lock sees all of them, and
/// none changes its group meanwhile.
pub(crate) fn each(table: &Table, mut see: impl FnMut(GroupId, &'static Purse)) {
    places::each_open(|purse| {
        // The table is checked first: a purse opened for another table's group is skipped, whatever that group is.
        if purse.table() == address(table)
            && let Some(group) = Packed::from_raw(purse.group())
            && group.unpack().id().index() < table.capacity()
        {
            see(group.unpack().id(), purse);
        }
    });
}

/// Calls `see` for each open purse of a row's present group.
pub(crate) fn each_of_row(table: &Table, index: u32, mut see: impl FnMut(&'static Purse)) {
    let id = table.id(index);
    each(table, |of, purse| {
        if of == id {
            see(purse);
        }
    });
}

/// Returns the number by which a purse names its table.
pub(crate) fn address(table: &Table) -> usize {
    std::ptr::from_ref(table).addr()
}

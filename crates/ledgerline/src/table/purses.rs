//! Which rows the open purses are of.

use super::Table;
use super::handle::Packed;
use super::id::GroupId;
use crate::percpu::purse::{Purse, places};

/// Shows the purses of a table that are open, each with its group. Who has the stock lock sees all of them, and none that
/// changes its group meanwhile.
pub(crate) fn each(table: &Table, mut see: impl FnMut(GroupId, &'static Purse)) {
    places::each_open(|purse| {
        // (The table first: a purse that is opened for a group of another is none of this one's, whatever its group.)
        if purse.table() == address(table)
            && let Some(group) = Packed::from_raw(purse.group())
            && group.unpack().id().index() < table.capacity()
        {
            see(group.unpack().id(), purse);
        }
    });
}

/// Shows the open purses of a row's present group.
pub(crate) fn each_of_row(table: &Table, index: u32, mut see: impl FnMut(&'static Purse)) {
    let id = table.id(index);
    each(table, |of, purse| {
        if of == id {
            see(purse);
        }
    });
}

/// What a purse has as its table.
pub(crate) fn address(table: &Table) -> usize {
    std::ptr::from_ref(table).addr()
}

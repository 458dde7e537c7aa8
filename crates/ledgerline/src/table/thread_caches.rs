//! The open thread caches of a table, and the rows that they belong to.

use super::Table;
use super::handle::Packed;
use super::id::GroupId;
use crate::percpu::thread_cache::{ThreadCache, places};

/// Calls `see` for each open thread cache of a table, with the thread cache's group. A caller with the stock lock sees all of
/// them, and none changes its group meanwhile.
pub(crate) fn each(table: &Table, mut see: impl FnMut(GroupId, &'static ThreadCache)) {
    places::each_open(|thread_cache| {
        // The table is checked first: a thread cache opened for another table's group is skipped, whatever that group is.
        if thread_cache.table() == address(table)
            && let Some(group) = Packed::from_raw(thread_cache.group())
            && group.unpack().id().index() < table.capacity()
        {
            see(group.unpack().id(), thread_cache);
        }
    });
}

/// Calls `see` for each open thread cache of a row's present group.
pub(crate) fn each_of_row(table: &Table, index: u32, mut see: impl FnMut(&'static ThreadCache)) {
    let id = table.id(index);
    each(table, |of, thread_cache| {
        if of == id {
            see(thread_cache);
        }
    });
}

/// Returns the number by which a thread cache names its table.
pub(crate) fn address(table: &Table) -> usize {
    std::ptr::from_ref(table).addr()
}

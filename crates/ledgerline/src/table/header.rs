//! The first page of a ledger's region, and the counts beside the cells.

use super::items::{ITEMS_MAX, Name};
use crate::counter::transfers::Transfers;
use crate::region::free_list::FreeList;
use crate::sync::{AtomicU32, AtomicU64};

/// The first page of the region: what never changes, and on pairs of lines of their own what is written by
/// those who make groups, who transfer, and who collect (layout.toml).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) columns: AtomicU32,
    pub(crate) capacity: AtomicU32,
    /// How many items the ledger has of its own; their names are below.
    pub(crate) item_count: AtomicU32,
    pub(crate) batch: AtomicU64,
    /// Whether the units charged and freed are counted: 0 or 1.
    pub(crate) flows: AtomicU32,
    /// Whether charges are followed (audit.rs): 0 or 1.
    pub(crate) audit: AtomicU32,
    pub(crate) given: GivenRows,
    /// Transfers from group to group (transfers.rs).
    pub(super) transfers: Transfers,
    pub(super) collections: Collections,
    /// Uncharges of more than was charged, and of groups that do not exist: bugs of the caller.
    pub(crate) underflows: AtomicU64,
    pub(crate) strays: AtomicU64,
    /// The same, of groups that exist, where charges are followed (audit.rs).
    pub(crate) audited: AtomicU64,
    pub(crate) items: [Name; ITEMS_MAX],
}

/// Which rows have been given to groups: written whenever a group is made or its row comes back.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct GivenRows {
    /// Rows that were ever used: those from here on are untouched.
    pub(crate) high_water: AtomicU32,
    pub(crate) free: FreeList,
}

/// Collections of statistics, begun and ended (sums.rs).
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Collections(pub(super) [AtomicU64; 2]);

/// What was counted in a column beyond what the charge words hold.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) charges: AtomicU64,
    pub(crate) uncharges: AtomicU64,
}

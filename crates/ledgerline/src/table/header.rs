//! The first page of a ledger's region, and the counts beside the cells.

use super::items::{ITEMS_MAX, Name};
use crate::counter::moves::Moves;
use crate::region::free_list::FreeList;
use crate::sync::{AtomicU32, AtomicU64};
use crate::wake::eventcount::Eventcount;

/// "LEDGLINE" in ASCII, so that `file` and a hex dump show what the file is.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"LEDGLINE");
/// Changes whenever the meaning of any byte of the region changes.
pub(crate) const VERSION: u32 = 11;

/// The first page of the region. It holds constants, and on separate line pairs the words written by threads that create
/// groups, that transfer, and that collect (`layout.toml`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) columns: AtomicU32,
    pub(crate) capacity: AtomicU32,
    /// How many items of its own the ledger has; their names are below.
    pub(crate) item_count: AtomicU32,
    pub(crate) batch: AtomicU64,
    /// Whether the units charged and freed are counted: 0 or 1.
    pub(crate) flows: AtomicU32,
    /// Whether charges are followed (`control/audit.rs`): 0 or 1.
    pub(crate) audit: AtomicU32,
    /// Whether only the process that created the ledger may set limits: 0 or 1.
    pub(crate) makers_limits: AtomicU32,
    pub(crate) given: GivenRows,
    /// Transfers from group to group (`counter/moves.rs`).
    pub(super) transfers: Moves,
    pub(super) collections: Moves,
    /// Uncharges of more than was charged, and of groups that do not exist. Both are bugs of the caller.
    pub(crate) underflows: AtomicU64,
    pub(crate) strays: AtomicU64,
    /// Uncharges of existing groups that returned units no charge had taken. Counted only where charges are followed
    /// (`control/audit.rs`).
    pub(crate) audited: AtomicU64,
    /// How many processes had too little address space for the ledger.
    pub(crate) turned_away: AtomicU64,
    /// Counts changes of limits, for the threads of all processes that are notified of them (`control/listener.rs`).
    pub(crate) changes: Eventcount,
    pub(crate) items: [Name; ITEMS_MAX],
}

/// Which rows have been given to groups. Written when a group is created or its row is freed.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct GivenRows {
    /// How many rows were ever used: the rows from this number on are untouched.
    pub(crate) high_water: AtomicU32,
    pub(crate) free: FreeList,
    /// Which process settles rows (`stock/settler.rs`).
    pub(crate) settler: AtomicU64,
}

/// The counts of a row in one column beyond what its charge word holds.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) charges: AtomicU64,
    pub(crate) uncharges: AtomicU64,
}

//! The table holds all of a ledger, in one region.
//!
//! ```text
//! +--------+------------------------+-------------------+-------+----------------+---   ---+------------+--------+
//! | header | rows: capacity x 256 B | two sets of rows  | local | column 0       | ...      | statistics | totals |
//! |        |                        | for each column   | page  | cells | counts |          | by column  | by row |
//! +--------+------------------------+-------------------+-------+----------------+---   ---+------------+--------+
//! ```
//!
//! The whole region is reserved at once, but costs memory only where it is touched: a row when its group is created, a
//! cell when its CPU first charges that group.
//!
//! The *local page* belongs to this process alone, even where the rest is a file that other processes map. It holds the
//! [`Table`] with the addresses of all parts, and the state that acts on it (`control/mod.rs`). It lies at a fixed distance
//! before the first column, so the address of a group's cell leads to it, and a handle needs nothing else to find the
//! ledger (`ledger.rs`).
//!
//! To spare address space, the part of each column beyond the ledger's rows may stay unmapped (`region/parts.rs`).
//!
//! Invariant R5: a row number with which a cell is found lies within a column. A column has room for `CAPACITY_MAX` cells,
//! whatever the ledger's capacity, unless address space is spared: then such a number is below the capacity, and nothing
//! is lent by number (`charge/lease.rs`). A row number with which a row is found lies within the rows. The first column
//! begins at a multiple of its own size (`handle.rs`).

pub(crate) mod allocate;
pub(crate) mod attached;
pub(crate) mod collect;
pub(crate) mod copy;
pub(crate) mod counts;
pub(crate) mod fold;
pub(crate) mod follow;
pub(crate) mod handle;
pub(crate) mod header;
pub(crate) mod id;
pub(crate) mod items;
pub mod name;
pub(crate) mod names;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod row;
pub(crate) mod sums;
pub(crate) mod thread_caches;

use crate::counter::IMPOSSIBLE;
use crate::counter::moves::Moves;
use crate::percpu::{Columns, STRIDE, Tagged};
use crate::region::Region;
use crate::region::row_set::RowSet;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wake::queue_head::QueueHeads;
use handle::CAPACITY_MAX;
use header::{Counts, Header, MAGIC, VERSION};
use id::GroupId;
use plan::Plan;
use row::Row;
use std::io;

/// Of any so many consecutive rows below the highest row ever used, at least one was used.
const WINDOW: u32 = 256;

/// See [`Table::detour`].
pub(crate) const DETOUR: u16 = 1 << 15;

/// The settings of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) plan: Plan,
    pub(crate) batch: u64,
    /// Whether the units charged and freed are counted.
    pub(crate) flows: bool,
    /// Whether charges are followed (`control/audit.rs`).
    pub(crate) audit: bool,
    /// Whether another process made the ledger.
    pub(crate) opened: bool,
    /// Whether only the process that created the ledger may set limits.
    pub(crate) makers_limits: bool,
}

/// The addresses of a ledger's parts in this process. The fields that the commonest slow step reads (folding a full count,
/// `stock/cell.rs`) come first and lie together: in a loop over many groups each of these lines is a miss.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Columns,
    /// A bit in the generation of cells where flows are kept or charges are followed, otherwise zero. The ids of groups do
    /// not have it, so the fast path, which does neither, finds no cell open.
    pub(crate) detour: u16,
    /// Whether the units charged and freed are counted.
    pub(crate) flows: bool,
    /// Whether another process made the ledger.
    pub(crate) opened: bool,
    /// Whether this process may set limits.
    pub(crate) steerable: bool,
    /// How many rows have a place in the columns (R5).
    pub(crate) places: u32,
    pub(crate) plan: Plan,
    region: Region,
    rows: *const Row,
    header: *const Header,
    pub(crate) batch: u64,
    pub(crate) statistics: Tagged,
    /// The head of a wait queue for each row.
    pub(crate) heads: QueueHeads,
}

/// Returns how many rows were ever used, given the header's number `told`. Rows are used in order, so the row behind the
/// last was never used, and one of the rows right before it was. A thread or process that creates a group takes its row a
/// moment before it uses it, or never uses it if it is killed in between. If `told` contradicts this, another program
/// wrote over it, and the number is found by a search of the rows.
fn rows_used(told: u32, capacity: u32, used: impl Fn(u32) -> bool) -> u32 {
    let end = told.clamp(1, capacity);
    let last = || (end.saturating_sub(WINDOW)..end).rev().any(&used);
    if told == end && (end == capacity || !used(end)) && last() {
        return end;
    }
    // The windows in use are the first ones. `partition_point` would need a slice.
    let (mut first, mut behind) = (0, capacity.div_ceil(WINDOW));
    while first < behind {
        let middle = (first + behind) / 2;
        let window = middle * WINDOW..((middle + 1) * WINDOW).min(capacity);
        if window.clone().any(&used) { first = middle + 1 } else { behind = middle }
    }
    (first * WINDOW).clamp(1, capacity)
}

impl Table {
    /// Finds the parts in a region of `plan.size()` bytes.
    pub(crate) fn new(settings: Settings, region: Region) -> io::Result<Table> {
        let plan = settings.plan;
        region.make_private(plan.local(), Plan::LOCAL)?;
        // SAFETY: `plan.size()` bytes are mapped, which is where `plan` puts the columns; there are at least as many
        // columns as possible CPUs; `region` moves into the same value (`lay_out`). A region that is not shared is in no
        // file, so no other process maps it.
        let columns = unsafe {
            Columns::new(region.at(plan.first_column()), plan.columns as u32, !region.is_shared())
        };
        Table::lay_out(settings, region, columns, plan.capacity)
    }

    /// Finds the parts in a region that holds a copy of a ledger (`copy.rs`). It may have fewer columns than this machine
    /// has CPUs, since a copy is never charged.
    pub(super) fn of_copy(settings: Settings, region: Region) -> io::Result<Table> {
        let plan = settings.plan;
        // SAFETY: as in `new`.
        let columns =
            unsafe { Columns::of_copy(region.at(plan.first_column()), plan.columns as u32) };
        // No thread waits in a copy.
        Table::lay_out(settings, region, columns, 1)
    }

    fn lay_out(
        settings: Settings,
        region: Region,
        columns: Columns,
        heads: usize,
    ) -> io::Result<Table> {
        let Settings { plan, batch, flows, audit, opened, makers_limits } = settings;
        // SAFETY: likewise; `statistics_width` bytes a row and `statistics_stride` a column.
        let statistics = unsafe {
            let cells = region.at(plan.statistics());
            Tagged::new(cells, plan.statistics_width(), plan.statistics_stride(), &columns)
        };
        let places = if region.is_whole() { CAPACITY_MAX } else { plan.capacity };
        Ok(Table {
            columns,
            places: places as u32,
            detour: if flows || audit { DETOUR } else { 0 },
            flows,
            opened,
            steerable: !(opened && makers_limits),
            plan,
            rows: region.at(Plan::ROWS),
            header: region.at(0),
            region,
            batch,
            statistics,
            heads: QueueHeads::new(heads)?,
        })
    }

    /// Returns the address of the local page.
    pub(crate) fn local<T>(&self) -> *mut T {
        self.region.at::<T>(self.plan.local()).cast_mut()
    }

    /// Returns the region, which must be unmapped last of all.
    pub(crate) fn into_region(self) -> Region {
        self.region
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the id as the cells know it. If no charge takes the fast path, its generation is one that no handle has.
    #[inline]
    pub(crate) fn cell_id(&self, id: GroupId) -> u64 {
        id.raw() | u64::from(self.detour) << 48
    }

    /// Returns the generation of a row's present group as its cells know it.
    pub(crate) fn cell_generation(&self, row: &Row) -> u16 {
        row.generation() | self.detour
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.region.is_shared()
    }

    /// Returns the most groups that can exist at a time.
    pub(crate) fn capacity(&self) -> u32 {
        self.plan.capacity as u32
    }

    /// Returns how many rows were ever used.
    pub(crate) fn high_water(&self) -> u32 {
        self.rows_used(self.header().given.high_water.load(Ordering::Acquire))
    }

    /// Returns how many rows were ever used, given the header's number `told`.
    pub(crate) fn rows_used(&self, told: u32) -> u32 {
        rows_used(told, self.capacity(), |row| self.row(row).generation() != 0)
    }

    /// Returns the process whose rows may be charged through this table; 0 in a ledger of one process.
    pub(crate) fn process(&self) -> u32 {
        match (self.is_shared(), attached::process()) {
            (false, _) => 0,
            // Rows without an attached process are written by the process that created the ledger.
            (true, 0) if self.opened => u32::MAX,
            (true, process) => process,
        }
    }

    /// Returns the id of a row's present group.
    pub(crate) fn id(&self, row: u32) -> GroupId {
        GroupId::from_parts(row, self.row(row).generation())
    }

    /// Returns whether a row takes charges.
    pub(crate) fn is_live(&self, row: u32) -> bool {
        self.row(row).state.load(Ordering::Acquire) == row::state::LIVE
    }

    /// Returns whether this process writes a row's cells.
    pub(crate) fn is_mine(&self, row: u32) -> bool {
        self.row(row).owner.load(Ordering::Relaxed) == self.process()
    }

    pub(crate) fn count_underflow(&self) {
        self.header().underflows.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_stray(&self) {
        self.header().strays.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the header differs from what this process read when it opened the ledger, or holds impossible
    /// numbers: another program wrote over it.
    pub(crate) fn is_header_damaged(&self) -> bool {
        let header = self.header();
        let told = header.given.high_water.load(Ordering::Acquire);
        let number = |word: &AtomicU32| word.load(Ordering::Relaxed) as usize;
        let mistakes = [&header.underflows, &header.strays, &header.audited];
        header.magic.load(Ordering::Relaxed) != MAGIC
            || number(&header.version) != VERSION as usize
            || number(&header.columns) != self.plan.columns
            || number(&header.capacity) != self.plan.capacity
            || number(&header.item_count) != self.plan.items
            || header.batch.load(Ordering::Relaxed) != self.batch
            || number(&header.flows) != usize::from(self.flows)
            || number(&header.audit) > 1
            || number(&header.makers_limits) > 1
            // Rows that were taken meanwhile are far fewer than a window.
            || self.rows_used(told).abs_diff(told) > WINDOW
            || mistakes.into_iter().any(|count| count.load(Ordering::Relaxed) > IMPOSSIBLE)
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header is at the start of the mapped region and is all atomics.
        unsafe { &*self.header }
    }

    pub(crate) fn row(&self, index: u32) -> &Row {
        assert!((index as usize) < self.plan.capacity, "row {index} of {}", self.plan.capacity);
        // SAFETY: below the capacity, so inside the region; rows are all atomics.
        unsafe { &*self.rows.add(index as usize) }
    }

    #[inline]
    pub(crate) fn counts(&self, column: u32, row: u32) -> &Counts {
        assert!((row as usize) < self.plan.capacity && column < self.columns.count());
        let offset = self.plan.first_column()
            + column as usize * STRIDE
            + self.plan.counts()
            + row as usize * size_of::<Counts>();
        // SAFETY: `at` checks the bounds; counts are all atomics.
        unsafe { &*self.region.at(offset) }
    }

    /// Returns the set of rows whose cell in this column holds a cap.
    pub(crate) fn stocked(&self, column: u32) -> RowSet<'_> {
        assert!(column < self.columns.count());
        self.set(column as usize)
    }

    /// Returns the set of rows whose statistics in this column changed since they were collected.
    pub(crate) fn changed(&self, column: u32) -> RowSet<'_> {
        assert!(column < self.columns.count());
        self.set(self.plan.columns + column as usize)
    }

    /// Removes a row from a column's set of [`stocked`](Self::stocked) rows.
    pub(crate) fn unstock(&self, column: u32, row: u32) {
        let set = self.stocked(column);
        if self.is_shared() { set.remove_shared(row) } else { set.remove(row) }
    }

    /// Notes that a row's counts or sums in a column changed (T2).
    pub(crate) fn note_changed(&self, column: u32, row: u32) {
        let changed = self.changed(column);
        if !changed.contains(row) {
            changed.insert(row);
        }
    }

    fn set(&self, number: usize) -> RowSet<'_> {
        let offset = self.plan.sets() + number * self.plan.set_size();
        // SAFETY: `plan` leaves `RowSet::size` bytes there, touched as atomics only.
        unsafe { RowSet::new(self.region.at(offset), self.plan.capacity) }
    }

    /// Returns a word of a row's totals.
    pub(crate) fn total(&self, row: u32, word: usize) -> &AtomicU64 {
        assert!((row as usize) < self.plan.capacity);
        assert!(word < sums::total_words(self.plan.items));
        let offset = self.plan.totals() + row as usize * self.plan.totals_width() + word * 8;
        // SAFETY: `at` checks the bounds; totals are all atomics.
        unsafe { &*self.region.at(offset) }
    }

    /// Returns the words of a row's totals.
    pub(crate) fn totals(&self, row: u32) -> &[AtomicU64] {
        let words = sums::total_words(self.plan.items);
        let [first, last] = [0, words - 1].map(|word| self.total(row, word));
        // SAFETY: `total` checks the bounds of both, and the words lie one after the other.
        unsafe {
            let first = std::ptr::from_ref(first);
            debug_assert_eq!(std::ptr::from_ref(last), first.add(words - 1));
            std::slice::from_raw_parts(first, words)
        }
    }

    pub(crate) fn transfers(&self) -> &Moves {
        &self.header().transfers
    }

    pub(crate) fn collections(&self) -> &Moves {
        &self.header().collections
    }
}

//! Where everything of a ledger lies: one region, planned from two numbers.
//!
//! ```text
//! +--------+------------------------+-------------------+-------+----------------+---   ---+------------+--------+
//! | header | rows: capacity x 256 B | two sets of rows  | local | column 0       | ...      | statistics | totals |
//! |        |                        | for each column   | page  | cells | counts |          | by column  | by row |
//! +--------+------------------------+-------------------+-------+----------------+---   ---+------------+--------+
//! ```
//!
//! All of it is reserved at once and touched by use: a row when its group is created, a cell when
//! its CPU first charges that group.
//!
//! The *local page* is this process's own, also where the rest is a file that others map: it holds
//! the [`Table`], the addresses of all that. It lies at a fixed distance before the first column, so
//! the address of a group's cell leads to it, and a handle needs nothing else to find the ledger
//! ([`Table::of`]).
//!
//! Invariant R2: a row number that reaches the cells lies within a column (which has room for
//! `CAPACITY_MAX` cells, whatever the ledger's capacity); one that reaches the rows, within those. The
//! first column begins at a multiple of its own size (handle.rs).

pub(crate) mod follow;
pub(crate) mod handle;
pub(crate) mod items;
pub mod name;
pub(crate) mod path;
pub(crate) mod row;

use crate::control::audit::Audit;
use crate::control::events::Watchers;
use crate::control::pressure::Pressure;
use crate::control::victim::Victims;
use crate::control::wait_queue::WaitQueues;
use crate::counter::transfers::Transfers;
use crate::ledger::Ledger;
use crate::percpu::word::Cell;
use crate::percpu::{Columns, STRIDE, Tagged};
use crate::region::free_list::FreeList;
use crate::region::row_set::RowSet;
use crate::region::{Place, Region};
use crate::report::memory_stat;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::table::handle::{CAPACITY_MAX, Handle};
use crate::table::items::{ITEMS_MAX, Name};
use crate::table::row::Row;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::Duration;

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
    transfers: Transfers,
    collections: Collections,
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

/// Collections of statistics, begun and ended (memory_stat.rs).
#[repr(C, align(128))]
#[derive(Debug)]
struct Collections([AtomicU64; 2]);

const _: () = assert!(size_of::<Header>() <= Plan::PAGE);

/// What was counted in a column beyond what the charge words hold.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) charges: AtomicU64,
    pub(crate) uncharges: AtomicU64,
}

/// Where everything lies, from the two numbers that decide it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) capacity: usize,
    pub(crate) columns: usize,
    /// Items of statistics beyond the fixed ones.
    pub(crate) items: usize,
}

impl Plan {
    pub(crate) const PAGE: usize = 4096;
    const ROWS: usize = Plan::PAGE;
    /// The largest page of any machine: a mapping of its own starts and ends at one.
    const LOCAL: usize = 1 << 16;
    /// In a column: the counts lie behind the cells, at a fixed place.
    const COUNTS: usize = CAPACITY_MAX * size_of::<Cell>();

    const fn pages(bytes: usize) -> usize {
        bytes.next_multiple_of(Plan::PAGE)
    }

    const fn sets(self) -> usize {
        Plan::ROWS + Plan::pages(self.capacity * size_of::<Row>())
    }

    const fn set_size(self) -> usize {
        Plan::pages(RowSet::size(self.capacity))
    }

    const fn local(self) -> usize {
        (self.sets() + 2 * self.columns * self.set_size()).next_multiple_of(Plan::LOCAL)
    }

    const fn first_column(self) -> usize {
        self.local() + Plan::LOCAL
    }

    const fn statistics(self) -> usize {
        self.first_column() + self.columns * STRIDE
    }

    /// A row's cell of statistics begins on a line.
    const fn statistics_width(self) -> usize {
        (memory_stat::cell_words(self.items) * 8).next_multiple_of(64)
    }

    const fn statistics_stride(self) -> usize {
        Plan::pages(self.capacity * self.statistics_width())
    }

    const fn totals(self) -> usize {
        self.statistics() + self.columns * self.statistics_stride()
    }

    const fn totals_width(self) -> usize {
        (memory_stat::total_words(self.items) * 8).next_multiple_of(64)
    }

    /// Where the region is to lie: such that the first column begins at a multiple of its size.
    pub(crate) const fn place(self) -> Place {
        Place { offset: self.first_column(), alignment: handle::ALIGNMENT }
    }

    /// Bytes of the whole region.
    pub(crate) const fn size(self) -> usize {
        self.totals() + Plan::pages(self.capacity * self.totals_width())
    }
}

const _: () = assert!(Plan::COUNTS + CAPACITY_MAX * size_of::<Counts>() <= STRIDE);
const _: () = assert!(size_of::<Table>() <= Plan::LOCAL);

/// See [`Table::detour`].
pub(crate) const DETOUR: u16 = 1 << 15;

/// What decides how a table is laid.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) plan: Plan,
    pub(crate) batch: u64,
    pub(crate) flows: bool,
    pub(crate) audit: Option<Audit>,
    pub(crate) opened: bool,
    pub(crate) reclaim_time: Duration,
    pub(crate) throttle_time: Duration,
    pub(crate) victim_time: Duration,
}

/// The addresses of a ledger's parts in this process. Lives in the local page of its own region. What the
/// commonest slow step looks at (a full count is folded, stock.rs) comes first and lies together: in a walk
/// over many groups each of these lines is a miss.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    /// What [`Group::ledger`](crate::Group::ledger) refers to. Not dropped with the table: the
    /// ledger that drops the table is another copy of it.
    ledger: ManuallyDrop<Ledger>,
    pub(crate) columns: Columns,
    /// In the generation of cells where flows are kept or charges are followed: the ids of groups do
    /// not have it, so the fast path, which does neither, finds no cell open (ledger.rs).
    pub(crate) detour: u16,
    /// Whether the units charged and freed are counted.
    pub(crate) flows: bool,
    /// Whether another process made the ledger.
    pub(crate) opened: bool,
    pub(crate) plan: Plan,
    region: Region,
    rows: *const Row,
    header: *const Header,
    pub(crate) batch: u64,
    /// Follows the charges, where that was asked for.
    pub(crate) audit: Option<Box<Audit>>,
    pub(crate) statistics: Tagged,
    pub(crate) waiting: WaitQueues,
    pub(crate) pressure: Pressure,
    pub(crate) victims: Victims,
    /// Held by whoever changes the mode of a subtree.
    pub(crate) modes: Mutex<()>,
    pub(crate) reclaim_time: Duration,
    pub(crate) throttle_time: Duration,
    pub(crate) victim_time: Duration,
    pub(crate) watchers: Watchers,
}

impl Table {
    /// Lays a table over a region of `plan.size()` bytes, in the region's local page. The caller
    /// drops it with [`unmap`](Self::unmap).
    pub(crate) fn lay(settings: Settings, region: Region) -> io::Result<NonNull<Table>> {
        let Settings { plan, batch, flows, audit, opened, .. } = settings;
        let Settings { reclaim_time, throttle_time, victim_time, .. } = settings;
        region.make_private(plan.local(), Plan::LOCAL)?;
        // SAFETY: `plan.size()` bytes are mapped, which is where `plan` puts the columns; they are
        // at least as many as CPUs are possible; `region` moves into the same value.
        let columns = unsafe { Columns::new(region.at(plan.first_column()), plan.columns as u32) };
        // SAFETY: likewise; `statistics_width` bytes a row and `statistics_stride` a column.
        let statistics = unsafe {
            let cells = region.at(plan.statistics());
            Tagged::new(cells, plan.statistics_width(), plan.statistics_stride(), &columns)
        };
        let place = NonNull::new(region.at::<Table>(plan.local()).cast_mut())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let table = Table {
            columns,
            plan,
            batch,
            statistics,
            detour: if flows || audit.is_some() { DETOUR } else { 0 },
            flows,
            audit: audit.map(Box::new),
            opened,
            watchers: Watchers::new(),
            pressure: Pressure::new(),
            waiting: WaitQueues::new(plan.capacity)?,
            modes: Mutex::new(()),
            victims: Victims::new(),
            reclaim_time,
            throttle_time,
            victim_time,
            rows: region.at(Plan::ROWS),
            header: region.at(0),
            region,
            ledger: ManuallyDrop::new(Ledger::over(place)),
        };
        // SAFETY: the place is mapped (as long as the region, which stays until `unmap`), aligned,
        // large enough, and nobody else knows it yet.
        unsafe { place.write(table) };
        Ok(place)
    }

    /// Unmaps the region that a table lies in.
    ///
    /// # Safety
    /// The table was made by [`lay`](Self::lay), and neither it nor anything in its region is used
    /// afterwards.
    pub(crate) unsafe fn unmap(table: NonNull<Table>) {
        // SAFETY: the table is valid; what owns something outside of the region is moved out before
        // the region's memory goes.
        unsafe {
            drop((&raw const (*table.as_ptr()).pressure).read());
            drop((&raw const (*table.as_ptr()).waiting).read());
            drop((&raw const (*table.as_ptr()).victims).read());
            drop((&raw const (*table.as_ptr()).audit).read());
            drop((&raw const (*table.as_ptr()).region).read());
        }
    }

    /// The table that a group's cell belongs to.
    ///
    /// # Safety
    /// The handle is of a table that is still mapped (R2).
    #[inline(always)]
    pub(crate) unsafe fn of<'t>(handle: Handle) -> &'t Table {
        // SAFETY: the table lies `Plan::LOCAL` before the first column (`Plan::first_column`), which
        // begins where the handle says (R2; guarded by `handle::tests` and every test that charges).
        unsafe { &*handle.column().byte_sub(Plan::LOCAL).cast() }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
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
            + Plan::COUNTS
            + row as usize * size_of::<Counts>();
        // SAFETY: `at` checks the bounds; counts are all atomics.
        unsafe { &*self.region.at(offset) }
    }

    /// The rows whose cell in this column holds a cap.
    pub(crate) fn stocked(&self, column: u32) -> RowSet<'_> {
        assert!(column < self.columns.count());
        self.set(column as usize)
    }

    /// The rows whose statistics in this column changed since they were collected.
    pub(crate) fn changed(&self, column: u32) -> RowSet<'_> {
        assert!(column < self.columns.count());
        self.set(self.plan.columns + column as usize)
    }

    fn set(&self, number: usize) -> RowSet<'_> {
        let offset = self.plan.sets() + number * self.plan.set_size();
        // SAFETY: `plan` leaves `RowSet::size` bytes there, touched as atomics only.
        unsafe { RowSet::new(self.region.at(offset), self.plan.capacity) }
    }

    /// A word of a row's totals.
    pub(crate) fn total(&self, row: u32, word: usize) -> &AtomicU64 {
        assert!((row as usize) < self.plan.capacity);
        assert!(word < memory_stat::total_words(self.plan.items));
        let offset = self.plan.totals() + row as usize * self.plan.totals_width() + word * 8;
        // SAFETY: `at` checks the bounds; totals are all atomics.
        unsafe { &*self.region.at(offset) }
    }

    pub(crate) fn transfers(&self) -> &Transfers {
        &self.header().transfers
    }

    /// Collections of statistics so far, if none is under way: two equal answers, and nothing was
    /// moved from the cells to the totals in between.
    pub(crate) fn collections(&self) -> Option<u64> {
        // Acquire, partners of the Release below. First those ended: equal numbers mean that at some
        // moment in between none was under way.
        let Collections([begun, ended]) = &self.header().collections;
        let ended = ended.load(Ordering::Acquire);
        (begun.load(Ordering::Acquire) == ended).then_some(ended)
    }

    pub(crate) fn begin_collection(&self) {
        self.header().collections.0[0].fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_collection(&self) {
        self.header().collections.0[1].fetch_add(1, Ordering::Release);
    }
}

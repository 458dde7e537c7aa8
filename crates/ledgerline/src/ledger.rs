//! Ledgers: made in memory or in a file, opened, looked into. Where their parts lie is in `table.rs`.

use crate::error::OpenError;
use crate::item_names;
use crate::path::RowPath;
use crate::percpu::{Columns, Mode, possible_cpus};
use crate::region::Region;
use crate::row::{GroupId, Row, state};
use crate::row_set::RowSet;
use crate::sync::Ordering;
use crate::table::{CAPACITY_MAX, Counts, FLOWS, Header, Plan, Settings, Table};
use crate::throttle::THROTTLE_TIME;
use crate::victim::VICTIM_TIME;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// "LEDGLINE" in ASCII, so that `file` and a hex dump show what it is.
const MAGIC: u64 = u64::from_le_bytes(*b"LEDGLINE");
/// Changes whenever the meaning of a byte of the region does.
const VERSION: u32 = 5;
/// Levels that a tree may have, the root included.
pub(crate) const DEPTH_MAX: usize = 32;
/// 64 pages of 4 KiB, as in the kernel.
const DEFAULT_BATCH: u64 = 64 * 4096;
/// See [`LedgerBuilder::reclaim_time`].
const RECLAIM_TIME: Duration = Duration::from_millis(100);

/// Memory that a ledger takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of memory in use: grows with groups and with the CPUs that charge them.
    pub resident: u64,
    /// Bytes of address space: fixed when the ledger is made.
    pub reserved: u64,
}

/// A tree of groups and their counters, in one region of memory.
///
/// Shared by reference among threads; a program usually keeps one in a `static LazyLock` or leaks
/// one, so that its groups are `Group<'static>`.
///
/// ```
/// use ledgerline::{Ledger, Limit};
///
/// let ledger = Ledger::new()?;
/// let tenant = ledger.root().create("acme")?;
/// tenant.set_max(Limit::units(1 << 20))?;
/// let query = tenant.create("q42")?;
///
/// let charge = query.try_charge(600 << 10)?;
/// let refused = query.try_charge(600 << 10).unwrap_err();
/// assert_eq!(refused.group, "/acme"); // whose limit said no
/// drop(charge);
/// assert_eq!(tenant.precise(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ledger {
    /// R3: laid by this value's constructor, valid until it is dropped.
    table: NonNull<Table>,
}

// SAFETY: the table's pointers are into its region, whose memory is shared through atomics and
// sections only and stays mapped as long as this value lives (R1).
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: R3; groups borrow the ledger, so none is left. The copy in the table itself is
        // never dropped.
        unsafe { Table::unmap(self.table) }
    }
}

/// How to make a [`Ledger`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LedgerBuilder {
    capacity: u32,
    batch: u64,
    flows: bool,
    items: Vec<String>,
    reclaim_time: Duration,
    throttle_time: Duration,
    victim_time: Duration,
}

impl LedgerBuilder {
    /// Most groups at a time, the root included: 2 to 1 Mi, the default. Costs address space (256
    /// bytes a group, besides 32 MiB a possible CPU); memory only where used.
    pub fn capacity(mut self, groups: u32) -> Self {
        self.capacity = groups.clamp(2, CAPACITY_MAX as u32);
        self
    }

    /// Units fetched from the counters at a time, at most (default 262 144: 64 pages of 4 KiB). The
    /// larger, the rarer the shared counters are touched and the more may lie idle.
    pub fn batch(mut self, units: u64) -> Self {
        self.batch = units.clamp(1, 1 << 28);
        self
    }

    /// Statistics that the program counts itself for each group ([`Group::add_stat`](crate::Group::add_stat)), at most
    /// [`ITEMS_MAX`](crate::ITEMS_MAX): their names, as `memory.stat` prints them (a-z, 0-9 and `_`).
    /// They cost eight bytes a CPU for each group that counts any.
    pub fn items(mut self, names: &[&str]) -> Self {
        self.items = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Counts the units charged and freed, too (`charged` and `freed` in
    /// [`Group::stat`](crate::Group::stat)). Then a charge takes the slow way round its cell: about
    /// 5 ns instead of 1.
    pub fn flows(mut self, keep: bool) -> Self {
        self.flows = keep;
        self
    }

    /// How long a charge may have its reclaimers run before it is refused (default 100 ms; see
    /// [`Group::add_reclaimer`](crate::Group::add_reclaimer)).
    pub fn reclaim_time(mut self, time: Duration) -> Self {
        self.reclaim_time = time;
        self
    }

    /// How long one charge above a high is slowed down at most (default 2 s; see
    /// [`Charge::backoff`](crate::Charge::backoff)).
    pub fn throttle_time(mut self, time: Duration) -> Self {
        self.throttle_time = time;
        self
    }

    /// How long a victim that was cancelled may take to return what it held before another one is
    /// (default 1 s; see [`Request::oom`](crate::Request::oom)).
    pub fn victim_time(mut self, time: Duration) -> Self {
        self.victim_time = time;
        self
    }

    fn settings(&self) -> io::Result<Settings> {
        let names: Vec<&str> = self.items.iter().map(String::as_str).collect();
        Plan::takes(&names).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let plan = Plan {
            capacity: self.capacity as usize,
            columns: possible_cpus() as usize,
            items: names.len(),
        };
        Ok(Settings {
            plan,
            batch: self.batch,
            flows: self.flows,
            opened: false,
            reclaim_time: self.reclaim_time,
            throttle_time: self.throttle_time,
            victim_time: self.victim_time,
        })
    }

    /// Makes the ledger in memory of this process. A forked child has its own copy.
    ///
    /// # Errors
    /// When the address space cannot be reserved, or the [`items`](Self::items) are not such names.
    pub fn anonymous(self) -> io::Result<Ledger> {
        // An allocator cannot register handlers before `main`; it uses a file (create_in).
        crate::lock::guard_forks();
        let settings = self.settings()?;
        let region = Region::anonymous(settings.plan.size())?;
        self.initialise(settings, region)
    }

    /// Makes the ledger in an empty file, so that other processes can look on ([`Ledger::open_in`])
    /// and charge rows of their own ([`Ledger::attach_process`]).
    ///
    /// # Errors
    /// When the file is not empty, cannot be extended or cannot be mapped; and as
    /// [`anonymous`](Self::anonymous).
    pub fn create_in(self, file: &File) -> io::Result<Ledger> {
        let settings = self.settings()?;
        let region = Region::create_in(file, settings.plan.size())?;
        self.initialise(settings, region)
    }

    fn initialise(self, settings: Settings, region: Region) -> io::Result<Ledger> {
        let plan = settings.plan;
        let ledger = Ledger::over(Table::lay(settings, region)?);
        let header = ledger.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.columns.store(plan.columns as u32, Ordering::Relaxed);
        header.capacity.store(self.capacity, Ordering::Relaxed);
        header.batch.store(self.batch, Ordering::Relaxed);
        header.given.high_water.store(1, Ordering::Relaxed);
        header.item_count.store(self.items.len() as u32, Ordering::Relaxed);
        header.flows.store(u32::from(self.flows), Ordering::Relaxed);
        for (into, name) in header.items.iter().zip(&self.items) {
            item_names::set_name(into, name);
        }
        let root = ledger.row(0);
        root.counter.reset();
        root.begin_root();
        root.counter.open();
        // Release: who sees the magic sees a whole header and a root.
        header.magic.store(MAGIC, Ordering::Release);
        Ok(ledger)
    }
}

impl Ledger {
    /// A ledger in memory of this process, with the defaults of [`builder`](Ledger::builder).
    ///
    /// The first ledger of a process runs the self-test of [`detect`](crate::percpu::detect).
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub fn new() -> io::Result<Ledger> {
        Ledger::builder().anonymous()
    }

    /// How to make a ledger with other numbers, or in a file.
    pub fn builder() -> LedgerBuilder {
        LedgerBuilder {
            capacity: CAPACITY_MAX as u32,
            batch: DEFAULT_BATCH,
            flows: false,
            items: Vec::new(),
            reclaim_time: RECLAIM_TIME,
            throttle_time: THROTTLE_TIME,
            victim_time: VICTIM_TIME,
        }
    }

    /// Maps a ledger that another process made in a file. Allocates nothing.
    ///
    /// # Errors
    /// When the file is not a ledger, or one of another version or for more CPUs than it says.
    pub fn open_in(file: &File) -> Result<Ledger, OpenError> {
        let length = usize::try_from(file.metadata().map_err(OpenError::Io)?.len())
            .map_err(|_| OpenError::NotALedger)?;
        if length < Plan::PAGE {
            return Err(OpenError::NotALedger);
        }
        let first = Region::shared(file, Plan::PAGE).map_err(OpenError::Io)?;
        // SAFETY: the region holds a page, a header is smaller, all its fields are atomics.
        let header = unsafe { &*first.at::<Header>(0) };
        // Acquire: partner of the Release in `initialise`.
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(OpenError::NotALedger);
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(OpenError::Version { found: version, known: VERSION });
        }
        let capacity = header.capacity.load(Ordering::Relaxed);
        let columns = header.columns.load(Ordering::Relaxed);
        let batch = header.batch.load(Ordering::Relaxed);
        let items = header.item_count.load(Ordering::Relaxed) as usize;
        let flows = header.flows.load(Ordering::Relaxed);
        if !(2..=CAPACITY_MAX as u32).contains(&capacity)
            || columns < possible_cpus()
            || columns > 1 << 16
            || !(1..=1 << 28).contains(&batch)
            || items > item_names::ITEMS_MAX
            || flows > 1
        {
            return Err(OpenError::Damaged);
        }
        let plan = Plan { capacity: capacity as usize, columns: columns as usize, items };
        // The file must hold all that will be touched: a hole behind its end would be a SIGBUS.
        if length < plan.size() {
            return Err(OpenError::Damaged);
        }
        let region = Region::shared(file, plan.size()).map_err(OpenError::Io)?;
        let flows = flows == 1;
        let settings = Settings {
            plan,
            batch,
            flows,
            opened: true,
            reclaim_time: RECLAIM_TIME,
            throttle_time: THROTTLE_TIME,
            victim_time: VICTIM_TIME,
        };
        Ok(Ledger::over(Table::lay(settings, region).map_err(OpenError::Io)?))
    }

    /// R3: the table was laid for this value (and the copy of it in the table).
    pub(crate) fn over(table: NonNull<Table>) -> Ledger {
        Ledger { table }
    }

    pub(crate) fn table(&self) -> &Table {
        // SAFETY: R3; the table is not changed after it was laid.
        unsafe { self.table.as_ref() }
    }

    pub(crate) fn columns(&self) -> &Columns {
        &self.table().columns
    }

    /// The id as the cells know it: where flows are kept, with a generation that no handle has.
    #[inline]
    pub(crate) fn cell_id(&self, id: GroupId) -> u64 {
        id.raw() | u64::from(self.table().flows) << 48
    }

    /// The generation of a row's present group as its cells know it.
    pub(crate) fn cell_generation(&self, row: &Row) -> u16 {
        row.generation() | self.table().flows
    }

    pub(crate) fn batch(&self) -> u64 {
        self.table().batch
    }

    fn header(&self) -> &Header {
        self.table().header()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.table().region().is_shared()
    }

    /// How this process updates the ledger's cells.
    pub fn mode(&self) -> Mode {
        if self.columns().is_rseq() { Mode::Rseq } else { Mode::Fallback }
    }

    /// Memory and address space that the ledger takes. Looks at every page; not for hot paths.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            resident: self.table().region().resident(),
            reserved: self.table().region().size() as u64,
        }
    }

    /// Most groups at a time, the root included.
    pub fn capacity(&self) -> u32 {
        self.table().plan.capacity as u32
    }

    /// Mistakes that callers made, counted: uncharges of more than was charged, and uncharges of
    /// groups that do not exist. Zero in a program without bugs.
    pub fn mistakes(&self) -> Mistakes {
        Mistakes {
            underflows: self.header().underflows.load(Ordering::Relaxed),
            strays: self.header().strays.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_underflow(&self) {
        self.header().underflows.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_stray(&self) {
        self.header().strays.fetch_add(1, Ordering::Relaxed);
    }

    /// The process whose rows this value may charge; 0 in a ledger of one process.
    pub(crate) fn process(&self) -> u32 {
        match (self.is_shared(), crate::process::attached()) {
            (false, _) => 0,
            // Of rows that nobody is attached for, the process that made the ledger is the writer.
            (true, 0) if self.table().opened => u32::MAX,
            (true, process) => process,
        }
    }

    /// Rows that were ever used, as far as they can be trusted to lie in the table.
    pub(crate) fn high_water(&self) -> u32 {
        self.header().given.high_water.load(Ordering::Acquire).clamp(1, self.capacity())
    }

    pub(crate) fn row(&self, index: u32) -> &Row {
        self.table().row(index)
    }

    pub(crate) fn counts(&self, column: u32, row: u32) -> &Counts {
        self.table().counts(column, row)
    }

    /// The rows whose cell in this column holds a cap.
    pub(crate) fn stocked(&self, column: u32) -> RowSet<'_> {
        self.table().stocked(column)
    }

    /// The rows whose statistics in this column changed since they were collected.
    pub(crate) fn changed(&self, column: u32) -> RowSet<'_> {
        self.table().changed(column)
    }

    /// Takes a row out of a column's set of [`stocked`](Self::stocked) ones.
    pub(crate) fn unstock(&self, column: u32, row: u32) {
        let set = self.stocked(column);
        if self.is_shared() { set.remove_shared(row) } else { set.remove(row) }
    }

    /// The path from a group to the root; `None` if the group does not exist (any more).
    pub(crate) fn path(&self, id: GroupId) -> Option<RowPath<'_>> {
        if id.index() >= self.capacity() {
            return None;
        }
        let row = self.row(id.index());
        // Acquire, partner of the Release in `allocate`: the parent belongs to this generation.
        let state = row.state.load(Ordering::Acquire);
        if row.generation() != id.generation() || state == state::FREE {
            return None;
        }
        // Again: the row may have been freed and taken since.
        RowPath::new(self, id.index()).filter(|path| path.generation() == id.generation())
    }

    /// Takes a row for a new group below `parent`, whose children the caller has counted.
    pub(crate) fn allocate(
        &self,
        parent: u32,
        depth: u32,
        owner: u32,
        name: &str,
    ) -> Option<GroupId> {
        let index = self.reuse().or_else(|| self.take_fresh())?;
        let row = self.row(index);
        row.counter.reset();
        row.forget_statistics();
        let last = if self.keeps_flows() { !FLOWS } else { u16::MAX };
        let generation = row.begin(parent, depth, owner, name, last);
        Some(GroupId::from_parts(index, generation))
    }

    /// Gives a row back that has no cell open, no charge left and no child.
    pub(crate) fn free(&self, index: u32) {
        let row = self.row(index);
        row.state.store(state::FREE, Ordering::Release);
        self.header().given.free.push(index, &row.parent);
    }

    /// Frees a destroyed row whose last unit was returned. What it counted goes to its parent, so
    /// that the counts of a subtree never run backwards.
    pub(crate) fn recycle(&self, index: u32) {
        let row = self.row(index);
        let parent = row.parent.load(Ordering::Relaxed).min(self.capacity() - 1);
        let column = self.columns().current();
        // A collection must not see one half of this.
        let _held = row.has_statistics().then(crate::lock::lock);
        self.hand_statistics_up(index, parent);
        for from in row.noted_columns(self.columns().count()) {
            let counts = self.counts(from, index);
            let charges = counts.charges.swap(0, Ordering::Relaxed);
            let uncharges = counts.uncharges.swap(0, Ordering::Relaxed);
            if charges | uncharges != 0 {
                self.row(parent).note_column(column);
                let settled = self.counts(column, parent);
                settled.charges.fetch_add(charges, Ordering::Relaxed);
                settled.uncharges.fetch_add(uncharges, Ordering::Relaxed);
                self.note_changed(column, parent);
            }
        }
        row.forget_columns();
        self.free(index);
    }

    fn reuse(&self) -> Option<u32> {
        self.header().given.free.pop(|row| (row < self.capacity()).then(|| &self.row(row).parent))
    }

    fn take_fresh(&self) -> Option<u32> {
        let capacity = self.capacity();
        self.header()
            .given
            .high_water
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                (used < capacity).then(|| used + 1)
            })
            .ok()
    }
}

/// What [`Ledger::mistakes`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// Uncharges of more than the group held. They changed nothing.
    pub underflows: u64,
    /// Uncharges of a group that does not exist (any more). They changed nothing.
    pub strays: u64,
}

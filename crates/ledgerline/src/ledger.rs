//! Ledgers, looked into. How they are made is in `builder.rs`, where their parts lie in `table.rs`.

use crate::percpu::{Columns, Mode};
use crate::region::row_set::RowSet;
use crate::sync::Ordering;
use crate::table::path::RowPath;
use crate::table::row::{GroupId, Row, state};
use crate::table::{Counts, DETOUR, Header, Table};
use std::ptr::NonNull;

/// Levels that a tree may have, the root included.
pub(crate) const DEPTH_MAX: usize = 32;
/// Memory that a ledger takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// Bytes of memory in use: grows with groups and with the CPUs that charge them.
    pub resident: u64,
    /// Bytes of address space: fixed when the ledger is made.
    pub reserved: u64,
}

/// A tree of groups and their counters, in one region of memory.
///
/// Shared by reference among threads. A program usually keeps one in a `static LazyLock`, so that its groups
/// are `Group<'static>`, or in an `Arc`, which [`OwnedGroup`](crate::OwnedGroup) shares.
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

impl Ledger {
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

    /// The id as the cells know it: where no charge takes the fast path, with a generation that no handle
    /// has.
    #[inline]
    pub(crate) fn cell_id(&self, id: GroupId) -> u64 {
        id.raw() | u64::from(self.table().detour) << 48
    }

    /// The generation of a row's present group as its cells know it.
    pub(crate) fn cell_generation(&self, row: &Row) -> u16 {
        row.generation() | self.table().detour
    }

    pub(crate) fn batch(&self) -> u64 {
        self.table().batch
    }

    pub(crate) fn header(&self) -> &Header {
        self.table().header()
    }

    /// Whether a group is one of this very ledger (in this mapping of it).
    pub(crate) fn is_of(&self, group: crate::group::Group<'_>) -> bool {
        std::ptr::eq(self.table(), group.ledger().table())
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
        let parts = [self.table().region(), self.table().waiting.region()];
        Footprint {
            resident: parts.iter().map(|part| part.resident()).sum(),
            reserved: parts.iter().map(|part| part.size() as u64).sum(),
        }
    }

    /// Most groups at a time, the root included.
    pub fn capacity(&self) -> u32 {
        self.table().plan.capacity as u32
    }

    /// Mistakes that callers made, as far as they showed. Zero in a program without bugs; zero does not
    /// prove that there are none: an uncharge that comes once too often while the group holds units of others
    /// takes those, and is seen only in a ledger that is [audited](crate::LedgerBuilder::audit).
    pub fn mistakes(&self) -> Mistakes {
        Mistakes {
            underflows: self.header().underflows.load(Ordering::Relaxed),
            strays: self.header().strays.load(Ordering::Relaxed),
            audited: self.header().audited.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_underflow(&self) {
        self.header().underflows.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_audited(&self) {
        self.header().audited.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_stray(&self) {
        self.header().strays.fetch_add(1, Ordering::Relaxed);
    }

    /// The process whose rows this value may charge; 0 in a ledger of one process.
    pub(crate) fn process(&self) -> u32 {
        match (self.is_shared(), crate::control::process::attached()) {
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

    #[inline]
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
        let mut path = RowPath::blank(self);
        self.find_path(id, &mut path).then_some(path)
    }

    /// The same, in place; `false` if the group does not exist (any more).
    pub(crate) fn find_path<'l>(&'l self, id: GroupId, path: &mut RowPath<'l>) -> bool {
        if id.index() >= self.capacity() {
            return false;
        }
        let row = self.row(id.index());
        // Acquire, partner of the Release in `allocate`: the parent belongs to this generation.
        let state = row.state.load(Ordering::Acquire);
        if row.generation() != id.generation() || state == state::FREE {
            return false;
        }
        // Again: the row may have been freed and taken since.
        path.follow(self, id.index()) && path.generation() == id.generation()
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
        row.begin_change();
        row.counter.reset();
        row.forget_statistics();
        // The last one is nobody's (`GroupId::NO_GENERATION`), with the detour's bit as without.
        let last = if self.table().detour != 0 { !DETOUR - 1 } else { GroupId::NO_GENERATION - 1 };
        let generation = row.begin(parent, depth, owner, name, last);
        Some(GroupId::from_parts(index, generation))
    }

    /// Gives a row back that has no cell open, no charge left and no child.
    pub(crate) fn free(&self, index: u32) {
        let row = self.row(index);
        row.state.store(state::FREE, Ordering::Release);
        // The parent becomes the next free row.
        row.begin_change();
        self.header().given.free.push(index, &row.parent);
    }

    /// Frees a destroyed row whose last unit was returned. What it counted goes to its parent, so
    /// that the counts of a subtree never run backwards.
    pub(crate) fn recycle(&self, index: u32) {
        let row = self.row(index);
        row.begin_change();
        let parent = row.parent.load(Ordering::Relaxed).min(self.capacity() - 1);
        let column = self.columns().current();
        // A collection must not see one half of this.
        let _held = row.has_statistics().then(crate::gate::lock::lock);
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
#[non_exhaustive]
pub struct Mistakes {
    /// Uncharges of more than the group's counter held: its own charges, those of the groups below it,
    /// and what lay idle in their cells. They changed nothing. (An uncharge that is wrong and finds as much
    /// there takes it, and is not seen; nor is one that fits into a cell.)
    pub underflows: u64,
    /// Uncharges of a group that does not exist (any more). They changed nothing.
    pub strays: u64,
    /// Uncharges of a group that exists, which returned what no charge had taken. They changed nothing.
    /// Counted in a ledger that is [audited](crate::LedgerBuilder::audit) alone, in place of underflows.
    pub audited: u64,
}

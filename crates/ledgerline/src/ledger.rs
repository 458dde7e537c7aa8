//! The ledger, and how a handle finds its own. `making/` creates ledgers, and `table/` documents their layout.

use crate::percpu::{Columns, Mode};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Table;
use crate::table::handle::Handle;
use crate::table::header::Header;
use crate::table::plan::Plan;
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::NonNull;

/// The memory of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// Bytes of memory in use. Grows with groups and with the CPUs that charge them.
    pub resident: u64,
    /// Bytes of address space. Fixed when the ledger is created.
    pub reserved: u64,
}

/// A tree of groups and their counters, in one region of memory.
///
/// Threads share it by reference. A program usually keeps one in a `static LazyLock`, so that its groups are
/// `Group<'static>`, or in an `Arc`, which [`OwnedGroup`](crate::OwnedGroup) shares.
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
    /// R3: the creator of this value wrote the page, and it is valid until this value is dropped.
    page: NonNull<LocalPage>,
}

/// The start of a ledger's local page (`table/mod.rs`), to which the address of a group's cell leads.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LocalPage {
    pub(crate) table: Table,
    /// The ledger to which handles refer. It is never dropped: the ledger that drops the page is another copy of it.
    ledger: ManuallyDrop<Ledger>,
    /// Ends everything in the local page, and unmaps the region.
    end: unsafe fn(NonNull<LocalPage>),
}

impl LocalPage {
    /// Returns a page that will lie at `place`.
    ///
    /// # Safety
    /// When the ledger is dropped, `end` drops the page that lies at `place` by then, with everything else.
    pub(crate) unsafe fn new(
        table: Table,
        place: NonNull<LocalPage>,
        end: unsafe fn(NonNull<LocalPage>),
    ) -> LocalPage {
        LocalPage { table, ledger: ManuallyDrop::new(Ledger { page: place }), end }
    }

    /// The field that holds the end of the owned columns lies this many bytes before the first column.
    pub(crate) const OWNED_END: usize = Plan::LOCAL
        - (offset_of!(LocalPage, table) + offset_of!(Table, columns) + Columns::OWNED_END);

    /// Returns the page of a group's ledger.
    ///
    /// # Safety
    /// The handle belongs to a ledger that still exists (R2).
    #[inline(always)]
    unsafe fn of<'s>(handle: Handle) -> &'s LocalPage {
        // SAFETY: it lies `Plan::LOCAL` before the first column (`Plan::first_column`), whose start the handle yields (R2;
        // guarded by `handle::tests` and every test that charges).
        unsafe { &*handle.column().byte_sub(Plan::LOCAL).cast() }
    }

    /// Returns the ledger of a page that is being ended.
    ///
    /// # Safety
    /// The page is valid.
    pub(crate) unsafe fn ledger<'s>(page: NonNull<LocalPage>) -> &'s Ledger {
        // SAFETY: as the caller guarantees.
        unsafe { &page.as_ref().ledger }
    }
}

// SAFETY: the table's pointers are into its region, whose memory is shared only through atomics and sections and stays
// mapped as long as this value lives (R1).
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: R3; groups borrow the ledger, so none is left.
        unsafe { (self.page.as_ref().end)(self.page) }
    }
}

impl Ledger {
    /// Returns the ledger of a page that now lies in its place.
    ///
    /// # Safety
    /// R3: the page is valid until this value is dropped, and this is called once.
    pub(crate) unsafe fn over(page: NonNull<LocalPage>) -> Ledger {
        Ledger { page }
    }

    /// Returns the ledger of a group.
    ///
    /// # Safety
    /// The handle belongs to a ledger that still exists (R2).
    #[inline(always)]
    pub(crate) unsafe fn of<'l>(handle: Handle) -> &'l Ledger {
        // SAFETY: as the caller guarantees.
        unsafe { &LocalPage::of(handle).ledger }
    }

    pub(crate) fn local_page(&self) -> NonNull<LocalPage> {
        self.page
    }

    pub(crate) fn table(&self) -> &Table {
        // SAFETY: R3; the page is not changed after it was written.
        unsafe { &self.page.as_ref().table }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.table().is_shared()
    }

    /// Returns whether this is that very ledger, in the same mapping of it.
    pub(crate) fn is(&self, other: &Ledger) -> bool {
        std::ptr::eq(self.table(), other.table())
    }

    /// Returns how this process updates the ledger's cells.
    pub fn mode(&self) -> Mode {
        self.table().columns.mode()
    }

    /// Returns the memory and address space that the ledger takes. This looks at every page, so it is not for hot paths.
    pub fn footprint(&self) -> Footprint {
        let parts = [self.table().region(), self.table().heads.region()];
        Footprint {
            resident: parts.iter().map(|part| part.resident()).sum(),
            reserved: self.reserved(),
        }
    }

    /// Returns the bytes of address space that the ledger takes in this process, like [`footprint`](Self::footprint), but
    /// without a look at any page. Async-signal-safe.
    pub fn reserved(&self) -> u64 {
        let parts = [self.table().region(), self.table().heads.region()];
        parts.iter().map(|part| part.mapped() as u64).sum()
    }

    /// Returns the most groups at a time, the root included.
    pub fn capacity(&self) -> u32 {
        self.table().capacity()
    }

    /// Returns whether this process may set limits: it created the ledger, or the ledger allows others to
    /// ([`LedgerBuilder::steerable`](crate::LedgerBuilder::steerable)).
    pub fn is_steerable(&self) -> bool {
        self.table().steerable
    }

    /// Returns the mistakes of callers, as far as they were detected. A program without bugs has none. Zero does not prove
    /// that there are none: an uncharge that comes once too often while the group holds other units takes those, and only a
    /// ledger that is [audited](crate::LedgerBuilder::audit) detects that.
    pub fn mistakes(&self) -> Mistakes {
        mistakes_in(self.table().header())
    }
}

pub(crate) fn mistakes_in(header: &Header) -> Mistakes {
    let count = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let [underflows, strays, audited] =
        [&header.underflows, &header.strays, &header.audited].map(count);
    Mistakes { underflows, strays, audited }
}

/// The counts of [`Ledger::mistakes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistakes {
    /// Uncharges of more than the group's counter held: its own charges, those of the groups below it, and the idle units in
    /// their cells. They changed nothing. A wrong uncharge that finds enough units there takes them, and is not detected.
    /// Nor is one that fits into a cell.
    pub underflows: u64,
    /// Uncharges of a group that does not exist or no longer exists. They changed nothing.
    pub strays: u64,
    /// Uncharges of an existing group that returned units no charge had taken. They changed nothing. Only a ledger that is
    /// [audited](crate::LedgerBuilder::audit) counts these, in place of underflows.
    pub audited: u64,
}

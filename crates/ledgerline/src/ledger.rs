//! Ledgers: what they are, and where a handle finds its own. (How they are made is in `builder.rs`, where their
//! parts lie in `table/`.)

use crate::percpu::Mode;
use crate::sync::Ordering;
use crate::table::Table;
use crate::table::handle::Handle;
use crate::table::plan::Plan;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

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
    /// R3: laid by who made this value, valid until it is dropped.
    page: NonNull<LocalPage>,
}

/// What lies at the start of a ledger's local page (table/mod.rs), where the address of a group's cell leads.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LocalPage {
    pub(crate) table: Table,
    /// What handles refer to. Never dropped: the ledger that drops the page is another copy of it.
    ledger: ManuallyDrop<Ledger>,
    /// Ends what lies in the local page, and unmaps the region.
    end: unsafe fn(NonNull<LocalPage>),
}

impl LocalPage {
    /// A page that is to lie at `place`.
    ///
    /// # Safety
    /// `end` drops, with everything else, what lies at `place` by the time that the ledger is dropped.
    pub(crate) unsafe fn new(
        table: Table,
        place: NonNull<LocalPage>,
        end: unsafe fn(NonNull<LocalPage>),
    ) -> LocalPage {
        LocalPage { table, ledger: ManuallyDrop::new(Ledger { page: place }), end }
    }

    /// The page of a group's ledger.
    ///
    /// # Safety
    /// The handle is of a ledger that is still there (R2).
    #[inline(always)]
    unsafe fn of<'s>(handle: Handle) -> &'s LocalPage {
        // SAFETY: it lies `Plan::LOCAL` before the first column (`Plan::first_column`), which begins where
        // the handle says (R2; guarded by `handle::tests` and every test that charges).
        unsafe { &*handle.column().byte_sub(Plan::LOCAL).cast() }
    }
}

// SAFETY: the table's pointers are into its region, whose memory is shared through atomics and
// sections only and stays mapped as long as this value lives (R1).
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
    /// The ledger of a page that lies in its place now.
    ///
    /// # Safety
    /// R3: the page is valid until this value is dropped, and this is called once.
    pub(crate) unsafe fn over(page: NonNull<LocalPage>) -> Ledger {
        Ledger { page }
    }

    /// The ledger of a group.
    ///
    /// # Safety
    /// The handle is of a ledger that is still there (R2).
    #[inline(always)]
    pub(crate) unsafe fn of<'l>(handle: Handle) -> &'l Ledger {
        // SAFETY: as the caller says.
        unsafe { &LocalPage::of(handle).ledger }
    }

    pub(crate) fn local_page(&self) -> NonNull<LocalPage> {
        self.page
    }

    pub(crate) fn table(&self) -> &Table {
        // SAFETY: R3; the page is not changed after it was laid.
        unsafe { &self.page.as_ref().table }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.table().is_shared()
    }

    /// Whether this is that very ledger (in the same mapping of it).
    pub(crate) fn is(&self, other: &Ledger) -> bool {
        std::ptr::eq(self.table(), other.table())
    }

    /// How this process updates the ledger's cells.
    pub fn mode(&self) -> Mode {
        if self.table().columns.is_rseq() { Mode::Rseq } else { Mode::Fallback }
    }

    /// Memory and address space that the ledger takes. Looks at every page; not for hot paths.
    pub fn footprint(&self) -> Footprint {
        let parts = [self.table().region(), self.table().heads.region()];
        Footprint {
            resident: parts.iter().map(|part| part.resident()).sum(),
            reserved: parts.iter().map(|part| part.size() as u64).sum(),
        }
    }

    /// Most groups at a time, the root included.
    pub fn capacity(&self) -> u32 {
        self.table().capacity()
    }

    /// Mistakes that callers made, as far as they showed. Zero in a program without bugs; zero does not
    /// prove that there are none: an uncharge that comes once too often while the group holds units of others
    /// takes those, and is seen only in a ledger that is [audited](crate::LedgerBuilder::audit).
    pub fn mistakes(&self) -> Mistakes {
        Mistakes {
            underflows: self.table().header().underflows.load(Ordering::Relaxed),
            strays: self.table().header().strays.load(Ordering::Relaxed),
            audited: self.table().header().audited.load(Ordering::Relaxed),
        }
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

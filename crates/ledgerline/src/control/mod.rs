//! Control: who is refused, reclaimed, slowed down, made to wait, cancelled; and who is told.
//!
//! The layer above the counters and the stock. Those return what happened (the level that said no, the levels
//! that met a limit); what is done about it is decided here.

pub(crate) mod alarm;
pub(crate) mod attempt;
pub(crate) mod audit;
pub(crate) mod events;
pub(crate) mod mode;
pub(crate) mod protection;
pub(crate) mod reclaim;
pub(crate) mod reclaimers;
pub(crate) mod reclaiming;
pub(crate) mod set_max;
pub(crate) mod slow_path;
pub(crate) mod throttle;
pub(crate) mod token;
pub(crate) mod victim;
pub(crate) mod wait;
pub(crate) mod wait_queue;

use crate::ledger::{Ledger, LocalPage};
use crate::region::Region;
use crate::table::plan::Plan;
use crate::table::{self, Table};
use audit::Audit;
use events::Watchers;
use reclaimers::Reclaimers;
use std::io;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::Duration;
use victim::Victims;
use wait_queue::WaitQueues;

/// A time that is as good as for ever, and that a clock can still be ahead by.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// How long things may take (`LedgerBuilder`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) reclaim: Duration,
    pub(crate) throttle: Duration,
    pub(crate) victim: Duration,
}

/// Everything of a ledger that is this process's own: the table's addresses, and who acts on it. Lies in the
/// local page of the ledger's region.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Control {
    /// First, so that a page's address is that of its control.
    page: LocalPage,
    /// Follows the charges, where that was asked for.
    audit: Option<Box<Audit>>,
    pub(crate) waiting: WaitQueues,
    pub(crate) reclaimers: Reclaimers,
    pub(crate) victims: Victims,
    /// Held by whoever changes the mode of a subtree.
    pub(crate) modes: Mutex<()>,
    pub(crate) times: Times,
    pub(crate) watchers: Watchers,
}

const _: () = assert!(size_of::<Control>() <= Plan::LOCAL);

/// Lays a ledger over a region of `settings.plan.size()` bytes.
pub(crate) fn lay(
    settings: table::Settings,
    audit: Option<Audit>,
    times: Times,
    region: Region,
) -> io::Result<Ledger> {
    let table = Table::new(settings, region)?;
    let place = NonNull::new(table.local::<Control>()).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: `end` drops the control that is written below.
    let page = unsafe { LocalPage::new(table, place.cast(), end) };
    let control = Control {
        page,
        audit: audit.map(Box::new),
        waiting: WaitQueues::new(),
        reclaimers: Reclaimers::new(),
        victims: Victims::new(),
        modes: Mutex::new(()),
        times,
        watchers: Watchers::new(),
    };
    // SAFETY: the place is mapped (as long as the region, which stays until `end`), aligned, large enough,
    // and nobody else knows it yet. From here on the page is valid.
    unsafe {
        place.write(control);
        Ok(Ledger::over(place.cast()))
    }
}

/// Ends a ledger: what it owns is moved out of the region before the region goes.
///
/// # Safety
/// The page is that of a control that [`lay`] wrote, and nothing in its region is used afterwards.
unsafe fn end(page: NonNull<LocalPage>) {
    // SAFETY: as the caller says; the copy owns everything, the region included, and lives on this stack.
    let Control { page, audit, waiting, reclaimers, victims, .. } =
        unsafe { page.cast::<Control>().read() };
    drop((audit, waiting, reclaimers, victims));
    drop(page.table.into_region());
}

impl Ledger {
    /// What acts on the ledger.
    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: every page is the first field of a control (`lay`), which is as valid (R3).
        unsafe { self.local_page().cast().as_ref() }
    }

    /// What follows the charges, where that was asked for.
    #[inline]
    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.control().audit.as_deref()
    }
}

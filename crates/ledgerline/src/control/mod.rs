//! Control decides which charges are refused, slowed down or made to wait, and which groups are reclaimed or
//! cancelled. It also notifies the watchers.
//!
//! It is the layer above the counters and the stock. Those return the facts (the level that refused, the levels that
//! met a limit), and control decides on the action.

pub(crate) mod alarm;
pub(crate) mod attempt;
pub(crate) mod audit;
pub(crate) mod culprit;
pub(crate) mod deferred;
pub(crate) mod events;
pub(crate) mod hear;
pub(crate) mod listener;
pub(crate) mod mode;
pub(crate) mod overrun;
pub(crate) mod peaks;
pub(crate) mod protection;
pub(crate) mod reclaim;
pub(crate) mod reclaimers;
pub(crate) mod reclaiming;
pub(crate) mod refusals;
pub(crate) mod set_limits;
pub(crate) mod slow_path;
pub(crate) mod throttle;
pub(crate) mod token;
pub(crate) mod victim;
pub(crate) mod wait;
pub(crate) mod wait_queue;
pub(crate) mod watchdog;

use crate::announced::Announcement;
use crate::ledger::{Ledger, LocalPage};
use crate::region::Region;
use crate::scope::{Policy, SharedPolicy};
use crate::table::plan::Plan;
use crate::table::{self, Table};
use audit::Audit;
use events::Watchers;
use listener::Listener;
use peaks::Peaks;
use reclaimers::Reclaimers;
use refusals::Notes;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use victim::Victims;
use wait_queue::WaitQueues;

/// A time as good as forever that can still be added to a clock's time.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// The time limits of reclaim, a penalty and a cancelled victim (`LedgerBuilder`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) reclaim: Duration,
    pub(crate) throttle: Duration,
    pub(crate) victim: Duration,
}

/// A thread that acts on a ledger by itself and ends with it, like one that follows its container.
pub(crate) trait Companion: Any + Send + Sync {
    /// Stops it. Returns whether it has stopped: none of its threads uses the ledger any more.
    fn end(&self) -> bool;
}

/// The part of a ledger that belongs to this process alone: the table's addresses, and everything that acts on the
/// table. It lies in the local page of the ledger's region.
#[repr(C)]
pub(crate) struct Control {
    /// First, so that a page's address is that of its control.
    page: LocalPage,
    /// Follows the charges, if the program enabled the audit.
    audit: Option<Box<Audit>>,
    pub(crate) waiting: WaitQueues,
    pub(crate) reclaimers: Reclaimers,
    pub(crate) victims: Victims,
    /// Number of times that reclaimers of each group were reported (`watchdog.rs`).
    pub(crate) hung: Mutex<BTreeMap<u64, u64>>,
    pub(crate) peaks: Peaks,
    /// Locked while a thread changes the mode of a subtree.
    pub(crate) modes: Mutex<()>,
    pub(crate) times: Times,
    /// The policy for allocations outside of any `catch` at a limit.
    pub(crate) policy: SharedPolicy,
    /// Whether charges that do not wait are refused while requests wait.
    pub(crate) fair: AtomicBool,
    pub(crate) watchers: Watchers,
    pub(crate) listener: Listener,
    /// Notes of refused charges, once the program asked for them.
    pub(crate) refusals: OnceLock<Box<Notes>>,
    /// Set once at most, before the ledger's maker gives it out.
    pub(crate) companion: OnceLock<Box<dyn Companion>>,
    /// Announces the ledger's file to readers, if it is to be found; removed with this.
    pub(crate) announcement: OnceLock<Announcement>,
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
        waiting: WaitQueues::default(),
        reclaimers: Reclaimers::default(),
        victims: Victims::default(),
        hung: Mutex::default(),
        peaks: Peaks::default(),
        modes: Mutex::default(),
        times,
        policy: SharedPolicy::new(Policy::OVERRUN),
        fair: AtomicBool::new(false),
        watchers: Watchers::new(),
        listener: Listener::new(hear::run),
        refusals: OnceLock::new(),
        companion: OnceLock::new(),
        announcement: OnceLock::new(),
    };
    // SAFETY: the place is mapped (as long as the region, which stays until `end`), aligned and large
    // enough, and no other thread knows it yet. From here on the page is valid.
    unsafe {
        place.write(control);
        Ok(Ledger::over(place.cast()))
    }
}

/// Ends a ledger: moves what it owns out of the region before the region goes.
///
/// # Safety
/// The page is that of a control that [`lay`] wrote, and nothing in its region is used afterwards.
unsafe fn end(page: NonNull<LocalPage>) {
    // Ends everything that may still use the page, while all of it is in its place.
    // SAFETY: as the caller says, the page is a control's, and no other thread ends it.
    let control = unsafe { page.cast::<Control>().as_ref() };
    let companion_ended = control.companion.get().is_none_or(|companion| companion.end());
    // SAFETY: likewise; the ledger in the page is as valid.
    let listener_ended = control.listener.end(unsafe { LocalPage::ledger(page) });
    if !companion_ended || !listener_ended {
        // A thread of the ledger's own drops the ledger, in a reclaimer that had the last share of it. It uses the
        // ledger until it returns, so the ledger is never unmapped.
        return;
    }
    // SAFETY: as above.
    drop(unsafe { (*page.cast::<Control>().as_ptr()).companion.take() });
    // Everything but the page is dropped at once.
    // SAFETY: as the caller says; the copy owns everything, the region included, and lives on this stack.
    let Control { page, .. } = unsafe { page.cast::<Control>().read() };
    drop(page.table.into_region());
}

impl Ledger {
    /// Returns the control of the ledger.
    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: every page is the first field of a control (`lay`), which is as valid (R3).
        unsafe { self.local_page().cast().as_ref() }
    }

    /// Returns the audit that follows the charges, if the program enabled it.
    #[inline]
    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.control().audit.as_deref()
    }
}

//! Reports reclaimers that run too long, and the charges that wait for them.
//!
//! A reclaimer may wait for a lock that the charging thread holds. Then that thread hangs, and nothing shows why. So
//! each run is listed while it lasts, and the thread of the [alarms](super::alarm) checks the list when the first one
//! is due. A run that ends in time costs a lock and an entry.

use super::alarm::Alarm;
use super::events;
use crate::gate::lock::{self, Gated};
use crate::ledger::Ledger;
use crate::os;
use crate::table::follow;
use crate::table::id::GroupId;
use crate::table::path;
use crate::whose;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// A run is too long after this many times the time limit of reclaimers for one charge.
const PATIENCE: u32 = 10;

/// The runs of reclaimers under way.
///
/// Invariant W1: a run is listed by the thread that runs it, from before its start until after its end, and that
/// thread borrows the ledger meanwhile. So the ledgers of listed runs live as long as the list is locked.
struct Runs {
    runs: Vec<Run>,
    numbers: u64,
    /// The process that these runs belong to.
    process: u32,
    /// The time at which the alarm goes off, if it is set.
    due: Option<Instant>,
}

struct Run {
    number: u64,
    ledger: *const Ledger,
    of: GroupId,
    for_whom: GroupId,
    began: Instant,
    limit: Duration,
    /// Whether it was reported.
    named: bool,
}

// SAFETY: W1 (guarded by `a_reclaimer_that_hangs_is_named_with_the_charge_that_waits_for_it`): the ledger is shared by reference.
unsafe impl Send for Run {}

static RUNS: Mutex<Runs> = Mutex::new(Runs { runs: Vec::new(), numbers: 0, process: 0, due: None });
static ALARM: Mutex<Option<Alarm>> = Mutex::new(None);

/// A reclaimer that has run too long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HungReclaimer {
    /// The path of its group.
    pub group: String,
    /// The path of the group whose charge waits for it, or of the one that is to be reclaimed.
    pub waiting: String,
    /// How long it has run.
    pub running: Duration,
}

impl Run {
    fn due(&self) -> Instant {
        self.began + self.limit
    }

    /// The caller has the list locked.
    fn ledger(&self) -> &Ledger {
        // SAFETY: W1.
        unsafe { &*self.ledger }
    }

    fn describe(&self) -> HungReclaimer {
        let path = |id| follow::path_of(self.ledger().table(), id);
        HungReclaimer {
            group: path(self.of),
            waiting: path(self.for_whom),
            running: self.began.elapsed(),
        }
    }
}

/// Locks the list of this process.
fn runs() -> Gated<'static, Runs> {
    let mut runs = lock::gated(&RUNS);
    let process = std::process::id();
    if runs.process != process {
        // These are the runs of the process that this one was forked from, and its alarm.
        runs.runs.clear();
        (runs.process, runs.due) = (process, None);
    }
    runs
}

/// Takes a run off the list when dropped.
struct Listed(u64);

impl Drop for Listed {
    fn drop(&mut self) {
        runs().runs.retain(|run| run.number != self.0);
    }
}

/// Calls `run`, the reclaimer of the group `of`, for a charge of another one. The caller exempts this from
/// accounting.
pub(crate) fn watch<T>(
    ledger: &Ledger,
    of: GroupId,
    for_whom: GroupId,
    run: impl FnOnce() -> T,
) -> T {
    let limit = ledger.control().times.reclaim.saturating_mul(PATIENCE);
    let began = Instant::now();
    let (listed, set) = {
        let mut runs = runs();
        runs.numbers += 1;
        let number = runs.numbers;
        runs.runs.push(Run { number, ledger, of, for_whom, began, limit, named: false });
        let due = began + limit;
        let set = runs.due.is_none_or(|before| due < before);
        if set {
            runs.due = Some(due);
        }
        (Listed(number), set.then_some(due))
    };
    if let Some(due) = set {
        set_alarm(due);
    }
    let done = run();
    drop(listed);
    done
}

/// Makes the alarm go off at a time, unless it goes off sooner.
fn set_alarm(at: Instant) {
    struct Due(Instant);
    impl Wake for Due {
        fn wake(self: Arc<Self>) {
            // Without a thread for alarms, an alarm goes off as it is set.
            if Instant::now() >= self.0 {
                whose::nobody(name_those_that_hang);
            }
        }
    }
    lock::gated(&ALARM).get_or_insert_default().set(&Waker::from(Arc::new(Due(at))), Some(at));
}

/// Counts each run that is too long, once, in the events of the reclaimer's group, and reports the first on standard
/// error.
fn name_those_that_hang() {
    let (mut first, mut others) = (None, 0);
    let next = {
        let mut runs = runs();
        let now = Instant::now();
        for run in runs.runs.iter_mut().filter(|run| !run.named && run.due() <= now) {
            run.named = true;
            events::count_hung(run.ledger(), run.of);
            if first.is_none() {
                first = Some(run.describe());
            } else {
                others += 1;
            }
        }
        runs.due = runs.runs.iter().filter(|run| !run.named).map(Run::due).min();
        runs.due
    };
    // One line for all that are found at a time, since standard error is the program's.
    if let Some(HungReclaimer { group, waiting, running }) = first {
        let seconds = running.as_secs_f64();
        let more =
            if others == 0 { String::new() } else { format!(" ({others} others hang, too)") };
        let line = format!(
            "ledgerline: the reclaimer of {group} has run for {seconds:.1} s, and {waiting} waits for it{more}. A reclaimer must not take a lock that is held while a thread charges.\n"
        );
        os::say(line.as_bytes());
    }
    if let Some(due) = next {
        set_alarm(due);
    }
}

/// Returns the reclaimers of a group and of those below it that have run too long.
pub(crate) fn hung_below(ledger: &Ledger, top: GroupId) -> Vec<HungReclaimer> {
    let table = ledger.table();
    let runs = runs();
    let hung = runs.runs.iter().filter(|run| {
        run.ledger().is(ledger)
            && run.due() <= Instant::now()
            && path::leads_through(table, run.of.index(), top.index())
    });
    hung.map(Run::describe).collect()
}

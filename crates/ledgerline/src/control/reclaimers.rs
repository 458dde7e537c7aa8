//! Registers reclaimers, finds them and runs them. `reclaim.rs` decides which are asked for how much when a
//! limit is met.
//!
//! An entry is kept under every group of its path (which never changes while its group lives), so that
//! those below a full group are found without a look at any other.
//!
//! Nothing is locked while a reclaimer runs. It may uncharge, destroy groups (its own, too), register
//! reclaimers, and charge. What it charges is served where there is room, reclaims nothing and waits for
//! nothing (`reclaiming.rs`).

use crate::control::listener::{self, Seat};
use crate::control::{reclaiming, watchdog};
use crate::gate::{forked, lock};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::precise;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, wait_until};
use crate::table::id::GroupId;
use crate::table::path;
use crate::table::sums::{self, Sum};
use crate::whose;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A ledger's reclaimers in this process.
#[derive(Default)]
pub(crate) struct Reclaimers {
    entries: RwLock<Entries>,
    /// How many there are. A refusal looks at this first.
    count: AtomicUsize,
    /// Lots drawn so far (`reclaim.rs`).
    pub(crate) lots: AtomicU64,
}

#[derive(Default)]
struct Entries {
    /// The entries, by each group of their path, and by age.
    below: BTreeMap<(u64, u64), Arc<Entry>>,
    /// How many were registered so far.
    numbers: u64,
}

/// How often any reclaimer is asked again that says it gave units which nobody saw.
const UNSEEN: u32 = 2;
/// How often one is whose units were seen before.
const CREDIT: u32 = 64;

/// One registered reclaimer.
pub(crate) struct Entry {
    number: u64,
    pub(crate) group: GroupId,
    /// The groups from its own to the root; empty if its group did not exist.
    path: Vec<GroupId>,
    pub(crate) priority: i32,
    run: Box<dyn Fn(u64) -> u64 + Send + Sync>,
    /// The number of the thread that runs it (`gate/forked.rs`); zero when none does.
    runner: AtomicU64,
    registered: Instant,
    /// Until when it is not asked for what is above a high, in nanoseconds since it was registered.
    tired: AtomicU64,
    /// How many runs in a row are believed that give what nobody sees. Whoever runs it changes that.
    credit: AtomicU32,
    report: Mutex<ReclaimReport>,
}

/// What a reclaimer's runs achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimReport {
    /// How often it ran.
    pub runs: u64,
    /// Units that it said it had freed.
    pub claimed: u64,
    /// Units by which its group's usage fell while it ran.
    pub freed: u64,
    /// Runs that freed less than they said (or whose group was charged meanwhile).
    pub short: u64,
    /// Runs that panicked: one at most, since it is not run again.
    pub panics: u64,
}

/// A registered reclaimer. Dropping this takes it out, and waits until no other thread runs it. (So do not
/// drop it under a lock that the reclaimer takes.) A drop inside a reclaimer does not wait: two reclaimers
/// that drop each other's registrations would wait for each other. A forked child does not wait for runs of threads
/// that it does not have; it does not ask a reclaimer again in which such a thread was.
#[must_use = "a reclaimer that is dropped at once is taken out at once"]
pub struct Reclaimer<'l> {
    ledger: &'l Ledger,
    /// Other processes may lower a max.
    _seat: Option<Seat<'l>>,
    entry: Arc<Entry>,
}

impl std::fmt::Debug for Reclaimer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reclaimer")
            .field("group", &self.entry.group)
            .field("priority", &self.entry.priority)
            .field("report", &self.report())
            .finish()
    }
}

impl<'l> Group<'l> {
    /// Registers a function that gives back memory of this group. Before a charge below a full group (this
    /// one or an ancestor) is refused, `reclaim(need)` is called; it uncharges about `need` units and
    /// returns how many it did. Lower priorities are asked first (caches, then spilling to disk).
    /// Reclaimers of equal priority are asked in proportion to what their groups hold above their
    /// protection ([`protection`](Self::protection) below the full group, with
    /// [`Unclaimed::Lost`](crate::Unclaimed)); for a small request one is drawn by lot. In the same way
    /// they are asked for the excess when a charge ends above a high ([`set_high`](Self::set_high)), and
    /// before a limit is lowered below what is in use ([`set_max`](Self::set_max)).
    ///
    /// The thread whose charge met the limit runs it, with nothing locked, and one thread at a time does.
    /// Only [`try_charge`](Self::try_charge) and [`request`](Self::request) run it, never
    /// [`try_charge_units`](Self::try_charge_units), which allocators call. It should be short: the time
    /// given to reclaim ([`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)) is looked at
    /// between reclaimers. One that runs ten times as long is named with the charge that waits for it: once on standard error,
    /// in [`Events::reclaimer_hung`](crate::Events::reclaimer_hung), and in [`Group::diagnose`]. It must not take a lock that a
    /// thread holds while it charges: that thread would wait for itself. If it panics, the charge goes on without it, and it is not run again. What it says
    /// that it gave and nobody sees in the group's usage, another thread may have charged at once: then it is
    /// asked again, twice at most, and up to 64 times where what it gave was seen before.
    ///
    /// Hold no lock around a charge that the function takes: the charging thread would wait for itself. A statement like
    /// `pages.lock().unwrap().push(cache.try_charge(10)?)` locks before it charges.
    ///
    /// In a ledger that processes share it is also asked when another process sets a max below what is in use
    /// ([`set_max_now`](Self::set_max_now)): by a thread that each process with reclaimers or watches of such a ledger
    /// has.
    ///
    /// It may uncharge, destroy groups (this one, too) and charge. What it charges to any group of this
    /// ledger is served where there is room, and starts no reclaim. Where there is no room it is refused at
    /// once, even if it asked to wait. [`charge`](Self::charge) succeeds as ever.
    ///
    /// ```
    /// # use ledgerline::{Charge, Ledger, Limit};
    /// # use std::sync::{Arc, Mutex};
    /// let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new()?));
    /// let tenant = ledger.root().create("acme")?;
    /// tenant.set_max(Limit::units(100))?;
    /// let cache = tenant.create("cache")?;
    /// let pages: Arc<Mutex<Vec<Charge<'static>>>> = Arc::default();
    /// for _ in 0..8 {
    ///     let page = cache.try_charge(10)?; // before the lock, which the reclaimer takes
    ///     pages.lock().unwrap().push(page);
    /// }
    /// let evict = pages.clone();
    /// let _reclaimer = cache.add_reclaimer(0, move |need| {
    ///     let mut freed = 0;
    ///     while freed < need {
    ///         let Some(page) = evict.lock().unwrap().pop() else { break };
    ///         freed += page.units(); // uncharged as it drops
    ///     }
    ///     freed
    /// });
    /// let query = tenant.create("q1")?;
    /// let _sorted = query.try_charge(50)?; // the cache made room
    /// assert_eq!(pages.lock().unwrap().len(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_reclaimer(
        self,
        priority: i32,
        reclaim: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Reclaimer<'l> {
        // (The entry is nobody's.)
        whose::nobody(|| self.enter_reclaimer(priority, Box::new(reclaim)))
    }

    fn enter_reclaimer(
        self,
        priority: i32,
        run: Box<dyn Fn(u64) -> u64 + Send + Sync>,
    ) -> Reclaimer<'l> {
        let ledger = self.ledger();
        let path = path::ids_to_root(ledger.table(), self.id());
        let entry = change_reclaimers(ledger, |entries| {
            entries.numbers += 1;
            let entry = Arc::new(Entry {
                number: entries.numbers,
                group: self.id(),
                path,
                priority,
                run,
                runner: AtomicU64::new(0),
                registered: Instant::now(),
                tired: AtomicU64::new(0),
                credit: AtomicU32::new(0),
                report: Mutex::default(),
            });
            for above in &entry.path {
                entries.below.insert((above.raw(), entry.number), entry.clone());
            }
            ledger.control().reclaimers.count.fetch_add(1, Ordering::Relaxed);
            entry
        });
        // (Without a thread it is not asked for what another process does.)
        let seat = listener::join(ledger).unwrap_or(None);
        Reclaimer { ledger, _seat: seat, entry }
    }
}

impl Reclaimer<'_> {
    /// What its runs achieved so far.
    pub fn report(&self) -> ReclaimReport {
        *lock::gated(&self.entry.report)
    }
}

impl Drop for Reclaimer<'_> {
    fn drop(&mut self) {
        change_reclaimers(self.ledger, |entries| {
            for above in &self.entry.path {
                entries.below.remove(&(above.raw(), self.entry.number));
            }
            self.ledger.control().reclaimers.count.fetch_sub(1, Ordering::Relaxed);
        });
        // A thread that found it before may still run it. (A reclaimer does not wait: it may be this very
        // one, or be waited for by this one.)
        wait_until(None, || !self.entry.is_running() || reclaiming::is_inside_any());
    }
}

/// What came of a reclaimer's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its group's usage fell.
    Freed,
    /// It says that it gave units back, and the usage did not fall: either another thread charged as many meanwhile,
    /// or that is not so.
    Unseen,
    /// It gave nothing.
    Nothing,
}

impl Entry {
    /// Runs it for a charge of `for_whom`, unless another thread does. Says what came of it, if it ran to its end.
    pub(crate) fn run(&self, ledger: &Ledger, units: u64, for_whom: GroupId) -> Option<Outcome> {
        let me = forked::thread();
        // Acquire, partner of the Release below: one run sees what the last one did. (Before the report, so that those who
        // find it running take no lock.)
        self.runner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // The state of a reclaimer that panicked is unknown.
        if self.has_panicked() {
            self.runner.store(0, Ordering::Release);
            return None;
        }
        let before = precise::charged(ledger.table(), self.group);
        lock::gated(&self.report).runs += 1;
        let run = || catch_unwind(AssertUnwindSafe(|| (self.run)(units)));
        let claimed = watchdog::watch(ledger, self.group, for_whom, run);
        let freed = before.saturating_sub(precise::charged(ledger.table(), self.group));
        let mut report = lock::gated(&self.report);
        report.freed = report.freed.saturating_add(freed);
        match claimed {
            Ok(claimed) => {
                // (It may say anything, and a sum that wraps says less than nothing.)
                report.claimed = report.claimed.saturating_add(claimed);
                report.short += u64::from(claimed > freed);
            }
            Err(_) => report.panics += 1,
        }
        drop(report);
        if freed > 0 {
            // If it destroyed its group, the nearest ancestor that exists gets the count.
            let there = self.path.iter().find(|&&id| ledger.group(id).exists());
            let units = i64::try_from(freed).unwrap_or(i64::MAX);
            sums::note(ledger.table(), *there.unwrap_or(&GroupId::ROOT), Sum::Reclaimed, units);
        }
        let outcome = claimed.ok().map(|claimed| match (freed, claimed) {
            (0, 0) => Outcome::Nothing,
            (0, _) => Outcome::Unseen,
            _ => Outcome::Freed,
        });
        let credit = match outcome {
            Some(Outcome::Freed) => CREDIT,
            _ => self.credit.load(Ordering::Relaxed).saturating_sub(1),
        };
        self.credit.store(credit, Ordering::Relaxed);
        self.runner.store(0, Ordering::Release);
        outcome
    }

    /// Whether it is asked again, which so many times in a row gave what nobody saw: threads may charge what comes back
    /// at once. One whose units were seen before is believed for longer. (One that only says so would be asked as often
    /// for each charge that is refused.)
    pub(crate) fn is_believed(&self, unseen: u32) -> bool {
        unseen <= UNSEEN || self.credit.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_running(&self) -> bool {
        // Acquire, partner of the Release in `run`: whoever sees that a run has ended sees what it did.
        forked::is_here(self.runner.load(Ordering::Acquire))
    }

    /// Whether a thread ran it that this process, a forked child, does not have. It is not run again: its state is unknown.
    pub(crate) fn is_lost(&self) -> bool {
        let runner = self.runner.load(Ordering::Relaxed);
        runner != 0 && !forked::is_here(runner)
    }

    pub(crate) fn has_panicked(&self) -> bool {
        lock::gated(&self.report).panics > 0
    }

    /// Exempts it for a while from requests for what is above a high: it gave nothing just now.
    pub(crate) fn rest(&self, time: Duration) {
        let until = (self.registered.elapsed() + time).as_nanos();
        self.tired.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn is_tired(&self) -> bool {
        let until = self.tired.load(Ordering::Relaxed);
        until > 0 && self.registered.elapsed().as_nanos() < until.into()
    }
}

impl Reclaimers {
    /// The groups that have one, or have one below.
    pub(crate) fn groups(&self) -> Vec<GroupId> {
        // Inside the gate, as below.
        let _pass = lock::pass();
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let groups = entries.below.keys().map(|&(group, _)| GroupId::from_raw(group));
        let mut groups: Vec<GroupId> = groups.collect();
        groups.dedup();
        groups
    }

    /// Whether there is any reclaimer.
    pub(crate) fn can_help(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The reclaimers registered at a group or below it, by age.
    pub(crate) fn below(&self, group: GroupId) -> Vec<Arc<Entry>> {
        // This is inside the gate, so that no fork finds the lock held.
        let _pass = lock::pass();
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let theirs = entries.below.range((group.raw(), 0)..=(group.raw(), u64::MAX));
        theirs.map(|(_, entry)| entry.clone()).collect()
    }
}

fn change_reclaimers<T>(ledger: &Ledger, change: impl FnOnce(&mut Entries) -> T) -> T {
    // Inside the gate, as above.
    lock::guard_forks();
    let _pass = lock::pass();
    let entries = &ledger.control().reclaimers.entries;
    change(&mut entries.write().unwrap_or_else(PoisonError::into_inner))
}

//! Registers reclaimers, finds them and runs them. `reclaim.rs` decides which are asked for how much when a limit is
//! met.
//!
//! An entry is kept under every group of its path, which never changes while its group lives. So the reclaimers below
//! a full group are found without a look at any others.
//!
//! No lock is held while a reclaimer runs. It may uncharge, destroy groups (its own, too), register reclaimers, and
//! charge. Its charges are served if there is room; they do not reclaim and do not wait (`reclaiming.rs`).

use crate::control::listener::{self, Subscription};
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
    /// The number of reclaimers. A refusal checks this first.
    count: AtomicUsize,
    /// Lots drawn so far (`reclaim.rs`).
    pub(crate) lots: AtomicU64,
}

#[derive(Default)]
struct Entries {
    /// The entries, by each group of their path, and by age.
    below: BTreeMap<(u64, u64), Arc<Entry>>,
    /// Number of registrations so far.
    numbers: u64,
}

/// Number of times that a reclaimer is asked again after runs whose claimed units did not show in the usage.
const UNSEEN: u32 = 2;
/// The same for a reclaimer whose units showed before.
const CREDIT: u32 = 64;

/// One registered reclaimer.
pub(crate) struct Entry {
    number: u64,
    pub(crate) group: GroupId,
    /// The groups from its own to the root; empty if its group did not exist.
    path: Vec<GroupId>,
    pub(crate) priority: i32,
    run: Box<dyn Fn(u64) -> u64 + Send + Sync>,
    /// The number of the thread that runs it (`gate/forked.rs`); zero if none does.
    runner: AtomicU64,
    registered: Instant,
    /// The time until which it is not asked for an excess over a high, in nanoseconds since it was registered.
    tired: AtomicU64,
    /// Number of consecutive runs that are believed although their units do not show. Changed only by the running
    /// thread.
    credit: AtomicU32,
    report: Mutex<ReclaimReport>,
}

/// Results of a reclaimer's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimReport {
    /// Number of runs.
    pub runs: u64,
    /// Units that it reported as freed.
    pub claimed: u64,
    /// Units by which its group's usage fell while it ran.
    pub freed: u64,
    /// Runs that freed less than they reported, or whose group was charged meanwhile.
    pub short: u64,
    /// Runs that panicked: at most one, since it is not run again.
    pub panics: u64,
}

/// A registered reclaimer. Dropping this unregisters it, and waits until no other thread runs it. So do not drop it
/// under a lock that the reclaimer takes. A drop inside a reclaimer does not wait: two reclaimers that drop each
/// other's registrations would wait for each other. A forked child does not wait for runs of threads that it does not
/// have. It does not ask a reclaimer again that such a thread was running.
#[must_use = "a reclaimer that is dropped at once is taken out at once"]
pub struct Reclaimer<'l> {
    ledger: &'l Ledger,
    /// Other processes may lower a max.
    _subscription: Option<Subscription<'l>>,
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
    /// Registers a function that gives back memory of this group. Before a charge below a full group (this one or an
    /// ancestor) is refused, `reclaim(need)` is called. It uncharges about `need` units and returns how many it did.
    /// Lower priorities are asked first (caches, then spilling to disk). Reclaimers of equal priority are asked in
    /// proportion to their groups' units above their protection ([`protection`](Self::protection) below the full
    /// group, with [`Unclaimed::Lost`](crate::Unclaimed)). For a small request one is drawn by lot. They are also
    /// asked for the excess if a charge ends above a high ([`set_high`](Self::set_high)), and before a limit is
    /// lowered below usage ([`set_max`](Self::set_max)).
    ///
    /// The thread whose charge met the limit runs it, without holding a lock, and only one thread at a time does.
    /// Only [`try_charge`](Self::try_charge) and [`request`](Self::request) run it, never
    /// [`try_charge_units`](Self::try_charge_units), which allocators call. It should be short: the time limit of
    /// reclaim ([`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)) is checked only between
    /// reclaimers. If it runs ten times as long, it is reported together with the waiting charge: once on standard
    /// error, in [`Events::reclaimer_hung`](crate::Events::reclaimer_hung), and in [`Group::diagnose`].
    ///
    /// If it panics, the charge goes on without it, and it is not run again. If it reports units that do not show in
    /// the group's usage, another thread may have charged them at once. Then it is asked again, at most twice, or up
    /// to 64 times if its units showed before.
    ///
    /// Hold no lock around a charge if the function takes that lock: the charging thread would wait for itself. A
    /// statement like `pages.lock().unwrap().push(cache.try_charge(10)?)` locks before it charges.
    ///
    /// In a ledger that processes share, it is also asked when another process sets a max below usage
    /// ([`set_max_now`](Self::set_max_now)). Each process with reclaimers or watches of such a ledger has a thread
    /// for this.
    ///
    /// It may uncharge, destroy groups (this one, too) and charge. Its charges to any group of this ledger are served
    /// if there is room, and start no reclaim. Without room they are refused at once, even if they asked to wait.
    /// [`charge`](Self::charge) succeeds as always.
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
        // The entry is not accounted.
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
        // Without the thread it is not asked because of other processes.
        let subscription = listener::join(ledger).unwrap_or(None);
        Reclaimer { ledger, _subscription: subscription, entry }
    }
}

impl Reclaimer<'_> {
    /// Returns the results of its runs so far.
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
        // A thread that found the entry before may still run it. A reclaimer does not wait: it may be this very one,
        // or be waited for by this one.
        wait_until(None, || !self.entry.is_running() || reclaiming::is_inside_any());
    }
}

/// The outcome of a reclaimer's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its group's usage fell.
    Freed,
    /// It reported units, and the usage did not fall: either another thread charged as many meanwhile, or the report
    /// is wrong.
    Unseen,
    /// It freed nothing.
    Nothing,
}

impl Entry {
    /// Runs it for a charge of `for_whom`, unless another thread does. Returns the outcome if it ran to its end.
    pub(crate) fn run(&self, ledger: &Ledger, units: u64, for_whom: GroupId) -> Option<Outcome> {
        let me = forked::thread();
        // Acquire, partner of the Release below: each run sees the effects of the last one. Comes before the report,
        // so that threads that find it running take no lock.
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
                // The function may return anything, and a sum that wraps would be meaningless.
                report.claimed = report.claimed.saturating_add(claimed);
                report.short += u64::from(claimed > freed);
            }
            Err(_) => report.panics += 1,
        }
        drop(report);
        if freed > 0 {
            // If it destroyed its group, the nearest existing ancestor gets the count.
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

    /// Returns whether it is asked again after `unseen` consecutive runs whose units did not show: other threads may
    /// charge returned units at once. A reclaimer whose units showed before is believed for longer. Without a bound,
    /// one with wrong reports would be asked as often for each refused charge.
    pub(crate) fn is_believed(&self, unseen: u32) -> bool {
        unseen <= UNSEEN || self.credit.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_running(&self) -> bool {
        // Acquire, partner of the Release in `run`: a thread that sees the end of a run sees its effects.
        forked::is_here(self.runner.load(Ordering::Acquire))
    }

    /// Returns whether a thread ran it that this process, a forked child, does not have. It is not run again, since
    /// its state is unknown.
    pub(crate) fn is_lost(&self) -> bool {
        let runner = self.runner.load(Ordering::Relaxed);
        runner != 0 && !forked::is_here(runner)
    }

    pub(crate) fn has_panicked(&self) -> bool {
        lock::gated(&self.report).panics > 0
    }

    /// Exempts it for a while from requests for the excess over a high, since it freed nothing just now.
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
    /// Returns the groups that have a reclaimer at or below them.
    pub(crate) fn groups(&self) -> Vec<GroupId> {
        // Inside the gate, as below.
        let _pass = lock::pass();
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let groups = entries.below.keys().map(|&(group, _)| GroupId::from_raw(group));
        let mut groups: Vec<GroupId> = groups.collect();
        groups.dedup();
        groups
    }

    /// Returns whether there is any reclaimer.
    pub(crate) fn can_help(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Returns the reclaimers registered at a group or below it, by age.
    pub(crate) fn below(&self, group: GroupId) -> Vec<Arc<Entry>> {
        // Inside the gate, so that no fork finds the lock held.
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

//! Reclaim before refusal: what groups can give back is asked for when a limit is met.
//!
//! ```text
//! reclaim(full, requested)                            full: the group whose limit said no
//!   its reclaimers, and those of groups below it:
//!     first of groups above their protection, then of groups above min alone; never below min
//!     among them by priority, then by what is not protected
//!   hold off new caps below full, drain it            every charge there takes the slow path now
//!   each reclaimer that nobody runs, until there is room or the time is up:
//!     run it for what is missing, or for what its group has unprotected, if that is less
//!   progress: the caller tries again
//! ```
//!
//! Nothing is locked while a reclaimer runs. It may uncharge, destroy groups, register reclaimers; a
//! charge below the full group from inside it is refused at once ([`Reason::Reclaiming`]
//! (crate::Reason::Reclaiming)), since it could wait for itself.

use crate::error::Refusal;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock;
use crate::memory_stat::Sum;
use crate::path::RowPath;
use crate::protection::Unclaimed;
use crate::row::GroupId;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence, wait_a_turn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// Threads of a process that may reclaim at a time; one more finds nothing to reclaim.
const THREADS_MAX: usize = 64;

/// A ledger's reclaimers in this process, and who runs them now.
pub(crate) struct Pressure {
    entries: RwLock<Vec<Arc<Entry>>>,
    /// How many entries there are: what a refusal looks at first.
    count: AtomicUsize,
    /// Threads that reclaim, and how many.
    inside: [Inside; THREADS_MAX],
    inside_count: AtomicUsize,
}

/// A thread that reclaims, by thread pointer (zero: nobody), and the row below which it does.
struct Inside {
    thread: AtomicUsize,
    full: AtomicU32,
}

impl std::fmt::Debug for Pressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pressure").field("count", &self.count).finish_non_exhaustive()
    }
}

struct Entry {
    group: GroupId,
    priority: i32,
    run: Box<dyn Fn(u64) -> u64 + Send + Sync>,
    /// The thread that runs it, by thread pointer; zero when nobody does.
    runner: AtomicUsize,
    runs: AtomicU64,
    claimed: AtomicU64,
    freed: AtomicU64,
    short: AtomicU64,
    panics: AtomicU64,
}

/// What came of a reclaimer's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// How often it ran.
    pub runs: u64,
    /// Units that it said it freed.
    pub claimed: u64,
    /// Units by which its group's usage fell while it ran.
    pub freed: u64,
    /// Runs that freed less than they said (or whose group was charged meanwhile).
    pub short: u64,
    /// Runs that panicked: one at most, since it is not run again.
    pub panics: u64,
}

/// A registered reclaimer; it is taken out when this is dropped, once nobody else runs it.
pub struct Reclaimer<'l> {
    ledger: &'l Ledger,
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
    /// Registers what this group can give back: before a charge below a full group (this one or an
    /// ancestor) is refused, `reclaim(need)` is asked to uncharge about `need` units and says how
    /// many it did. Lower priorities are asked first (caches, then spilling to disk).
    ///
    /// It runs in the thread whose charge met the limit, by [`try_charge`](Self::try_charge) alone
    /// (never by [`try_charge_units`](Self::try_charge_units), which allocators call), one thread at
    /// a time, with nothing locked. It should be short: the time given to reclaim
    /// ([`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)) is looked at between
    /// reclaimers. If it panics, the charge goes on without it and it is not run again.
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
    ///     pages.lock().unwrap().push(cache.try_charge(10)?);
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
        let entry = Arc::new(Entry {
            group: self.id(),
            priority,
            run: Box::new(reclaim),
            runner: AtomicUsize::new(0),
            runs: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            short: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        });
        let ledger = self.ledger();
        ledger.change_reclaimers(|entries| entries.push(entry.clone()));
        Reclaimer { ledger, entry }
    }
}

impl Reclaimer<'_> {
    /// What came of it so far.
    pub fn report(&self) -> ReclaimReport {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ReclaimReport {
            runs: load(&self.entry.runs),
            claimed: load(&self.entry.claimed),
            freed: load(&self.entry.freed),
            short: load(&self.entry.short),
            panics: load(&self.entry.panics),
        }
    }
}

impl Drop for Reclaimer<'_> {
    fn drop(&mut self) {
        self.ledger
            .change_reclaimers(|entries| entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry)));
        // Whoever found it before may still run it; not this thread, which would wait for itself.
        let mut turn = 0;
        loop {
            let runner = self.entry.runner.load(Ordering::Acquire);
            if runner == 0 || runner == lock::thread() {
                return;
            }
            wait_a_turn(turn);
            turn = turn.saturating_add(1);
        }
    }
}

impl Entry {
    /// Runs it, if nobody does; what it said, if it ran to its end.
    fn run(&self, ledger: &Ledger, units: u64) -> Option<u64> {
        let me = lock::thread();
        // A reclaimer that panicked has a state that nobody knows.
        if self.panics.load(Ordering::Relaxed) > 0
            || self
                .runner
                // Acquire, partner of the Release below: one run sees what the last one did.
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return None;
        }
        let group = ledger.group(self.group);
        let before = group.precise();
        self.runs.fetch_add(1, Ordering::Relaxed);
        let claimed = catch_unwind(AssertUnwindSafe(|| (self.run)(units)));
        let freed = before.saturating_sub(group.precise());
        self.freed.fetch_add(freed, Ordering::Relaxed);
        match claimed {
            Ok(claimed) => {
                self.claimed.fetch_add(claimed, Ordering::Relaxed);
                self.short.fetch_add(u64::from(claimed > freed), Ordering::Relaxed);
            }
            Err(_) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
        if freed > 0 {
            group.add_reclaimed(freed);
        }
        self.runner.store(0, Ordering::Release);
        claimed.is_ok().then_some(freed)
    }
}

/// One that can be asked, in the order of asking.
struct Candidate {
    /// Whether only `low` protects what it would free.
    protected: bool,
    /// What may be taken from its group.
    excess: u64,
    entry: Arc<Entry>,
}

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure {
            entries: RwLock::new(Vec::new()),
            count: AtomicUsize::new(0),
            inside: [const { Inside { thread: AtomicUsize::new(0), full: AtomicU32::new(0) } };
                THREADS_MAX],
            inside_count: AtomicUsize::new(0),
        }
    }

    /// Whether there is anybody to ask.
    pub(crate) fn can_help(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The row below which the calling thread reclaims. One load where nobody does.
    #[inline]
    fn mine(&self) -> Option<&Inside> {
        if self.inside_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let me = lock::thread();
        self.inside.iter().find(|inside| inside.thread.load(Ordering::Relaxed) == me)
    }
}

/// The calling thread is among those who reclaim below a group; taken back when dropped.
struct Reclaiming<'l> {
    ledger: &'l Ledger,
    full: u32,
    slot: &'l Inside,
}

impl<'l> Reclaiming<'l> {
    /// `None` where too many threads are.
    fn begin(ledger: &'l Ledger, full: u32) -> Option<Self> {
        let pressure = &ledger.table().pressure;
        let me = lock::thread();
        let free = |slot: &&Inside| {
            slot.thread.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        // (Read by this very thread alone.)
        let slot = pressure.inside.iter().find(free)?;
        slot.full.store(full, Ordering::Relaxed);
        pressure.inside_count.fetch_add(1, Ordering::Relaxed);
        ledger.row(full).counter.track.draining.fetch_add(1, Ordering::SeqCst);
        // Partner of the fence in `PageCounter::allow`: no cell below gets a cap from here on, so
        // after the drain a charge below cannot be served by one.
        fence(Ordering::SeqCst);
        let _pass = lock::pass();
        ledger.drain(full);
        Some(Reclaiming { ledger, full, slot })
    }
}

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.ledger.row(self.full).counter.track.draining.fetch_sub(1, Ordering::SeqCst);
        self.slot.thread.store(0, Ordering::Relaxed);
        self.ledger.table().pressure.inside_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ledger {
    /// Whether a charge comes from inside a reclaimer, below what is being reclaimed.
    #[inline]
    pub(crate) fn is_reclaiming(&self, id: GroupId) -> bool {
        self.table().pressure.mine().is_some_and(|inside| {
            RowPath::new(self, id.index())
                .is_some_and(|path| path.leads_through(inside.full.load(Ordering::Relaxed)))
        })
    }

    fn change_reclaimers(&self, change: impl FnOnce(&mut Vec<Arc<Entry>>)) {
        // Inside the gate, so that no fork finds it locked.
        let _pass = lock::pass();
        let pressure = &self.table().pressure;
        let mut entries = pressure.entries.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut entries);
        pressure.count.store(entries.len(), Ordering::Relaxed);
    }

    /// Tries to make room for a charge that was refused; whether that is worth another try.
    pub(crate) fn reclaim(&self, refusal: &Refusal, until: Instant) -> bool {
        let full = self.group(refusal.group);
        let missing = || {
            let counter = &full.row().counter;
            counter.usage().saturating_add(refusal.requested).saturating_sub(counter.max())
        };
        self.reclaim_below(full, missing, until)
    }

    /// Tries to bring a group down to its high; whether anything was freed.
    pub(crate) fn reclaim_above(&self, above: Group<'_>, high: u64) -> bool {
        let counter = &above.row().counter;
        let missing = || counter.usage().saturating_sub(high);
        self.table().pressure.can_help()
            && self.reclaim_below(above, missing, Instant::now() + self.table().reclaim_time)
    }

    /// Has those who can give something back below a full group do so, until nothing is missing.
    fn reclaim_below(&self, full: Group<'_>, missing: impl Fn() -> u64, until: Instant) -> bool {
        if Instant::now() >= until || self.table().pressure.mine().is_some() {
            return false;
        }
        let candidates = self.candidates(full);
        if candidates.is_empty() {
            return false;
        }
        let Some(_reclaiming) = Reclaiming::begin(self, full.id().index()) else { return false };
        let mut progress = missing() == 0;
        let mut busy = Vec::new();
        for candidate in candidates {
            let missing = missing();
            if missing == 0 || Instant::now() >= until {
                break;
            }
            match candidate.entry.run(self, missing.min(candidate.excess)) {
                Some(freed) => {
                    progress |= freed > 0;
                    if candidate.protected && freed > 0 {
                        self.count_event(candidate.entry.group, Sum::Low);
                    }
                }
                None => busy.push(candidate.entry),
            }
        }
        if progress || missing() == 0 {
            return true;
        }
        // What somebody else's run frees may be enough.
        let mut turn = 0;
        while Instant::now() < until {
            if busy.iter().all(|entry| entry.runner.load(Ordering::Acquire) == 0) {
                return busy.iter().any(|entry| entry.panics.load(Ordering::Relaxed) == 0);
            }
            wait_a_turn(turn);
            turn += 1;
        }
        false
    }

    /// Who can be asked to make room below `full`, in the order of asking.
    fn candidates(&self, full: Group<'_>) -> Vec<Candidate> {
        let entries: Vec<Arc<Entry>> = {
            let _pass = lock::pass();
            let entries = self.table().pressure.entries.read();
            let entries = entries.unwrap_or_else(PoisonError::into_inner);
            let below = |entry: &&Arc<Entry>| {
                RowPath::new(self, entry.group.index())
                    .is_some_and(|path| path.leads_through(full.id().index()))
            };
            entries.iter().filter(below).cloned().collect()
        };
        let mut candidates: Vec<Candidate> = entries
            .into_iter()
            .filter_map(|entry| {
                let group = self.group(entry.group);
                let usage = group.exists().then(|| group.precise())?;
                let protection = group.protection(full, Unclaimed::Lost);
                let above_low = usage.saturating_sub(protection.low.max(protection.min));
                let above_min = usage.saturating_sub(protection.min);
                let protected = above_low == 0;
                let excess = if protected { above_min } else { above_low };
                (excess > 0).then_some(Candidate { protected, excess, entry })
            })
            .collect();
        candidates.sort_by_key(|candidate| {
            (candidate.protected, candidate.entry.priority, std::cmp::Reverse(candidate.excess))
        });
        candidates
    }
}

//! A pool whose top is a budget of a fleet: when the store is asked for more than this node has leased, and which
//! callers wait.
//!
//! ```text
//! a grant leaves less than a quarter of the lease    the store is asked for more, in the background
//! the lease refuses a consumer that can spill        it waits one round trip, then takes the remainder or spills
//! it refuses a consumer that cannot                  it waits up to `wait_for_lease`; other nodes give back idle units
//! ```
//!
//! `try_grow` cannot await. A waiting caller blocks its thread, for a bounded time, and only if the fleet's tasks
//! continue meanwhile: in a runtime of several threads, whose worker hands its other tasks on (`block_in_place`), or in
//! a thread that drives no runtime. Otherwise the store is asked in the background, and the caller refused.
//!
//! All atomics of this file are independent values: Relaxed.

use crate::report::size;
use ledgerline_fleet::book::BudgetView;
use ledgerline_fleet::fleet::{Budget, FleetError, Standing};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// The time after an insufficient answer in which the store is not asked by consumers that can spill, or in advance.
const PAUSE: Duration = Duration::from_millis(100);

/// The lease of the budget at a pool's top.
#[derive(Debug)]
pub(crate) struct Lease {
    asks: Arc<Asks>,
    pub(crate) patience: Duration,
}

/// The state that outlives the asking caller.
#[derive(Debug)]
struct Asks {
    budget: Budget,
    /// The units that the task in the background asks for; 0 without a task. A larger request makes the task ask again.
    ahead: AtomicU64,
    /// The store's report when it last had too little.
    told: Mutex<Option<Told>>,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    totals: Result<Vec<BudgetView>, FleetError>,
}

impl Lease {
    pub(crate) fn new(budget: Budget) -> Lease {
        let asks = Asks { budget, ahead: AtomicU64::new(0), told: Mutex::default() };
        Lease { asks: Arc::new(asks), patience: Duration::ZERO }
    }

    /// Returns whether a group's max is a lease of the fleet's: the budget's own, and those above it.
    pub(crate) fn covers(&self, path: &str) -> bool {
        let below = self.asks.budget.path().strip_prefix(path);
        path != "/" && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Asks for more before a consumer is refused, if `used` is nearly all that the lease allows.
    pub(crate) fn foresee(&self, used: u64) {
        let Some(max) = self.asks.budget.group().max().get() else { return };
        if used > max / 4 * 3 {
            self.ask_in_background(used / 2);
        }
    }

    /// Returns the time until which a caller that is refused now may wait.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Requests a lease of the charged units plus `units`, and waits for that until `end` if it may. Without more units
    /// the caller spills, or its query, which will hold `query`, may end in an error. Returns whether the units were
    /// available, at least for a moment. If they were not, there may still be more than before.
    pub(crate) fn grow(&self, units: u64, query: u64, spills: bool, end: Instant) -> bool {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() || !may_block() {
            self.ask_in_background(units);
            return false;
        }
        if spills && self.asks.was_refused_just_now() {
            return false;
        }
        let (answer, answered) = sync_channel(1);
        let asks = self.asks.clone();
        self.runtime().spawn(async move {
            let mut grown = asks.ask(units).await;
            if !grown && !spills && asks.may_come(query) {
                grown = asks.budget.charge_within(units, rest).await.is_ok();
            }
            // The caller may have stopped waiting.
            let _late = answer.send(grown);
        });
        // A runtime that ends drops the sender.
        block(|| answered.recv_timeout(rest).unwrap_or(false))
    }

    fn ask_in_background(&self, units: u64) {
        let asks = &self.asks;
        if asks.was_refused_just_now() || asks.ahead.fetch_max(units.max(1), Relaxed) > 0 {
            return;
        }
        // Made here, so that it is dropped even if a runtime ends before the task has run.
        let mut ahead = Ahead { asks: asks.clone(), done: false };
        self.runtime().spawn(async move {
            loop {
                let units = ahead.asks.ahead.load(Relaxed);
                if !ahead.asks.ask(units).await || ahead.has_done(units) {
                    break;
                }
            }
        });
    }

    fn runtime(&self) -> &Handle {
        self.asks.budget.runtime()
    }

    /// Writes which lease is full, and the state of the fleet.
    pub(crate) fn say(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = &self.asks.budget;
        let lease = size(budget.lease());
        write!(f, "\nFleet: this node has leased {lease} of {}", budget.path())?;
        let standing = budget.standing();
        if standing != Standing::Open {
            write!(f, "; {standing}")?;
        }
        match &*self.asks.told() {
            None => f.write_str("; the store is asked for more"),
            Some(Told { totals: Err(error), .. }) => {
                write!(f, "; the store was asked for more: {error}")
            }
            Some(Told { totals: Ok(totals), at }) => {
                for budget in totals {
                    let BudgetView { path, limit, leased, idle, .. } = budget;
                    let [limit, leased, idle] = [limit, leased, idle].map(|units| size(*units));
                    write!(f, "; all nodes have {leased} of {path}'s limit of {limit}")?;
                    write!(f, ", {idle} of that idle")?;
                }
                write!(f, " ({} ms ago)", at.elapsed().as_millis())
            }
        }
    }
}

impl Asks {
    fn told(&self) -> std::sync::MutexGuard<'_, Option<Told>> {
        // No critical section panics.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_refused_just_now(&self) -> bool {
        self.told().as_ref().is_some_and(|told| told.at.elapsed() < PAUSE)
    }

    /// Makes one round trip; a second one for the error's details, if the first was not enough.
    async fn ask(&self, units: u64) -> bool {
        let used = || self.budget.group().precise();
        let before = used();
        let asked = self.budget.ask(units).await;
        // Other consumers may have taken units since the message was made; the store did grant these.
        if asked.is_ok() && self.budget.lease().saturating_sub(before.min(used())) >= units {
            return true;
        }
        let totals = match asked {
            Ok(()) => self.budget.totals().await,
            Err(error) => Err(error),
        };
        *self.told() = Some(Told { at: Instant::now(), totals });
        false
    }

    /// Returns whether a query that holds this much would fit if all others gave back everything.
    fn may_come(&self, query: u64) -> bool {
        let told = self.told();
        let totals = told.as_ref().and_then(|told| told.totals.as_ref().ok());
        totals.is_none_or(|totals| totals.iter().all(|budget| budget.limit >= query))
    }
}

/// A request in the background. Allows the next one when it is done, or dropped before that.
struct Ahead {
    asks: Arc<Asks>,
    done: bool,
}

impl Ahead {
    /// Returns whether there was no larger request meanwhile.
    fn has_done(&mut self, units: u64) -> bool {
        self.done = self.asks.ahead.compare_exchange(units, 0, Relaxed, Relaxed).is_ok();
        self.done
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Once it is done, the number belongs to the next one.
        if !self.done {
            self.asks.ahead.store(0, Relaxed);
        }
    }
}

/// Returns whether the fleet's tasks continue while this thread is blocked.
fn may_block() -> bool {
    Handle::try_current()
        .map_or(true, |runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

fn block<T>(wait: impl FnOnce() -> T) -> T {
    if Handle::try_current().is_ok() { block_in_place(wait) } else { wait() }
}

//! A pool whose top is a budget of a fleet: when it asks the store for more than this node has leased, and who waits.
//!
//! ```text
//! a grant leaves less than a quarter of the lease    the store is asked for more, in the background
//! the lease refuses who has something to spill       one round trip, then it takes what there is or spills
//! it refuses who has nothing to spill                as long as `wait_for_lease` says; other nodes give back what lies idle
//! ```
//!
//! `try_grow` cannot await. Who waits blocks its thread, for a bounded time, and only where the fleet's tasks go on
//! meanwhile: in a runtime of several threads, whose worker hands its other tasks on (`block_in_place`), or in a thread
//! that drives no runtime. Elsewhere the store is asked in the background, and the caller refused.
//!
//! All atomics of this file stand for themselves: Relaxed.

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

/// For so long after an answer that did not suffice the store is not asked by those who can spill, or look ahead.
const PAUSE: Duration = Duration::from_millis(100);

/// The lease of the budget at a pool's top.
#[derive(Debug)]
pub(crate) struct Lease {
    asks: Arc<Asks>,
    pub(crate) patience: Duration,
}

/// What outlives the caller that asks.
#[derive(Debug)]
struct Asks {
    budget: Budget,
    /// The units that a task in the background asks for; 0 while there is none. One that comes for more has it ask again.
    ahead: AtomicU64,
    /// What the store said when it last had too little.
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

    /// Whether a group's max is a lease of the fleet's: the budget's own, and those above it.
    pub(crate) fn covers(&self, path: &str) -> bool {
        let below = self.asks.budget.path().strip_prefix(path);
        path != "/" && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Asks for more before anybody is refused, where `used` is nearly all that the lease allows.
    pub(crate) fn foresee(&self, used: u64) {
        let Some(max) = self.asks.budget.group().max().get() else { return };
        if used > max / 4 * 3 {
            self.ask_in_background(used / 2);
        }
    }

    /// Until when one may wait who is refused now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Asks that the lease be larger by `units` than what is charged, and waits for that until `end` where it may. If there is
    /// no more, who asks spills, or its query, which will hold `query`, may end in an error. Returns whether it was there, at
    /// least for a moment. If it was not, there may still be more than before.
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
            // Whoever asked may wait no longer.
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
        // Made here, so that a runtime that ends before the task has run ends it, too.
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

    /// Says which lease it was that is full, and what the fleet has.
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
        // Nothing in a section panics.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_refused_just_now(&self) -> bool {
        self.told().as_ref().is_some_and(|told| told.at.elapsed() < PAUSE)
    }

    /// One round trip; another one, for the error to come, where that did not suffice.
    async fn ask(&self, units: u64) -> bool {
        let used = || self.budget.group().precise();
        let before = used();
        let asked = self.budget.ask(units).await;
        // What others took since the message was made, the store had.
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

    /// Whether a query that holds so much would fit if all others gave back all they have.
    fn may_come(&self, query: u64) -> bool {
        let told = self.told();
        let totals = told.as_ref().and_then(|told| told.totals.as_ref().ok());
        totals.is_none_or(|totals| totals.iter().all(|budget| budget.limit >= query))
    }
}

/// Asks in the background. Lets the next one do so when it is done, or dropped before that.
struct Ahead {
    asks: Arc<Asks>,
    done: bool,
}

impl Ahead {
    /// Whether nobody came for more meanwhile.
    fn has_done(&mut self, units: u64) -> bool {
        self.done = self.asks.ahead.compare_exchange(units, 0, Relaxed, Relaxed).is_ok();
        self.done
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Once it is done, the number is the next one's.
        if !self.done {
            self.asks.ahead.store(0, Relaxed);
        }
    }
}

/// Whether the fleet's tasks go on while this thread is blocked.
fn may_block() -> bool {
    Handle::try_current()
        .map_or(true, |runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

fn block<T>(wait: impl FnOnce() -> T) -> T {
    if Handle::try_current().is_ok() { block_in_place(wait) } else { wait() }
}

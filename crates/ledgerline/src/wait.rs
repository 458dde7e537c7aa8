//! Waiting for room: first come, first served, at the group whose limit said no.
//!
//! ```text
//! charge, waiting(group, n, until)
//!   nobody queues on the way, and it is granted: done
//!   queue at the group that is full
//!     not the first: sleep until the one before leaves
//!     the first: hold off caps below the full group, drain it     what comes back reaches the counters
//!       n would fit on the way: try; granted: leave, wake the next
//!       full elsewhere: queue there
//!       sleep until units come back (bell.rs)
//! ```
//!
//! Only the first of a queue sleeps on the bell, so units that come back wake one thread, not all of
//! them. A plain `try_charge` does not queue, and may be served in between.

use crate::bell::Bell;
use crate::charge::Charge;
use crate::error::{Reason, Refusal, Refused};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock;
use crate::row::GroupId;
use crate::sync::{AtomicU64, Ordering, fence};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Full groups of one ledger at which threads of one process may queue at a time.
const QUEUES_MAX: usize = 64;

/// Those in this process who wait for room in a ledger.
pub(crate) struct Waiting {
    /// Rung for the first of each queue; all together, so that who returns units asks once.
    any: Bell,
    desks: [Desk; QUEUES_MAX],
    queues: Mutex<Queues>,
}

/// What those who return units look at: the full group (0: none) and its first waiter's bell.
struct Desk {
    group: AtomicU64,
    bell: Bell,
}

struct Queues {
    /// By desk, the first in front. Each sleeps on a bell of its own until it is the first.
    waiters: [VecDeque<Arc<Bell>>; QUEUES_MAX],
    /// The process whose threads these are: a forked child has none of them.
    process: u32,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("any", &self.any).finish_non_exhaustive()
    }
}

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting {
            any: Bell::new(),
            desks: [const { Desk { group: AtomicU64::new(0), bell: Bell::new() } }; QUEUES_MAX],
            queues: Mutex::new(Queues {
                waiters: [const { VecDeque::new() }; QUEUES_MAX],
                process: std::process::id(),
            }),
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.process != std::process::id() {
            queues.process = std::process::id();
            queues.waiters.iter_mut().for_each(VecDeque::clear);
            self.desks.iter().for_each(|desk| desk.group.store(0, Ordering::Relaxed));
        }
        queues
    }
}

/// A place in a queue; given up when dropped.
struct Place<'l> {
    ledger: &'l Ledger,
    desk: usize,
    bell: Arc<Bell>,
}

impl<'l> Place<'l> {
    /// The last place at a group's desk; `None` when all desks are taken.
    fn take(ledger: &'l Ledger, group: GroupId) -> Option<Place<'l>> {
        let waiting = &ledger.table().waiting;
        // Inside the gate, so that no fork finds the queues locked.
        let _pass = lock::pass();
        let mut queues = waiting.queues();
        let at = |id: u64| {
            waiting.desks.iter().position(|desk| desk.group.load(Ordering::Relaxed) == id)
        };
        let desk = at(group.raw()).or_else(|| at(0))?;
        waiting.desks[desk].group.store(group.raw(), Ordering::Relaxed);
        let bell = Arc::new(Bell::new());
        queues.waiters[desk].push_back(bell.clone());
        Some(Place { ledger, desk, bell })
    }

    fn is_first(&self) -> bool {
        let _pass = lock::pass();
        let queues = self.ledger.table().waiting.queues();
        queues.waiters[self.desk].front().is_none_or(|first| Arc::ptr_eq(first, &self.bell))
    }

    /// Waits to be the first; `false` if the time is up before.
    fn queue(&self, until: Instant) -> bool {
        loop {
            let seen = self.bell.seen();
            if self.is_first() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            self.bell.sleep(seen, until);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waiting = &self.ledger.table().waiting;
        let _pass = lock::pass();
        let mut queues = waiting.queues();
        let queue = &mut queues.waiters[self.desk];
        queue.retain(|bell| !Arc::ptr_eq(bell, &self.bell));
        match queue.front() {
            Some(next) => next.ring(),
            None => waiting.desks[self.desk].group.store(0, Ordering::Relaxed),
        }
    }
}

/// The first of a queue: what is returned below the full group goes to the counters, and rings.
struct First<'l> {
    ledger: &'l Ledger,
    full: u32,
    desk: &'l Desk,
}

impl<'l> First<'l> {
    fn new(place: &Place<'l>, full: u32) -> First<'l> {
        let ledger = place.ledger;
        let waiting = &ledger.table().waiting;
        waiting.any.arrive();
        ledger.row(full).counter.track.draining.fetch_add(1, Ordering::SeqCst);
        // Partner of the fence in `PageCounter::allow`.
        fence(Ordering::SeqCst);
        let _pass = lock::pass();
        ledger.drain(full);
        First { ledger, full, desk: &waiting.desks[place.desk] }
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.ledger.row(self.full).counter.track.draining.fetch_sub(1, Ordering::SeqCst);
        self.ledger.table().waiting.any.leave();
    }
}

impl<'l> Group<'l> {
    /// As [`try_charge`](Self::try_charge), and waits up to `patience` for room where there is none:
    /// first come, first served among those who wait at the same full group. Units that come back
    /// wake one waiter. While somebody waits, charges below the full group go to its counters.
    ///
    /// ```
    /// # use ledgerline::{Ledger, Limit};
    /// # use std::time::Duration;
    /// let ledger = Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// tenant.set_max(Limit::units(100))?;
    /// let first = tenant.try_charge(80)?;
    /// std::thread::scope(|scope| {
    ///     let second = scope.spawn(|| tenant.try_charge_wait(50, Duration::from_secs(60)).map(drop));
    ///     drop(first);
    ///     second.join().unwrap()
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] when the time is up, when the group is destroyed, and inside a reclaimer. More
    /// than a limit allows at all is refused at once.
    pub fn try_charge_wait(self, units: u64, patience: Duration) -> Result<Charge<'l>, Refused> {
        let ledger = self.ledger();
        let until = Instant::now() + patience;
        // Behind those who wait already.
        let mut full = match ledger.queued_on_the_way(self.id()) {
            Some(full) => full,
            None => match self.try_charge_reclaiming(units) {
                Ok(charge) => return Ok(charge),
                Err(refusal) => ledger.worth_waiting_for(self.id(), &refusal)?,
            },
        };
        loop {
            let refusal = match self.wait_at(full, units, until) {
                Ok(charge) => return Ok(charge),
                Err(refusal) => refusal,
            };
            if Instant::now() >= until {
                return Err(self.explain(&refusal));
            }
            full = ledger.worth_waiting_for(self.id(), &refusal)?;
        }
    }

    /// Queues at a full group until the charge is granted, or refused by another.
    fn wait_at(self, full: GroupId, units: u64, until: Instant) -> Result<Charge<'l>, Refusal> {
        let ledger = self.ledger();
        let refused = || ledger.refusal_by(full, self.id(), units);
        let Some(place) = Place::take(ledger, full) else { return Err(refused()) };
        if !place.queue(until) {
            return Err(refused());
        }
        let first = First::new(&place, full.index());
        loop {
            let seen = first.desk.bell.seen();
            if ledger.would_fit(self.id(), units) {
                match self.try_charge_reclaiming(units) {
                    Ok(charge) => return Ok(charge),
                    Err(refusal) if refusal.group == full && refusal.reason == Reason::Limit => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            if !self.exists() {
                return Err(Refusal::gone(self.id(), units));
            }
            if Instant::now() >= until {
                return Err(refused());
            }
            first.desk.bell.sleep(seen, until);
        }
    }
}

impl Ledger {
    /// The full group to wait at; an error where no waiting helps.
    fn worth_waiting_for(&self, id: GroupId, refusal: &Refusal) -> Result<GroupId, Refused> {
        if refusal.reason == Reason::Limit && refusal.requested <= refusal.limit {
            Ok(refusal.group)
        } else {
            Err(self.group(id).explain(refusal))
        }
    }

    /// The nearest group on the way at which somebody waits.
    fn queued_on_the_way(&self, id: GroupId) -> Option<GroupId> {
        let path = self.path(id)?;
        let desks = &self.table().waiting.desks;
        path.rows().iter().find_map(|&row| {
            desks.iter().find_map(|desk| {
                let raw = desk.group.load(Ordering::Relaxed);
                (raw != 0 && GroupId::row_of(raw) == row)
                    .then(|| GroupId::from_parts(row, self.row(row).generation()))
            })
        })
    }

    /// Whether the counters on the way have room for so much more.
    fn would_fit(&self, id: GroupId, units: u64) -> bool {
        self.path(id).is_none_or(|path| {
            path.counters()
                .iter()
                .all(|counter| counter.usage().saturating_add(units) <= counter.max())
        })
    }

    fn refusal_by(&self, full: GroupId, charged: GroupId, requested: u64) -> Refusal {
        let counter = &self.group(full).row().counter;
        Refusal {
            group: full,
            charged,
            limit: counter.max(),
            usage: counter.usage(),
            requested,
            reason: Reason::Limit,
        }
    }

    /// Tells the first of those who wait at one of these groups that there may be room.
    /// Async-signal-safe.
    #[inline]
    pub(crate) fn tell_waiters(&self, rows: &[u32]) {
        if self.table().waiting.any.is_awaited() {
            for desk in &self.table().waiting.desks {
                let raw = desk.group.load(Ordering::Relaxed);
                if raw != 0 && rows.contains(&GroupId::row_of(raw)) {
                    desk.bell.ring();
                }
            }
        }
    }
}

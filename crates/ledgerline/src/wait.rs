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
//!       somebody may be cancelled for it: choose a victim
//!       sleep until units come back (bell.rs)
//! ```
//!
//! Only the first of a queue sleeps on the bell, so units that come back wake one waiter, not all of
//! them. A plain `try_charge` does not queue, and may be served in between.
//!
//! [`Wait`] takes these steps as far as they go without sleeping; a thread sleeps on the bell that it names
//! (here), a future has itself woken (request.rs).

use crate::alarm::{self, Alarm};
use crate::bell::Bell;
use crate::charge::Charge;
use crate::error::{Reason, Refusal, Refused};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock;
use crate::path::RowPath;
use crate::row::GroupId;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::victim::Choice;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
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
    waiters: [VecDeque<Arc<Seat>>; QUEUES_MAX],
    /// The process whose threads these are: a forked child has none of them.
    process: u32,
}

/// Where one waits to be the first: a thread sleeps on the bell, a future leaves its waker.
struct Seat {
    /// Who waits.
    asking: GroupId,
    bell: Bell,
    waker: Mutex<Option<Waker>>,
}

impl Seat {
    fn call(&self) {
        self.bell.ring();
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
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
    seat: Arc<Seat>,
}

impl<'l> Place<'l> {
    /// The last place at a group's desk; `None` when all desks are taken.
    fn take(ledger: &'l Ledger, group: GroupId, asking: GroupId) -> Option<Place<'l>> {
        let waiting = &ledger.table().waiting;
        // Inside the gate, so that no fork finds the queues locked.
        let _pass = lock::pass();
        let mut queues = waiting.queues();
        let at = |id: u64| {
            waiting.desks.iter().position(|desk| desk.group.load(Ordering::Relaxed) == id)
        };
        let desk = at(group.raw()).or_else(|| at(0))?;
        waiting.desks[desk].group.store(group.raw(), Ordering::Relaxed);
        let seat = Arc::new(Seat { asking, bell: Bell::new(), waker: Mutex::new(None) });
        queues.waiters[desk].push_back(seat.clone());
        Some(Place { ledger, desk, seat })
    }

    fn is_first(&self) -> bool {
        let _pass = lock::pass();
        let queues = self.ledger.table().waiting.queues();
        queues.waiters[self.desk].front().is_none_or(|first| Arc::ptr_eq(first, &self.seat))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waiting = &self.ledger.table().waiting;
        let next = {
            let _pass = lock::pass();
            let mut queues = waiting.queues();
            let queue = &mut queues.waiters[self.desk];
            queue.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
            if queue.is_empty() {
                waiting.desks[self.desk].group.store(0, Ordering::Relaxed);
            }
            queue.front().cloned()
        };
        // With nothing locked: a waker is somebody else's code.
        if let Some(next) = next {
            next.call();
        }
    }
}

/// The first of a queue: what is returned below the full group goes to the counters, and rings.
struct First<'l> {
    full: u32,
    desk: &'l Desk,
    /// Given up last, when caps are allowed again.
    place: Place<'l>,
}

impl<'l> First<'l> {
    fn new(place: Place<'l>, full: u32) -> First<'l> {
        let ledger = place.ledger;
        let waiting = &ledger.table().waiting;
        waiting.any.arrive();
        ledger.row(full).counter.track.draining.fetch_add(1, Ordering::SeqCst);
        // Partner of the fence in `PageCounter::allow`.
        fence(Ordering::SeqCst);
        let _pass = lock::pass();
        ledger.drain(full);
        First { full, desk: &waiting.desks[place.desk], place }
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        let ledger = self.place.ledger;
        ledger.row(self.full).counter.track.draining.fetch_sub(1, Ordering::SeqCst);
        ledger.table().waiting.any.leave();
    }
}

/// A charge that waits.
pub(crate) struct Wait<'l> {
    group: Group<'l>,
    units: u64,
    /// When it stops waiting.
    pub(crate) until: Instant,
    /// Whether others may be cancelled for it.
    oom: bool,
    stage: Stage<'l>,
}

enum Stage<'l> {
    New,
    Queueing { place: Place<'l>, full: GroupId },
    First { first: First<'l>, full: GroupId },
}

/// What came of a step.
pub(crate) enum Step<'l> {
    Done(Result<Charge<'l>, Refusal>),
    /// To go on when the waiter's [`bell`](Wait::has_rung) has rung since `seen`, or at `until`.
    Asleep {
        seen: u32,
        until: Instant,
    },
}

impl<'l> Wait<'l> {
    pub(crate) fn new(group: Group<'l>, units: u64, until: Instant, oom: bool) -> Wait<'l> {
        Wait { group, units, until, oom, stage: Stage::New }
    }

    /// Goes as far as it can without sleeping.
    pub(crate) fn step(&mut self) -> Step<'l> {
        loop {
            let went = match &self.stage {
                Stage::New => self.begin(),
                Stage::Queueing { .. } => self.queue(),
                Stage::First { .. } => self.look(),
            };
            if let Some(step) = went {
                return step;
            }
        }
    }

    /// The bell that tells whether to go on.
    fn bell(&self) -> Option<&Bell> {
        match &self.stage {
            Stage::New => None,
            Stage::Queueing { place, .. } => Some(&place.seat.bell),
            Stage::First { first, .. } => Some(&first.desk.bell),
        }
    }

    /// Sleeps until the bell has rung since `seen`.
    pub(crate) fn sleep(&self, seen: u32, until: Instant) {
        if let Some(bell) = self.bell() {
            bell.sleep(seen, until);
        }
    }

    /// Whether the bell has rung since `seen`.
    pub(crate) fn has_rung(&self, seen: u32) -> bool {
        self.bell().is_none_or(|bell| bell.seen() != seen)
    }

    /// Has a future woken when it is to go on; it looks again afterwards ([`has_rung`](Self::has_rung)).
    pub(crate) fn leave_waker(&self, alarm: &mut Alarm, waker: &Waker, until: Instant) {
        match &self.stage {
            Stage::Queueing { place, .. } => {
                let mut left = place.seat.waker.lock().unwrap_or_else(PoisonError::into_inner);
                *left = Some(waker.clone());
                drop(left);
                alarm.set(waker, Some(until), false);
            }
            _ => alarm.set(waker, Some(until), true),
        }
    }

    /// Behind those who wait already; otherwise at once, if there is room.
    fn begin(&mut self) -> Option<Step<'l>> {
        let (group, ledger) = (self.group, self.group.ledger());
        match ledger.queued_on_the_way(group.id()) {
            Some(full) => self.queue_at(full),
            None => match group.try_charge_reclaiming(self.units) {
                Ok(charge) => Some(Step::Done(Ok(charge))),
                Err(refusal) => self.wait_or_give_up(refusal),
            },
        }
    }

    /// Waits at the group that refused, where that can help.
    fn wait_or_give_up(&mut self, refusal: Refusal) -> Option<Step<'l>> {
        if refusal.reason == Reason::Limit
            && refusal.requested <= refusal.limit
            && Instant::now() < self.until
        {
            self.queue_at(refusal.group)
        } else {
            Some(Step::Done(Err(refusal)))
        }
    }

    fn queue_at(&mut self, full: GroupId) -> Option<Step<'l>> {
        // The place before is given up first: a queue of the same desk would be behind itself.
        self.stage = Stage::New;
        match Place::take(self.group.ledger(), full, self.group.id()) {
            Some(place) => {
                self.stage = Stage::Queueing { place, full };
                None
            }
            None => Some(Step::Done(Err(self.refused_by(full)))),
        }
    }

    /// Whether the caller's own work was told to stop. (Looked at after the bell was read: who cancels
    /// it rings afterwards.)
    fn is_cancelled(&self) -> bool {
        self.group.ledger().is_cancelled(self.group.id())
    }

    fn refused_by(&self, full: GroupId) -> Refusal {
        self.group.ledger().refusal_by(full, self.group.id(), self.units)
    }

    fn queue(&mut self) -> Option<Step<'l>> {
        let Stage::Queueing { place, full } = &self.stage else { return None };
        let full = *full;
        let seen = place.seat.bell.seen();
        if !place.is_first() {
            if Instant::now() >= self.until {
                return Some(Step::Done(Err(self.refused_by(full))));
            }
            return Some(self.sleep_or_cancel(seen, full));
        }
        if let Stage::Queueing { place, .. } = std::mem::replace(&mut self.stage, Stage::New) {
            self.stage = Stage::First { first: First::new(place, full.index()), full };
        }
        None
    }

    /// As the first: looks for room.
    fn look(&mut self) -> Option<Step<'l>> {
        let Stage::First { first, full } = &self.stage else { return None };
        let (group, ledger, full) = (self.group, self.group.ledger(), *full);
        let seen = first.desk.bell.seen();
        if ledger.would_fit(group.id(), self.units) {
            match group.try_charge_reclaiming(self.units) {
                Ok(charge) => return Some(Step::Done(Ok(charge))),
                Err(refusal) if refusal.group == full && refusal.reason == Reason::Limit => {}
                Err(refusal) => return self.wait_or_give_up(refusal),
            }
        }
        if !group.exists() {
            return Some(Step::Done(Err(Refusal::gone(group.id(), self.units))));
        }
        if Instant::now() >= self.until && !self.is_cancelled() {
            return Some(Step::Done(Err(self.refused_by(full))));
        }
        Some(self.sleep_or_cancel(seen, full))
    }

    /// There is no room, or others come first: has somebody cancelled for it, if that was asked for, and
    /// sleeps; ends if it was cancelled itself.
    fn sleep_or_cancel(&self, seen: u32, full: GroupId) -> Step<'l> {
        let (id, ledger) = (self.group.id(), self.group.ledger());
        let cancelled = || Step::Done(Err(Refusal::cancelled(id, self.units)));
        if self.is_cancelled() {
            return cancelled();
        }
        let mut until = self.until;
        // (Where there is room for it, and those before it want more, nobody need go.)
        if self.oom && !ledger.would_fit(id, self.units) {
            match ledger.choose_victim(ledger.group(full), id, self.units) {
                Choice::Dying(next) => until = until.min(next),
                Choice::Yourself => return cancelled(),
                Choice::Room => until = Instant::now(),
                // Nobody is to go for it, so it waits as others do.
                Choice::Nobody => {}
            }
        }
        Step::Asleep { seen, until }
    }
}

impl<'l> Group<'l> {
    /// As [`try_charge`](Self::try_charge), and waits up to `patience` for room where there is none:
    /// first come, first served among those who wait at the same full group. Units that come back
    /// wake one waiter. While somebody waits, charges below the full group go to its counters.
    ///
    /// For more (a future; cancelling others) see [`request`](Self::request), of which this is a short
    /// form: `self.request(units).wait(patience).charge()`.
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
        self.request(units).wait(patience).charge()
    }
}

impl Ledger {
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

    /// Whether the counters on the way may have room for so much more: what lies idle is drained when it
    /// is tried.
    pub(crate) fn would_fit(&self, id: GroupId, units: u64) -> bool {
        self.path(id).is_none_or(|path| {
            path.counters().iter().all(|counter| {
                let usage = counter.usage().saturating_sub(counter.idle_at_most());
                usage.saturating_add(units) <= counter.max()
            })
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

    /// Has those look again who wait below a group that was cancelled.
    pub(crate) fn tell_cancelled(&self, victim: GroupId) {
        let waiting = &self.table().waiting;
        let below = |seat: &Seat| {
            RowPath::new(self, seat.asking.index())
                .is_some_and(|path| path.leads_through(victim.index()))
        };
        let seats: Vec<Arc<Seat>> = {
            let _pass = lock::pass();
            let queues = waiting.queues();
            for (queue, desk) in queues.waiters.iter().zip(&waiting.desks) {
                if queue.front().is_some_and(|first| below(first)) {
                    desk.bell.ring();
                }
            }
            queues.waiters.iter().flatten().filter(|seat| below(seat)).cloned().collect()
        };
        seats.iter().for_each(|seat| seat.call());
        alarm::ring();
    }

    /// Tells the first of those who wait at one of these groups that there may be room.
    /// Async-signal-safe.
    #[inline]
    pub(crate) fn tell_waiters(&self, rows: &[u32]) {
        if self.table().waiting.any.is_awaited() {
            let mut told = false;
            for desk in &self.table().waiting.desks {
                let raw = desk.group.load(Ordering::Relaxed);
                if raw != 0 && rows.contains(&GroupId::row_of(raw)) {
                    desk.bell.ring();
                    told = true;
                }
            }
            // Futures among them cannot sleep on a bell.
            if told {
                alarm::ring();
            }
        }
    }
}

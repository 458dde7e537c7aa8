//! A charge waits for room: first come, first served, at the group whose limit refused it.
//!
//! ```text
//! charge, waiting(group, n, until)
//!   no queue on its path, or it would not wait anyway: try; granted, or no time to wait: done
//!   queue at the full group (wait_queue.rs)
//!     not the first: sleep until the one before leaves
//!     the first:
//!       it has just become the first, or n would fit on its path: try; granted: leave, wake the next
//!       the lowest full group is another: queue there
//!       it may have a victim cancelled: try; choose a victim below the lowest full group
//!       sleep until units come back (wake/queue_head.rs)
//!     the time is up: try for the last time
//! ```
//!
//! A try asks the reclaimers below the full group. So they are asked for every waiter: when its turn comes, before it
//! is refused, and before a victim is cancelled for it. They are not asked at every notification.
//!
//! A plain `try_charge` does not queue, and may be served before waiters, unless the ledger is fair
//! (`wait_queue::pass`).
//!
//! [`Wait`] takes these steps until it has to sleep. A thread then sleeps on the eventcount that it returns (here); a
//! future leaves its waker (`charge/request.rs`).

use crate::control::alarm::Alarm;
use crate::control::attempt::{self, Grant};
use crate::control::audit::Site;
use crate::control::mode::ControlMode;
use crate::control::victim::{self, Choice};
use crate::control::wait_queue::{self, Place};
use crate::control::{reclaim, reclaiming, slow_path};
use crate::group::Group;
use crate::stock::refusal::{self, Reason, Refusal};
use crate::table::id::GroupId;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The longest sleep of the first waiter of a queue if other processes may return units: they wake no waiter here.
const ACROSS_PROCESSES: Duration = Duration::from_millis(10);

/// A charge with options, made by [`Group::request`]. [`charge`](Self::charge) carries it out in a thread, `.await`
/// in a task.
///
/// ```
/// # use ledgerline::{Ledger, Limit};
/// # use std::time::Duration;
/// # use std::future::IntoFuture;
/// let ledger = Ledger::new()?;
/// let tenant = ledger.root().create("acme")?;
/// tenant.set_max(Limit::units(100))?;
/// let charge = tenant.request(60).wait(Duration::from_secs(5)).throttled().charge()?;
///
/// let second = async {
///     tenant.request(60).wait(Duration::from_secs(5)).await
/// };
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request charges nothing until `charge` or `await`"]
pub struct Request<'l> {
    pub(crate) group: Group<'l>,
    pub(crate) units: u64,
    pub(crate) patience: Option<Duration>,
    pub(crate) oom: bool,
    pub(crate) throttled: bool,
    pub(crate) explained: bool,
    pub(crate) uncounted: bool,
    /// The line that made the request (`control/audit.rs`).
    pub(crate) site: Site,
}

/// A charge that waits.
pub(crate) struct Wait<'l> {
    request: Request<'l>,
    /// The end of its patience.
    until: Instant,
    /// Its place in a queue, once it has one.
    place: Option<Place<'l>>,
    /// Whether it has tried since it became the first there.
    tried: bool,
}

/// The result of a step.
pub(crate) enum Step {
    Done(Result<Grant, Refusal>),
    Asleep(Sleep),
}

/// It continues after a notification that follows the key, or at `until`.
#[derive(Clone, Copy)]
pub(crate) struct Sleep {
    key: u32,
    until: Instant,
}

/// The part of a request that needs no place in a queue.
impl Request<'_> {
    fn try_now(&self) -> Result<Grant, Refusal> {
        slow_path::try_again(self.group, self.units, self.site)
    }

    fn can_ever_fit(&self) -> bool {
        refusal::can_ever_fit(self.group.table(), self.group.id(), self.units)
    }

    /// Returns the lowest group of the path that has no room for it.
    fn lowest_full(&self) -> Option<GroupId> {
        refusal::lowest_full(self.group.table(), self.group.id(), self.units)
    }

    /// Returns whether the charge is exempt from counting.
    fn is_off(&self) -> bool {
        self.group.mode() == ControlMode::Off
    }

    /// Returns whether the caller's own group was cancelled. Called after the key was read: the thread that cancels
    /// it sends a notification afterwards.
    fn is_cancelled(&self) -> bool {
        victim::is_cancelled(self.group.ledger(), self.group.id())
    }

    /// Refuses a request that cannot be served by waiting, in the name of the lowest full group.
    fn refused(&self, full: GroupId) -> Step {
        let (charged, requested) = (self.group.id(), self.units);
        let group = self.lowest_full().unwrap_or(full);
        let full = self.group.ledger().group(group);
        let full_now = full.read(|row| (row.counter.max(), row.counter.usage()));
        // The charged group lies below it, so it is gone too.
        let Some((limit, usage)) = full_now else { return self.gone() };
        Step::Done(Err(Refusal { group, charged, limit, usage, requested, reason: Reason::Limit }))
    }

    fn gone(&self) -> Step {
        Step::Done(Err(Refusal::gone(self.group.id(), self.units)))
    }

    fn cancelled(&self) -> Step {
        Step::Done(Err(Refusal::cancelled(self.group.id(), self.units)))
    }
}

impl<'l> Wait<'l> {
    pub(crate) fn new(request: Request<'l>, until: Instant) -> Wait<'l> {
        Wait { request, until, place: None, tried: false }
    }

    /// Takes steps until it has to sleep.
    pub(crate) fn step(&mut self) -> Step {
        // A forked child's copy of a future starts over: the place was its parent's.
        self.place.take_if(|place| place.is_inherited());
        loop {
            let went = match &self.place {
                None => self.begin(),
                Some(place) if place.first => self.look(),
                Some(_) => self.queue(),
            };
            if let Some(step) = went {
                // The final answer, regardless of the number of tries.
                if let Step::Done(Err(refusal)) = &step
                    && !self.request.uncounted
                {
                    attempt::count_refusal(self.request.group.ledger(), refusal);
                }
                return step;
            }
        }
    }

    /// Sleeps until there is a notification after the key was read.
    pub(crate) fn sleep(&self, Sleep { key, until }: Sleep) {
        if let Some(place) = &self.place {
            place.eventcount().wait(key, until);
        }
    }

    /// Leaves a future's waker, so that it is woken when it can continue. Returns `false` if it can continue already.
    pub(crate) fn leave_waker(&self, alarm: &mut Alarm, waker: &Waker, sleep: Sleep) -> bool {
        let Sleep { key, until } = sleep;
        let Some(place) = &self.place else { return false };
        alarm.set(waker, Some(until));
        place.leave_waker(waker, alarm.number());
        // A notification from before the waker was left could not wake it.
        !place.eventcount().is_past(key) && Instant::now() < until
    }

    /// Queues behind existing waiters, unless it takes no room. If there are none, tries at once.
    fn begin(&mut self) -> Option<Step> {
        match wait_queue::queued_on_the_way(self.request.group.ledger(), self.request.group.id()) {
            Some(full) if self.request.units > 0 && !self.request.is_off() && self.may_wait() => {
                self.queue_at(full)
            }
            _ => match self.request.try_now() {
                Ok(grant) => Some(Step::Done(Ok(grant))),
                Err(refusal) => self.wait_or_give_up(refusal),
            },
        }
    }

    /// Returns whether waiting can help. It cannot if some limit of the path can never allow the charge, or if there
    /// is no time. Inside a reclaimer it does not wait, since it could wait for itself.
    fn may_wait(&self) -> bool {
        !self.is_late()
            && self.request.can_ever_fit()
            && !reclaiming::is_inside(self.request.group.ledger())
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Waits at the group that refused, if that can help.
    fn wait_or_give_up(&mut self, refusal: Refusal) -> Option<Step> {
        if refusal.reason == Reason::Limit && self.may_wait() {
            self.queue_at(refusal.group)
        } else {
            Some(Step::Done(Err(refusal)))
        }
    }

    fn queue_at(&mut self, full: GroupId) -> Option<Step> {
        // Gives the earlier place up first: in the same queue the charge would be behind itself.
        (self.place, self.tried) = (None, false);
        self.place = Place::take(self.request.group.ledger().group(full), self.request.group.id());
        // Without a place, the full group is gone, and so are all below it.
        self.place.is_none().then(|| self.request.gone())
    }

    fn queue(&mut self) -> Option<Step> {
        let place = self.place.as_mut()?;
        let (full, key) = (place.full(), place.eventcount().key());
        (!place.is_first()).then(|| self.look_from_behind(key, full))
    }

    /// Checks for something to do while other waiters are before it.
    fn look_from_behind(&self, key: u32, full: GroupId) -> Step {
        let ledger = self.request.group.ledger();
        if !self.request.group.exists() {
            return self.request.gone();
        }
        if self.request.is_cancelled() {
            return self.request.cancelled();
        }
        let late = self.is_late();
        if late || self.request.is_off() {
            match self.request.try_now() {
                // The group is no longer off, so it continues to wait.
                Err(refusal) if !late && refusal.reason == Reason::Limit => {}
                done => return Step::Done(done),
            }
        }
        if !self.request.can_ever_fit() {
            return self.request.refused(full);
        }
        // Reclaimers are asked before a victim is cancelled. The first waiter gets the units, since it is its turn.
        if self.may_choose(full) && ledger.control().reclaimers.can_help() {
            let group = ledger.group(full);
            let level = group.row().counter.max().saturating_sub(self.request.units);
            reclaim::above(group, level, &reclaim::Clock::start(ledger));
        }
        self.sleep_or_cancel(key, full)
    }

    /// Looks for room as the first waiter.
    fn look(&mut self) -> Option<Step> {
        let place = self.place.as_ref()?;
        let (full, key) = (place.full(), place.eventcount().key());
        let tried = std::mem::replace(&mut self.tried, true);
        let ledger = self.request.group.ledger();
        // If there is room here but none further up, the group further up is reclaimed before this waits there.
        let room = self.request.lowest_full() != Some(full) || self.request.is_off();
        if !room {
            if !self.request.group.exists() {
                return Some(self.request.gone());
            }
            if self.request.is_cancelled() {
                return Some(self.request.cancelled());
            }
            if !self.request.can_ever_fit() {
                return Some(self.request.refused(full));
            }
        }
        let late = self.is_late();
        let ask = || ledger.control().reclaimers.can_help() && (!tried || self.may_choose(full));
        if room || late || ask() {
            match self.request.try_now() {
                Ok(grant) => return Some(Step::Done(Ok(grant))),
                Err(refusal) if late => return Some(Step::Done(Err(refusal))),
                Err(refusal) if refusal.group == full && refusal.reason == Reason::Limit => {}
                Err(refusal) => return self.wait_or_give_up(refusal),
            }
        }
        let mut step = self.sleep_or_cancel(key, full);
        if let Step::Asleep(Sleep { until, .. }) = &mut step
            && ledger.is_shared()
        {
            *until = (*until).min(Instant::now() + ACROSS_PROCESSES);
        }
        Some(step)
    }

    /// Returns whether a victim should be cancelled for it. Not if there is room for it here: then the waiters before
    /// it want more, or wait further up by now. Not if it could never be served.
    fn wants_a_victim(&self, full: GroupId) -> bool {
        self.request.oom && self.request.lowest_full() == Some(full) && self.request.can_ever_fit()
    }

    /// Returns whether it is about to choose a victim: it wants one, and no cancelled victim still holds units.
    fn may_choose(&self, full: GroupId) -> bool {
        let ledger = self.request.group.ledger();
        self.wants_a_victim(full)
            && victim::any(ledger)
            && victim::dying_below(ledger, full).is_none()
    }

    /// Sleeps, since there is no room or other waiters come first. Chooses a victim first if the request asked for
    /// that. Ends if its own group was cancelled.
    fn sleep_or_cancel(&self, key: u32, full: GroupId) -> Step {
        if self.request.is_cancelled() {
            return self.request.cancelled();
        }
        let mut until = self.until;
        if self.wants_a_victim(full) {
            match victim::choose(
                self.request.group.ledger().group(full),
                self.request.group.id(),
                self.request.units,
                0,
            ) {
                Choice::Dying(next) => until = until.min(next),
                Choice::Yourself => return self.request.cancelled(),
                Choice::Room => until = Instant::now(),
                // Without a victim, it waits like the others.
                Choice::Nobody => {}
            }
        }
        Step::Asleep(Sleep { key, until })
    }
}

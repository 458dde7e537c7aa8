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
//! A try asks the reclaimers below the full group. So they are asked for every waiter: when its turn comes,
//! before it is refused, and before a victim is cancelled for it. They are not asked at every notice.
//!
//! A plain `try_charge` does not queue, and may be served in between.
//!
//! [`Wait`] takes these steps as far as they go without sleeping. A thread then sleeps on the eventcount
//! that it names (here); a future leaves its waker (`charge/request.rs`).

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

/// How long the first waiter of a queue sleeps at most where other processes may return what it waits for:
/// they wake no waiter here.
const ACROSS_PROCESSES: Duration = Duration::from_millis(10);

/// A charge that waits.
pub(crate) struct Wait<'l> {
    group: Group<'l>,
    units: u64,
    /// When it stops waiting.
    pub(crate) until: Instant,
    /// Whether others may be cancelled for it.
    oom: bool,
    /// Whether a refusal is counted.
    counts: bool,
    /// The line that asked (`control/audit.rs`).
    site: Site,
    /// Its place in a queue, once it has one.
    place: Option<Place<'l>>,
    /// Whether it has tried since it is the first there.
    tried: bool,
}

/// The result of a step.
pub(crate) enum Step {
    Done(Result<Grant, Refusal>),
    Asleep(Sleep),
}

/// It goes on when there is a notice after the key was read, or at `until`.
#[derive(Clone, Copy)]
pub(crate) struct Sleep {
    key: u32,
    until: Instant,
}

impl<'l> Wait<'l> {
    pub(crate) fn new(
        group: Group<'l>,
        units: u64,
        until: Instant,
        oom: bool,
        counts: bool,
        site: Site,
    ) -> Wait<'l> {
        Wait { group, units, until, oom, counts, site, place: None, tried: false }
    }

    /// Goes as far as it can without sleeping.
    pub(crate) fn step(&mut self) -> Step {
        // A forked child's copy of a future begins anew there: the place was its parent's.
        self.place.take_if(|place| place.is_inherited());
        loop {
            let went = match &self.place {
                None => self.begin(),
                Some(place) if place.first => self.look(),
                Some(_) => self.queue(),
            };
            if let Some(step) = went {
                // The final answer, after however many tries.
                if let Step::Done(Err(refusal)) = &step
                    && self.counts
                {
                    attempt::count_refusal(self.group.ledger(), refusal);
                }
                return step;
            }
        }
    }

    /// Sleeps until there is a notice after the key was read.
    pub(crate) fn sleep(&self, Sleep { key, until }: Sleep) {
        if let Some(place) = &self.place {
            place.eventcount().wait(key, until);
        }
    }

    /// Leaves a future's waker, so that it is woken when it can go on. Says `false` if it can go on
    /// already.
    pub(crate) fn leave_waker(&self, alarm: &mut Alarm, waker: &Waker, sleep: Sleep) -> bool {
        let Sleep { key, until } = sleep;
        let Some(place) = &self.place else { return false };
        alarm.set(waker, Some(until));
        place.leave_waker(waker, alarm.number());
        // A notice from before the waker was left could not wake it.
        !place.eventcount().is_past(key) && Instant::now() < until
    }

    /// Queues behind those that wait already, unless it takes no room. If none does, tries at once.
    fn begin(&mut self) -> Option<Step> {
        match wait_queue::queued_on_the_way(self.group.ledger(), self.group.id()) {
            Some(full) if self.units > 0 && !self.is_off() && self.may_wait() => {
                self.queue_at(full)
            }
            _ => match self.try_now() {
                Ok(grant) => Some(Step::Done(Ok(grant))),
                Err(refusal) => self.wait_or_give_up(refusal),
            },
        }
    }

    fn try_now(&self) -> Result<Grant, Refusal> {
        slow_path::try_again(self.group, self.units, self.site)
    }

    /// Whether waiting can help: not where some limit of the path can never allow the charge, nor where there is no time.
    /// (Nor does it wait inside a reclaimer: it could wait for itself.)
    fn may_wait(&self) -> bool {
        !self.is_late() && self.can_ever_fit() && !reclaiming::is_inside(self.group.ledger())
    }

    fn can_ever_fit(&self) -> bool {
        refusal::can_ever_fit(self.group.table(), self.group.id(), self.units)
    }

    /// The lowest group of the path that has no room for it.
    fn lowest_full(&self) -> Option<GroupId> {
        refusal::lowest_full(self.group.table(), self.group.id(), self.units)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Whether the charge is not to be counted.
    fn is_off(&self) -> bool {
        self.group.mode() == ControlMode::Off
    }

    /// Waits at the group that refused, where that can help.
    fn wait_or_give_up(&mut self, refusal: Refusal) -> Option<Step> {
        if refusal.reason == Reason::Limit && self.may_wait() {
            self.queue_at(refusal.group)
        } else {
            Some(Step::Done(Err(refusal)))
        }
    }

    fn queue_at(&mut self, full: GroupId) -> Option<Step> {
        // The earlier place is given up first: in the same queue the charge would be behind itself.
        (self.place, self.tried) = (None, false);
        self.place = Place::take(self.group.ledger().group(full), self.group.id());
        // Where there is none, the full group is gone, and so are all below it.
        self.place.is_none().then(|| self.gone())
    }

    /// Whether the caller's own group was cancelled. (This is looked at after the key was read: the thread
    /// that cancels it sends a notice afterwards.)
    fn is_cancelled(&self) -> bool {
        victim::is_cancelled(self.group.ledger(), self.group.id())
    }

    /// The refusal of a request that no waiting helps: by the lowest full group.
    fn refused(&self, full: GroupId) -> Step {
        let (charged, requested) = (self.group.id(), self.units);
        let group = self.lowest_full().unwrap_or(full);
        let full = self.group.ledger().group(group);
        let full_now = full.read(|row| (row.counter.max(), row.counter.usage()));
        // (The charged group lies below it, so it is gone too.)
        let Some((limit, usage)) = full_now else { return self.gone() };
        Step::Done(Err(Refusal { group, charged, limit, usage, requested, reason: Reason::Limit }))
    }

    fn gone(&self) -> Step {
        Step::Done(Err(Refusal::gone(self.group.id(), self.units)))
    }

    fn cancelled(&self) -> Step {
        Step::Done(Err(Refusal::cancelled(self.group.id(), self.units)))
    }

    fn queue(&mut self) -> Option<Step> {
        let place = self.place.as_mut()?;
        let (full, key) = (place.full(), place.eventcount().key());
        (!place.is_first()).then(|| self.look_from_behind(key, full))
    }

    /// Looks while others are before it: is there anything to do but to wait for them?
    fn look_from_behind(&self, key: u32, full: GroupId) -> Step {
        let ledger = self.group.ledger();
        if !self.group.exists() {
            return self.gone();
        }
        if self.is_cancelled() {
            return self.cancelled();
        }
        let late = self.is_late();
        if late || self.is_off() {
            match self.try_now() {
                // (The group is no longer off: it waits on.)
                Err(refusal) if !late && refusal.reason == Reason::Limit => {}
                done => return Step::Done(done),
            }
        }
        if !self.can_ever_fit() {
            return self.refused(full);
        }
        // What reclaimers can give back is given back before a victim is cancelled. It serves the first
        // waiter, whose turn it is.
        if self.may_choose(full) && ledger.control().reclaimers.can_help() {
            let group = ledger.group(full);
            let level = group.row().counter.max().saturating_sub(self.units);
            reclaim::above(group, level, &reclaim::Clock::start(ledger));
        }
        self.sleep_or_cancel(key, full)
    }

    /// Looks for room as the first waiter.
    fn look(&mut self) -> Option<Step> {
        let place = self.place.as_ref()?;
        let (full, key) = (place.full(), place.eventcount().key());
        let tried = std::mem::replace(&mut self.tried, true);
        let ledger = self.group.ledger();
        // (Where there is room here and none further up, the group further up is reclaimed before it waits
        // there.)
        let room = self.lowest_full() != Some(full) || self.is_off();
        if !room {
            if !self.group.exists() {
                return Some(self.gone());
            }
            if self.is_cancelled() {
                return Some(self.cancelled());
            }
            if !self.can_ever_fit() {
                return Some(self.refused(full));
            }
        }
        let late = self.is_late();
        let ask = || ledger.control().reclaimers.can_help() && (!tried || self.may_choose(full));
        if room || late || ask() {
            match self.try_now() {
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

    /// Whether a victim should be cancelled for it. Not where there is room for it here: then those before
    /// it want more, or wait further up by now. Nor where it could never be served.
    fn wants_a_victim(&self, full: GroupId) -> bool {
        self.oom && self.lowest_full() == Some(full) && self.can_ever_fit()
    }

    /// Whether it is about to choose a victim: it wants one, and no cancelled victim still holds something.
    fn may_choose(&self, full: GroupId) -> bool {
        let ledger = self.group.ledger();
        self.wants_a_victim(full)
            && victim::any(ledger)
            && victim::dying_below(ledger, full).is_none()
    }

    /// There is no room, or others come first. Chooses a victim, if the request asked for that, and sleeps.
    /// Ends if its own group was cancelled.
    fn sleep_or_cancel(&self, key: u32, full: GroupId) -> Step {
        if self.is_cancelled() {
            return self.cancelled();
        }
        let mut until = self.until;
        if self.wants_a_victim(full) {
            match victim::choose(self.group.ledger().group(full), self.group.id(), self.units) {
                Choice::Dying(next) => until = until.min(next),
                Choice::Yourself => return self.cancelled(),
                Choice::Room => until = Instant::now(),
                // There is no victim, so it waits as others do.
                Choice::Nobody => {}
            }
        }
        Step::Asleep(Sleep { key, until })
    }
}

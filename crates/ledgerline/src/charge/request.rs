//! A request is a charge with options: to wait, to cancel a victim, to pay for usage above high.

use crate::charge::explain;
use crate::charge::guard::Charge;
use crate::control::LONGEST;
use crate::control::alarm::Alarm;
use crate::control::throttle::Backoff;
use crate::control::wait::{Request, Step, Wait};
use crate::error::Refused;
use crate::group::Group;
use crate::stock::refusal::Refusal;
use crate::whose;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

impl<'l> Group<'l> {
    /// Starts a charge of `units` that can have options.
    #[track_caller]
    pub fn request(self, units: u64) -> Request<'l> {
        Request {
            group: self,
            units,
            patience: None,
            oom: false,
            throttled: false,
            explained: false,
            uncounted: false,
            site: Location::caller(),
        }
    }
}

impl<'l> Request<'l> {
    /// Waits up to `patience` for room. The requests of this process that wait at the same full group are served in
    /// order of arrival. Returned units wake one waiter. While any request waits, charges below the full group go to
    /// its counters, and are served there if there is room. [`Ledger::set_fair`](crate::Ledger::set_fair) makes the
    /// ledger refuse them instead. A request that some limit can never allow is refused at once. A request does not
    /// queue behind others if it takes no room (no units, or a group that is [`Off`](crate::ControlMode::Off)) or has
    /// no patience. Reclaimers are asked when the request's turn comes. When its patience ends, it is tried once more
    /// before it is refused, regardless of its place in the queue.
    ///
    /// The patience covers waiting alone: the time of reclaimers
    /// ([`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)) and the [`backoff`](Self::throttled) are
    /// added to it. In a ledger in a file, units that another process returns wake no waiter here: the first of a
    /// queue looks again every 10 ms.
    ///
    /// Any number of requests may wait, at any number of groups. Queueing, being served and giving up cost the
    /// logarithm of the number of waiters. Waiting is not async-signal-safe, and it allocates. A signal handler may
    /// return the units. A forked child has none of its parent's waiters.
    ///
    /// ```
    /// # use ledgerline::{Ledger, Limit};
    /// # use std::time::Duration;
    /// let ledger = Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// tenant.set_max(Limit::units(100))?;
    /// let first = tenant.try_charge(80)?;
    /// std::thread::scope(|scope| {
    ///     let patience = Duration::from_secs(60);
    ///     let second = scope.spawn(move || tenant.request(50).wait(patience).charge().map(drop));
    ///     drop(first);
    ///     second.join().unwrap()
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// At a limit where nothing can be reclaimed, cancels a victim ([`Group::add_victim`]) and waits for the units
    /// that it returns. The victim is the group below the lowest full one that holds the most above its protection.
    /// If a victim keeps its units for longer than [`LedgerBuilder::victim_time`](crate::LedgerBuilder::victim_time),
    /// another is cancelled.
    ///
    /// Without [`wait`](Self::wait) it waits up to four times that long. A cancelled victim's own requests stop
    /// waiting ([`Reason::Cancelled`](crate::Reason::Cancelled)), wherever they wait: the waiting thread may hold the
    /// units that the victim should return. If the program cancels a token itself, the requests of that work continue
    /// to wait, since the ledger is not notified.
    pub fn oom(mut self) -> Self {
        self.oom = true;
        self
    }

    /// Pays with time for usage above high: a thread sleeps, a task awaits ([`Charge::backoff`]).
    pub fn throttled(mut self) -> Self {
        self.throttled = true;
        self
    }

    /// Adds a [`Diagnosis`](crate::Diagnosis) to a refusal: the groups of the path with their limits, the largest
    /// consumers below the full group, and the idle units. It costs a pass over the rows in use when the request is
    /// refused.
    pub fn explained(mut self) -> Self {
        self.explained = true;
        self
    }

    /// Does not count or record a refusal, like [`Group::attempt`]. For callers that retry.
    pub fn uncounted(mut self) -> Self {
        self.uncounted = true;
        self
    }

    fn explain(&self, refusal: &Refusal) -> Refused {
        let mut refused = explain(self.group, refusal);
        if self.explained {
            let diagnosis = self.group.ledger().diagnose(&refused);
            refused.diagnosis = Some(whose::nobody(|| Box::new(diagnosis)));
        }
        refused
    }

    /// Carries the request out in this thread.
    ///
    /// # Errors
    /// [`Refused`] if there is no room within the time that it may wait. It refuses at once if the group is destroyed
    /// or some limit of the path can never allow the charge, and inside a reclaimer if there is no room.
    #[inline]
    pub fn charge(self) -> Result<Charge<'l>, Refused> {
        // While a request waits, no cell below the full group holds units, so this overtakes no waiter.
        if !self.throttled && self.group.take_prepaid(self.units) {
            return Ok(Charge::new(self.group, self.units));
        }
        self.charge_otherwise()
    }

    #[cold]
    #[inline(never)]
    fn charge_otherwise(self) -> Result<Charge<'l>, Refused> {
        let mut wait = self.begin();
        // Not accounted: a place in a queue.
        let granted = loop {
            match whose::nobody(|| wait.step()) {
                Step::Done(result) => break result,
                Step::Asleep(sleep) => wait.sleep(sleep),
            }
        };
        let grant = granted.map_err(|refusal| self.explain(&refusal))?;
        let charge = Charge::granted(self.group, self.units, grant);
        if self.throttled {
            // Leaves the queue first, so that the next waiter does not wait for the backoff.
            drop(wait);
            charge.backoff().sleep();
        }
        Ok(charge)
    }

    fn begin(&self) -> Wait<'l> {
        let times = self.group.ledger().control().times;
        let for_victims = if self.oom { times.victim.saturating_mul(4) } else { Duration::ZERO };
        let patience = self.patience.unwrap_or(for_victims);
        let now = Instant::now();
        // A patience beyond the clock's end is replaced by a year.
        let until = now.checked_add(patience).unwrap_or(now + LONGEST);
        Wait::new(*self, until)
    }
}

impl<'l> IntoFuture for Request<'l> {
    type Output = Result<Charge<'l>, Refused>;
    type IntoFuture = Requested<'l>;

    fn into_future(self) -> Requested<'l> {
        Requested { request: self, stage: Stage::New, alarm: Alarm::default() }
    }
}

/// The future of a [`Request`]. It may be dropped at any time: then it gives up its place in the queue, and returns a
/// charge that was granted. A forked child may continue to poll its copy, which queues anew there.
///
/// It needs no runtime. The waiter before it wakes it when it leaves the queue, and a thread of the library wakes it
/// when units are returned or its time is up. Reclaimers run in `poll`.
///
/// Poll it when it is woken, or drop it. A future that is the first in its queue and is not polled holds up the
/// waiters behind it, until their own time is up and they try by themselves.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Requested<'l> {
    request: Request<'l>,
    stage: Stage<'l>,
    alarm: Alarm,
}

enum Stage<'l> {
    New,
    Waiting(Box<Wait<'l>>),
    Paying { charge: Charge<'l>, backoff: Backoff<'l> },
    Done,
}

impl fmt::Debug for Requested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requested").field("request", &self.request).finish_non_exhaustive()
    }
}

impl<'l> Future for Requested<'l> {
    type Output = Result<Charge<'l>, Refused>;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::New => {
                    let Request { group, units, throttled, .. } = self.request;
                    // As in `charge`.
                    if !throttled && group.take_prepaid(units) {
                        return Poll::Ready(Ok(Charge::new(group, units)));
                    }
                    let wait = whose::nobody(|| Box::new(self.request.begin()));
                    self.stage = Stage::Waiting(wait);
                }
                Stage::Waiting(mut wait) => match whose::nobody(|| wait.step()) {
                    Step::Asleep(sleep) => {
                        let leave = || wait.leave_waker(&mut self.alarm, context.waker(), sleep);
                        let left = whose::nobody(leave);
                        self.stage = Stage::Waiting(wait);
                        if left {
                            return Poll::Pending;
                        }
                    }
                    Step::Done(granted) => {
                        let grant = granted.map_err(|refusal| self.request.explain(&refusal))?;
                        let Request { group, units, .. } = self.request;
                        let charge = Charge::granted(group, units, grant);
                        drop(wait);
                        if !self.request.throttled {
                            return Poll::Ready(Ok(charge));
                        }
                        let backoff = charge.backoff();
                        self.stage = Stage::Paying { charge, backoff };
                    }
                },
                Stage::Paying { charge, mut backoff } => {
                    if Pin::new(&mut backoff).poll(context).is_ready() {
                        return Poll::Ready(Ok(charge));
                    }
                    self.stage = Stage::Paying { charge, backoff };
                    return Poll::Pending;
                }
                Stage::Done => panic!("polled again after it was ready"),
            }
        }
    }
}

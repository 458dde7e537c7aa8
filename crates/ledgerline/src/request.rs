//! A charge with wishes: to wait, to have others cancelled, to pay for what is above high.

use crate::alarm::Alarm;
use crate::charge::Charge;
use crate::error::{Refusal, Refused};
use crate::group::Group;
use crate::throttle::Backoff;
use crate::wait::{Step, Wait};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A charge to be made, with what the caller puts up with: made by [`Group::request`], carried out by
/// [`charge`](Self::charge) in a thread, or by `.await` in a task.
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
    group: Group<'l>,
    units: u64,
    patience: Option<Duration>,
    oom: bool,
    throttled: bool,
    explained: bool,
}

impl<'l> Group<'l> {
    /// A charge of `units` with more wishes than [`try_charge`](Self::try_charge) has.
    pub fn request(self, units: u64) -> Request<'l> {
        Request {
            group: self,
            units,
            patience: None,
            oom: false,
            throttled: false,
            explained: false,
        }
    }
}

impl<'l> Request<'l> {
    /// Waits up to `patience` for room, in the order in which the requests came, at the group that is
    /// full (see [`Group::try_charge_wait`]).
    pub fn wait(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Where a limit is met and nothing can be reclaimed, has the work that holds the most above its
    /// protection, below the group that is full, cancelled ([`Group::add_victim`]), and waits for what
    /// it returns. A victim that keeps what it holds for longer than
    /// [`LedgerBuilder::victim_time`](crate::LedgerBuilder::victim_time) is followed by another.
    ///
    /// Without [`wait`](Self::wait) it waits as long as four of those times. A victim's own requests
    /// wait no longer ([`Reason::Cancelled`](crate::Reason::Cancelled)), wherever they wait: what it is
    /// to let go of may be held by the thread that does.
    pub fn oom(mut self) -> Self {
        self.oom = true;
        self
    }

    /// Pays for what is above high: a thread sleeps it off, a task awaits it ([`Charge::backoff`]).
    pub fn throttled(mut self) -> Self {
        self.throttled = true;
        self
    }

    /// Has a refusal carry a [`Diagnosis`](crate::Diagnosis): the chain of groups with their limits, who
    /// holds most below the one that is full, what lies idle. It costs a pass over the rows in use, where
    /// the request is refused.
    pub fn explained(mut self) -> Self {
        self.explained = true;
        self
    }

    fn explain(&self, refusal: &Refusal) -> Refused {
        if self.explained { self.group.explain_fully(refusal) } else { self.group.explain(refusal) }
    }

    /// Carries the request out in this thread.
    ///
    /// # Errors
    /// [`Refused`] when there is no room, in the time that it may wait; at once when the group is
    /// destroyed, inside a reclaimer, and for more than a limit allows at all.
    pub fn charge(self) -> Result<Charge<'l>, Refused> {
        let mut wait = self.begin();
        let granted = loop {
            match wait.step() {
                Step::Done(result) => break result,
                Step::Asleep { seen, until } => wait.sleep(seen, until),
            }
        };
        let charge = granted.map_err(|refusal| self.explain(&refusal))?;
        if self.throttled {
            // The next in the queue does not wait for this.
            drop(wait);
            charge.backoff().sleep();
        }
        Ok(charge)
    }

    fn begin(&self) -> Wait<'l> {
        let table = self.group.ledger().table();
        let patience = self.patience.unwrap_or(match self.oom {
            true => table.victim_time.saturating_mul(4),
            false => Duration::ZERO,
        });
        let now = Instant::now();
        // (A patience beyond the clock's end is as good as a year.)
        let until = now.checked_add(patience).unwrap_or(now + Duration::from_secs(365 * 86_400));
        Wait::new(self.group, self.units, until, self.oom)
    }
}

impl<'l> IntoFuture for Request<'l> {
    type Output = Result<Charge<'l>, Refused>;
    type IntoFuture = Requested<'l>;

    fn into_future(self) -> Requested<'l> {
        Requested { request: self, stage: Stage::New, alarm: Alarm::default() }
    }
}

/// The future of a [`Request`]. It may be dropped at any time: it gives up its place in the queue, and a
/// charge that was granted is returned.
///
/// Needs no runtime: it is woken by whoever leaves the queue before it, and by a thread of the ledger's
/// own when units come back or its time is up. Reclaimers run in `poll`.
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

impl<'l> Requested<'l> {
    /// Waits for room; what came of it.
    fn poll_grant(
        &mut self,
        wait: &mut Wait<'l>,
        context: &Context<'_>,
    ) -> Poll<Result<Charge<'l>, Refusal>> {
        loop {
            let (seen, until) = match wait.step() {
                Step::Done(result) => return Poll::Ready(result),
                Step::Asleep { seen, until } => (seen, until),
            };
            wait.leave_waker(&mut self.alarm, context.waker(), until);
            // Whoever rang before the waker was left could not wake it.
            if !wait.has_rung(seen) && Instant::now() < until {
                return Poll::Pending;
            }
        }
    }
}

impl<'l> Future for Requested<'l> {
    type Output = Result<Charge<'l>, Refused>;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::New => self.stage = Stage::Waiting(Box::new(self.request.begin())),
                Stage::Waiting(mut wait) => match self.poll_grant(&mut wait, context) {
                    Poll::Pending => {
                        self.stage = Stage::Waiting(wait);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(refusal)) => {
                        return Poll::Ready(Err(self.request.explain(&refusal)));
                    }
                    Poll::Ready(Ok(charge)) => {
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

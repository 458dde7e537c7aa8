//! Wait queues: the waiters for room at each group, in order of arrival, and their notification.
//!
//! The first waiter at a group makes its queue, and the last one ends it. While there is a queue, no cell below its
//! group gets a cap. So units returned there reach the counters, and the queue's head notifies the first waiter
//! (`wake/queue_head.rs`). The others sleep until the one before leaves: a thread on an eventcount of its own, a
//! future with its waker left. So returned units wake one waiter, not all of them.
//!
//! The queues are in a map by group, and a queue's waiters in a map by ticket. Joining, leaving from anywhere and
//! finding the first cost the logarithm of their number. The heads lie in memory of this process alone, even if the
//! ledger is a file: each process has its own waiters.
//!
//! Invariant W1: while the lock is held, the head of a queue's row names that queue's group, unless the row is
//! another group's by now and the head serves that group's queue. The queues counted as open are those in the map,
//! and each of them holds one of its row's `draining`.

use crate::control::{attempt, reclaiming};
use crate::gate::lock::{self, Gated};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::drain;
use crate::stock::refusal::{Reason, Refusal};
use crate::sync::Ordering;
use crate::table::id::GroupId;
use crate::table::path::{RowPath, leads_through};
use crate::wake::eventcount::Eventcount;
use crate::wake::queue_head::QueueHead;
use crate::wake::rung;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// The waiters of this process for room in a ledger.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Mutex<Queues>);

#[derive(Debug, Default)]
struct Queues {
    /// The queues, by the raw id of the full group.
    by_group: BTreeMap<u64, Queue>,
    next_ticket: u64,
    /// The waiters, by the raw id of the group that they charge, and by ticket.
    by_charged: BTreeMap<(u64, u64), Arc<Waiter>>,
    /// The process that these waiters belong to; 0 before the first one. A forked child has none of them.
    process: u32,
}

#[derive(Debug)]
struct Queue {
    /// The waiters, by ticket. The first has the lowest.
    waiters: BTreeMap<u64, Arc<Waiter>>,
    /// Whether the stock that was idle below the group when the queue was made has been returned.
    drained: bool,
}

/// One waiter. A thread sleeps on the eventcount; a future leaves its waker, until it is the first.
#[derive(Debug)]
struct Waiter {
    /// The group that it charges.
    charged: GroupId,
    /// The group at which it queues.
    full: GroupId,
    ticket: u64,
    eventcount: Eventcount,
    waker: Mutex<Option<Waker>>,
}

impl Waiter {
    /// Makes it look again. The caller holds no lock: a waker is foreign code.
    fn call(&self) {
        self.eventcount.notify();
        if let Some(waker) = self.leave_waker(None) {
            // A waker that panics affects only its own executor.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Replaces its waker and returns the previous one.
    fn leave_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        let mut left = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *left, waker)
    }
}

/// Locks the queues, inside the gate, so that no fork finds them locked. Empties them in a forked child.
fn queues(ledger: &Ledger) -> Gated<'_, Queues> {
    let heads = &ledger.table().heads;
    let mut queues = lock::gated(&ledger.control().waiting.0);
    if queues.process != std::process::id() {
        queues.process = std::process::id();
        queues.by_charged.clear();
        for &group in std::mem::take(&mut queues.by_group).keys() {
            let row = GroupId::from_raw(group).index();
            heads.of(row).serve(0);
            // In a file, the parent raised the count, and lowers it.
            if !ledger.is_shared() {
                ledger.table().row(row).counter.track.draining.fetch_sub(1, Ordering::SeqCst);
            }
        }
        heads.open.forget();
    }
    queues
}

/// Returns the nearest group of the path at which a request waits.
pub(crate) fn queued_on_the_way(ledger: &Ledger, id: GroupId) -> Option<GroupId> {
    let heads = &ledger.table().heads;
    if !heads.open.any() {
        return None;
    }
    RowPath::of(ledger.table(), id)?.rows().iter().find_map(|&row| {
        let group = ledger.table().id(row);
        (heads.of(row).group() == group.raw()).then_some(group)
    })
}

/// Admits a charge that does not wait, unless the ledger is fair and a request waits on its path. While one waits, no
/// cell below the full group serves charges, so all of them come here. A reclaimer's charge always passes, since it
/// makes room for the waiters.
pub(crate) fn pass(group: Group<'_>, units: u64) -> Result<(), Refusal> {
    let ledger = group.ledger();
    // Relaxed: no other data depends on the flag.
    if !ledger.control().fair.load(Ordering::Relaxed) || units == 0 {
        return Ok(());
    }
    let Some(full) = queued_on_the_way(ledger, group.id()) else { return Ok(()) };
    if reclaiming::is_inside(ledger) || attempt::is_off(group, units) {
        return Ok(());
    }
    let (limit, usage) =
        ledger.group(full).read(|row| (row.counter.max(), row.counter.usage())).unwrap_or_default();
    let (charged, reason) = (group.id(), Reason::Queued);
    Err(Refusal { group: full, charged, limit, usage, requested: units, reason })
}

impl Ledger {
    /// Sets whether charges of this process that do not wait are refused while requests wait (default `false`). In a
    /// fair ledger [`Group::try_charge`] and [`Group::try_charge_units`] are refused ([`Reason::Queued`]) while a
    /// [request waits](crate::Request::wait) at a group of the path, even if there is room. So large requests get
    /// their turn despite many small charges. [`Group::charge`], allocations and the charges of reclaimers always
    /// pass.
    ///
    /// ```
    /// # use ledgerline::{Ledger, Limit, Reason};
    /// # use std::future::{Future, IntoFuture};
    /// # use std::task::{Context, Waker};
    /// # use std::time::Duration;
    /// let ledger = Ledger::new()?;
    /// ledger.set_fair(true);
    /// ledger.root().set_max(Limit::units(100))?;
    /// let held = ledger.root().try_charge(60)?;
    /// let mut large = std::pin::pin!(ledger.root().request(80).wait(Duration::from_secs(9)).into_future());
    /// assert!(large.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// assert_eq!(ledger.root().try_charge(1).unwrap_err().reason, Reason::Queued);
    /// drop(held);
    /// assert!(large.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_fair(&self, fair: bool) {
        self.control().fair.store(fair, Ordering::Relaxed);
    }
}

/// Makes all waiters that charge a group or one below it look again, after a change there. Looks at all waiters, if
/// there are any. Not async-signal-safe.
pub(crate) fn tell_below(ledger: &Ledger, top: GroupId) {
    // The fence of this call follows the change, as it follows a return.
    if !ledger.table().heads.open.any_after_return() {
        return;
    }
    let below = |waiter: &&Arc<Waiter>| {
        waiter.charged == top || leads_through(ledger.table(), waiter.charged.index(), top.index())
    };
    let queues = queues(ledger);
    let told: Vec<_> = queues.by_charged.values().filter(below).cloned().collect();
    tell(ledger, queues, &told);
}

/// Makes all waiters that charge a destroyed group look again. Costs the logarithm of the number of other waiters.
/// Not async-signal-safe.
#[cold]
pub(crate) fn tell_of_end(ledger: &Ledger, gone: GroupId) {
    let queues = queues(ledger);
    let theirs = queues.by_charged.range((gone.raw(), 0)..=(gone.raw(), u64::MAX));
    let told: Vec<_> = theirs.map(|(_, waiter)| waiter.clone()).collect();
    tell(ledger, queues, &told);
}

fn tell(ledger: &Ledger, queues: Gated<'_, Queues>, told: &[Arc<Waiter>]) {
    for waiter in told {
        // The first waiter of a queue waits on its head once it has looked, and until then like the others. The head
        // may serve the row's next group; then that queue's first waiter looks once without need.
        if queues.is_first(waiter) {
            ledger.table().heads.of(waiter.full.index()).notify(rung::ring);
        }
    }
    drop(queues);
    told.iter().for_each(|waiter| waiter.call());
}

/// A place in a queue; given up when dropped.
pub(crate) struct Place<'l> {
    ledger: &'l Ledger,
    waiter: Arc<Waiter>,
    /// The process that the place belongs to: a forked child does not have it.
    process: u32,
    /// Whether it was [found](Self::is_first) to be the first.
    pub(crate) first: bool,
}

impl<'l> Place<'l> {
    /// Takes the last place at a full group; `None` if the group's row is another's by now.
    pub(crate) fn take(full: Group<'l>, charged: GroupId) -> Option<Place<'l>> {
        let (ledger, full) = (full.ledger(), full.id());
        let mut queues = queues(ledger);
        let row = ledger.table().row(full.index());
        // Once this is true, and a queue of the next group has opened the head, it stays true.
        if row.generation() != full.generation() {
            return None;
        }
        let ticket = queues.next_ticket;
        queues.next_ticket += 1;
        let process = queues.process;
        let mut gone = Vec::new();
        if !queues.by_group.contains_key(&full.raw()) {
            gone = queues.open(ledger, full);
        }
        let (eventcount, waker) = (Eventcount::new(), Mutex::new(None));
        let waiter = Arc::new(Waiter { charged, full, ticket, eventcount, waker });
        let queue = queues.by_group.get_mut(&full.raw()).expect("there, or just made");
        queue.waiters.insert(ticket, waiter.clone());
        queues.by_charged.insert((charged.raw(), ticket), waiter.clone());
        drop(queues);
        // The place exists before any waiter is called, so that it is given up even if a call panics.
        let place = Place { ledger, waiter, process, first: false };
        gone.iter().for_each(|waiter| waiter.call());
        Some(place)
    }

    /// Returns the group at whose limit the queue waits.
    pub(crate) fn full(&self) -> GroupId {
        self.waiter.full
    }

    /// Returns whether it is the first. From then on it waits at the head, and stock that was idle below the full
    /// group has been returned.
    pub(crate) fn is_first(&mut self) -> bool {
        let mut queues = queues(self.ledger);
        let queue = queues.by_group.get_mut(&self.waiter.full.raw());
        let first = queue.as_ref().and_then(|queue| queue.waiters.keys().next());
        self.first = first.is_none_or(|&first| first == self.waiter.ticket);
        if self.first && queue.is_some_and(|queue| !std::mem::replace(&mut queue.drained, true)) {
            drop(queues);
            let _pass = lock::pass();
            drain::subtree(self.ledger.table(), self.waiter.full.index());
        }
        self.first
    }

    /// Returns the eventcount that it waits on: the head's for the first of a queue, else its own.
    pub(crate) fn eventcount(&self) -> &Eventcount {
        if self.first { &self.head().eventcount } else { &self.waiter.eventcount }
    }

    fn head(&self) -> &'l QueueHead {
        self.ledger.table().heads.of(self.waiter.full.index())
    }

    /// Leaves the means to wake a future: for the first waiter the alarm, which returned units ring, and for others
    /// the waker, for when they become the first. The future checks afterwards whether it was called meanwhile.
    pub(crate) fn leave_waker(&self, waker: &Waker, alarm: u32) {
        if !self.first {
            // The waker is cloned and dropped while no lock is held.
            drop(self.waiter.leave_waker(Some(waker.clone())));
            return;
        }
        let _queues = queues(self.ledger);
        // Otherwise the head serves the row's next group, and this waiter was notified of that (W1).
        if self.head().group() == self.waiter.full.raw() {
            self.head().leave_alarm(alarm);
        }
    }

    /// Returns whether it was taken in the process from which this one was forked.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // The lock is released before the call.
        let next = queues(self.ledger).leave(self);
        if let Some(next) = next {
            next.call();
        }
    }
}

impl Queues {
    fn is_first(&self, waiter: &Waiter) -> bool {
        let queue = self.by_group.get(&waiter.full.raw());
        queue.and_then(|queue| queue.waiters.keys().next()) == Some(&waiter.ticket)
    }

    /// Opens a queue at a group that has none. Returns the waiters at the row's earlier group, whose groups are gone
    /// as well. The caller calls them, so that they end.
    fn open(&mut self, ledger: &Ledger, full: GroupId) -> Vec<Arc<Waiter>> {
        let head = ledger.table().heads.of(full.index());
        let gone = self.by_group.get(&head.group()).into_iter();
        let gone: Vec<_> = gone.flat_map(|queue| queue.waiters.values().cloned()).collect();
        if !gone.is_empty() {
            // Notifies the first of them while its alarm is still there.
            head.notify(rung::ring);
        }
        head.serve(full.raw());
        ledger.table().row(full.index()).counter.track.draining.fetch_add(1, Ordering::SeqCst);
        // The fence of this call is also the partner of the fence in `PageCounter::allow`.
        ledger.table().heads.open.announce();
        self.by_group.insert(full.raw(), Queue { waiters: BTreeMap::new(), drained: false });
        gone
    }

    /// Takes a place out, if it is there; an inherited one is not. Returns the waiter that became the first by that,
    /// if any.
    fn leave(&mut self, place: &Place<'_>) -> Option<Arc<Waiter>> {
        let Waiter { charged, full, ticket, .. } = *place.waiter;
        let queue = self.by_group.get_mut(&full.raw())?;
        let was_first = *queue.waiters.keys().next()? == ticket;
        queue.waiters.remove(&ticket)?;
        self.by_charged.remove(&(charged.raw(), ticket));
        let next = queue.waiters.values().next().cloned();
        let head = Some(place.head()).filter(|head| head.group() == full.raw());
        if next.is_some() {
            if was_first && let Some(head) = head {
                head.leave_alarm(0);
            }
            return next.filter(|_| was_first);
        }
        self.by_group.remove(&full.raw());
        if let Some(head) = head {
            head.serve(0);
        }
        place.ledger.table().heads.open.retire();
        let row = place.ledger.table().row(full.index());
        row.counter.track.draining.fetch_sub(1, Ordering::SeqCst);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;

    #[test]
    fn a_waiter_that_leaves_is_on_no_list_any_more() {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        let [full, other] = ["full", "other"].map(|name| ledger.root().create(name).unwrap());
        full.set_max(Limit::units(1)).unwrap();
        let take = || Place::take(full, full.id()).unwrap();
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut places = [take(), take(), take()].map(Some);
            let elsewhere = Place::take(other, other.id()).unwrap();
            for at in order {
                drop(places[at].take());
            }
            let left = |ledger| {
                let queues = queues(ledger);
                (queues.by_charged.len(), queues.by_group.len())
            };
            assert_eq!(left(&ledger), (1, 1), "the one at the other group");
            drop(elsewhere);
            assert_eq!(left(&ledger), (0, 0));
        }
    }
}

//! Wait queues: who waits for room at which group, in which order, and how they are told.
//!
//! A queue is made by the first who waits at a group, and is gone with the last. While there is one, no cell
//! below its group gets a cap, so what is returned there reaches the counters, and tells the queue's first
//! through its head (queue_head.rs). The others sleep until the one before leaves: each on an eventcount of
//! its own, or, a future, with its waker left. So units that come back wake one waiter, not all of them.
//!
//! The queues are in a map by group, and a queue's waiters in a map by ticket: to come, to leave from
//! anywhere and to ask who is first costs the logarithm of how many there are. The heads lie in memory of
//! this process alone, also where the ledger is a file: each process has its own waiters.
//!
//! Invariant W1: with the lock held, the head of a queue's row names that queue's group, unless the row is
//! another group's by now whose queue it serves; the queues counted as open are those in the map, and each
//! of them holds one of its row's `draining`.

use crate::gate::lock::{self, Gated};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::drain;
use crate::sync::Ordering;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::path::leads_through;
use crate::wake::eventcount::Eventcount;
use crate::wake::queue_head::QueueHead;
use crate::wake::rung;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// Those in this process who wait for room in a ledger.
#[derive(Debug)]
pub(crate) struct WaitQueues(Mutex<Queues>);

#[derive(Debug)]
struct Queues {
    /// By the raw id of the group that is full.
    by_group: BTreeMap<u64, Queue>,
    next_ticket: u64,
    /// Those who wait, by the raw id of the group that they charge, and by ticket.
    by_charged: BTreeMap<(u64, u64), Arc<Waiter>>,
    /// The process whose waiters these are: a forked child has none of them.
    process: u32,
}

#[derive(Debug)]
struct Queue {
    /// By ticket: the first has the lowest.
    waiters: BTreeMap<u64, Arc<Waiter>>,
    /// Whether what lay idle below the group when the queue was made has been returned.
    drained: bool,
}

/// Who waits: a thread sleeps on the eventcount, a future leaves its waker, until it is the first.
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
    /// Has it look again. With nothing locked: a waker is somebody else's code.
    fn call(&self) {
        self.eventcount.notify();
        if let Some(waker) = self.leave_waker(None) {
            // A waker that panics is its executor's trouble, and nobody else's.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Replaces its waker; the one before.
    fn leave_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        let mut left = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *left, waker)
    }
}

impl WaitQueues {
    pub(crate) fn new() -> WaitQueues {
        WaitQueues(Mutex::new(Queues {
            by_group: BTreeMap::new(),
            next_ticket: 0,
            by_charged: BTreeMap::new(),
            process: std::process::id(),
        }))
    }
}

/// The queues, inside the gate, so that no fork finds them locked; emptied in a forked child.
fn queues(ledger: &Ledger) -> Gated<'_, Queues> {
    let heads = &ledger.table().heads;
    let mut queues = lock::gated(&ledger.control().waiting.0);
    if queues.process != std::process::id() {
        queues.process = std::process::id();
        queues.by_charged.clear();
        for &group in std::mem::take(&mut queues.by_group).keys() {
            let row = GroupId::row_of(group);
            heads.of(row).serve(0);
            // (In a file it is the parent's, which lowers it.)
            if !ledger.is_shared() {
                ledger.table().row(row).counter.track.draining.fetch_sub(1, Ordering::SeqCst);
            }
        }
        heads.open.forget();
    }
    queues
}

/// The nearest group on the way at which somebody waits.
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

/// Has all look again who wait to charge a group or one below it: what they wait for was changed there.
/// Looks at all who wait, if anybody does. Not async-signal-safe.
pub(crate) fn tell_below(ledger: &Ledger, top: GroupId) {
    // Its fence follows the change: as after a return.
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

/// Has all look again who wait to charge a group that was destroyed. Costs the logarithm of how many wait
/// for others. Not async-signal-safe.
#[cold]
pub(crate) fn tell_of_end(ledger: &Ledger, gone: GroupId) {
    let queues = queues(ledger);
    let theirs = queues.by_charged.range((gone.raw(), 0)..=(gone.raw(), u64::MAX));
    let told: Vec<_> = theirs.map(|(_, waiter)| waiter.clone()).collect();
    tell(ledger, queues, &told);
}

fn tell(ledger: &Ledger, queues: Gated<'_, Queues>, told: &[Arc<Waiter>]) {
    for waiter in told {
        // The first of a queue waits on its head once it has looked, and until then as the others. (The
        // head may be the row's next group's: its first looks for nothing.)
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
    /// At whose limit the queue waits.
    pub(crate) full: GroupId,
    ticket: u64,
    waiter: Arc<Waiter>,
    /// Whose place it is: a forked child has it no more.
    process: u32,
}

impl<'l> Place<'l> {
    /// The last place at a full group; `None` if the group's row is another's by now.
    pub(crate) fn take(full: Group<'l>, charged: GroupId) -> Option<Place<'l>> {
        let (ledger, full) = (full.ledger(), full.id());
        let mut queues = queues(ledger);
        let row = ledger.table().row(full.index());
        // Once this is so, and a queue of the next group has opened the head, it is so for ever.
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
        // Before anybody is called, so that the place is given up whatever becomes of that.
        let place = Place { ledger, full, ticket, waiter, process };
        gone.iter().for_each(|waiter| waiter.call());
        Some(place)
    }

    /// Whether it is the first. Whoever finds that waits at the head from then on, and what lay idle below
    /// the full group is returned.
    pub(crate) fn is_first(&self) -> bool {
        let mut queues = queues(self.ledger);
        let Some(queue) = queues.by_group.get_mut(&self.full.raw()) else { return true };
        let is_first =
            queue.waiters.first_key_value().is_none_or(|(&first, _)| first == self.ticket);
        if is_first && !std::mem::replace(&mut queue.drained, true) {
            drop(queues);
            let _pass = lock::pass();
            drain::subtree(self.ledger.table(), self.full.index());
        }
        is_first
    }

    /// What it waits on until it is the first.
    pub(crate) fn eventcount(&self) -> &Eventcount {
        &self.waiter.eventcount
    }

    /// What the first of its queue waits on.
    pub(crate) fn head(&self) -> &QueueHead {
        self.ledger.table().heads.of(self.full.index())
    }

    /// Has a future woken when it is the first. (It asks afterwards whether it was called meanwhile.)
    pub(crate) fn leave_waker(&self, waker: &Waker) {
        // Cloned and dropped with nothing locked.
        drop(self.waiter.leave_waker(Some(waker.clone())));
    }

    /// Has a future, the first, woken by its alarm when units come back. (It asks likewise.)
    pub(crate) fn leave_alarm(&self, number: u32) {
        let _queues = queues(self.ledger);
        // Otherwise the row's next group has waiters of its own, and this one was told that (W1).
        if self.head().group() == self.full.raw() {
            self.head().leave_alarm(number);
        }
    }

    /// Whether it was taken in the process that this one was forked from.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // (The lock is released before the call.)
        let next = queues(self.ledger).leave(self);
        if let Some(next) = next {
            next.call();
        }
    }
}

impl Queues {
    fn is_first(&self, waiter: &Waiter) -> bool {
        let queue = self.by_group.get(&waiter.full.raw());
        queue
            .and_then(|queue| queue.waiters.first_key_value())
            .is_some_and(|(&first, _)| first == waiter.ticket)
    }

    /// Opens a queue at a group that has none. Those who wait at what was the row's group before, for units
    /// of groups that are gone as well: the caller calls them, so that they end.
    fn open(&mut self, ledger: &Ledger, full: GroupId) -> Vec<Arc<Waiter>> {
        let head = ledger.table().heads.of(full.index());
        let gone = self.by_group.get(&head.group());
        let gone = gone.map_or_else(Vec::new, |queue| queue.waiters.values().cloned().collect());
        if !gone.is_empty() {
            // The first of them, while its alarm is still there.
            head.notify(rung::ring);
        }
        head.serve(full.raw());
        ledger.table().row(full.index()).counter.track.draining.fetch_add(1, Ordering::SeqCst);
        // Its fence is also the partner of the fence in `PageCounter::allow`.
        ledger.table().heads.open.announce();
        self.by_group.insert(full.raw(), Queue { waiters: BTreeMap::new(), drained: false });
        gone
    }

    /// Takes a place away, if it is there (an inherited one is not); who is first now, if somebody is who
    /// was not.
    fn leave(&mut self, place: &Place<'_>) -> Option<Arc<Waiter>> {
        let queue = self.by_group.get_mut(&place.full.raw())?;
        let was_first = queue.waiters.first_key_value()?.0 == &place.ticket;
        queue.waiters.remove(&place.ticket)?;
        self.by_charged.remove(&(place.waiter.charged.raw(), place.ticket));
        let next = queue.waiters.first_key_value().map(|(_, next)| next.clone());
        let head = (place.head().group() == place.full.raw()).then(|| place.head());
        if next.is_some() {
            if was_first && let Some(head) = head {
                head.leave_alarm(0);
            }
            return next.filter(|_| was_first);
        }
        self.by_group.remove(&place.full.raw());
        if let Some(head) = head {
            head.serve(0);
        }
        place.ledger.table().heads.open.retire();
        let row = place.ledger.table().row(place.full.index());
        row.counter.track.draining.fetch_sub(1, Ordering::SeqCst);
        None
    }
}

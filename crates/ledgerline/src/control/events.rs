//! `memory.events`: counts how often limits were met, in a group and in its subtree, and lets readers wait
//! for the next event.
//!
//! ```text
//! a level's limit is met (a slow path)                watch, look
//!   count it in the level's row                         take a slot: note the group and an eventfd
//!   note that the row changed (table/sums.rs)           fence
//!   fence                                               read the counts
//!   there is no watch: done                             wait for the eventfd
//!   each slot of a group on the path: write to its        read the counts
//!     eventfd
//! ```
//!
//! An event dirties its row's line, which the walk has just written, and none of the ancestors' lines: their counts
//! are collected when they are read. The two fences are SeqCst and each other's partner: of an event and a watch at
//! the same time, either the event finds the slot, or the first look finds the event. The count is written before the
//! eventfd, so a woken thread sees the event that woke it.

use crate::control::alarm::Alarm;
use crate::control::listener::{self, Subscription};
use crate::counter::walk::Levels;
use crate::gate::lock::{self, GATE};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::os::bell::Bell;
use crate::stock::totals;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::table::id::GroupId;
use crate::table::path::{self, RowPath};
use crate::table::sums::{self, BLOCKS, CHANGES, COUNTED, Sum};
use crate::wake::rung;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicI32;
use std::task::{Context, Poll};
use std::time::Duration;

/// The most watches of one ledger that one process may have at a time.
pub const WATCHES_MAX: usize = 256;

/// Counts of met limits, like in `memory.events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Events {
    /// Number of times that a reclaimer freed units although its group was below its low, since nothing else was
    /// left.
    pub low: u64,
    /// Number of walks to the counters that ended above a group's high.
    pub high: u64,
    /// Number of charges that met a group's max: that were refused there, went over it, or were measured above it.
    pub max: u64,
    /// Number of times that a victim was looked for, because a group was full and nothing else made room.
    pub oom: u64,
    /// Number of groups that were cancelled as victims.
    pub oom_kill: u64,
    /// Number of groups in which everything was cancelled at once ([`Group::set_oom_group`]).
    pub oom_group_kill: u64,
    /// Number of times that a reclaimer was reported because it ran for ten times its allowed time
    /// ([`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)), in this process and as long as its
    /// group lives. Snapshots and other processes have zero here. The kernel's `memory.events` has no such line, so
    /// this is not printed.
    pub reclaimer_hung: u64,
    /// Number of times that a limit (max, high, low or min) was set to another value, by any process. The kernel's
    /// `memory.events` has no such line, so this is not printed.
    pub limits: u64,
}

impl Events {
    /// Extracts the events from the counts of a group, or of its subtree (`table/sums.rs`).
    pub(crate) fn of_words(totals: &[i64]) -> Events {
        let sum = |sum: Sum| totals[COUNTED + sum as usize] as u64;
        Events {
            low: sum(Sum::Low),
            high: totals[BLOCKS + 1] as u64,
            max: totals[BLOCKS] as u64,
            oom: sum(Sum::Oom),
            oom_kill: sum(Sum::OomKill),
            oom_group_kill: sum(Sum::OomGroupKill),
            reclaimer_hung: 0,
            limits: totals[CHANGES] as u64,
        }
    }
}

impl std::fmt::Display for Events {
    /// Formats the lines of cgroup v2's `memory.events`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "low {}\nhigh {}\nmax {}\noom {}\noom_kill {}\noom_group_kill {}",
            self.low, self.high, self.max, self.oom, self.oom_kill, self.oom_group_kill
        )
    }
}

/// The slot of one watch: the group's id (0: the slot is free, 1: it is being taken) and the eventfd.
#[derive(Debug, Default)]
struct Slot {
    id: AtomicU64,
    eventfd: AtomicI32,
    /// The alarm of a future that waits for it; 0 for none.
    alarm: AtomicU32,
    /// Number of limit changes that were reported (`wake_changed`).
    limits: AtomicU64,
}

const FREE: u64 = 0;
/// No group has this id, since its generation is 0.
const TAKEN: u64 = 1;

/// The watches of this process on a ledger.
#[derive(Debug)]
pub(crate) struct Watchers {
    count: AtomicUsize,
    slots: [Slot; WATCHES_MAX],
}

impl Watchers {
    pub(crate) fn new() -> Self {
        Watchers { count: AtomicUsize::new(0), slots: std::array::from_fn(|_| Slot::default()) }
    }
}

/// Waits for the events of a group and its subtree. Either call [`wait`](Self::wait), or pass its file descriptor to
/// `poll` or `epoll`: it is readable if there were events since the last look.
///
/// A destroyed group has no more events. Its watch is not woken, not even by the next group of its row. So a wait
/// without a time limit never ends then.
///
/// ```
/// # use ledgerline::{Ledger, Limit};
/// # use std::time::Duration;
/// let ledger = Ledger::new()?;
/// let tenant = ledger.root().create("acme")?;
/// let query = tenant.create("q1")?;
/// query.set_max(Limit::units(100))?;
///
/// let watch = tenant.watch()?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| query.try_charge(101).unwrap_err());
///     let events = watch.wait(Some(Duration::from_secs(60))).unwrap().expect("in a minute");
///     assert_eq!(events.max, 1); // counted for the tenant, whose query it was
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a watch that is dropped at once tells nothing"]
pub struct Watch<'l> {
    group: Group<'l>,
    slot: &'l Slot,
    /// Other processes may set limits.
    _subscription: Option<Subscription<'l>>,
    /// Closed in `drop`, if it can be.
    bell: std::mem::ManuallyDrop<Bell>,
}

impl<'l> Group<'l> {
    /// Returns the events of this group and its subtree, including those of destroyed descendants; zeros for a group
    /// that is gone. Costs as much as [`stat`](Self::stat). Not async-signal-safe.
    pub fn events(self) -> Events {
        of(self)[1]
    }

    /// Returns the events of this very group (`memory.events.local`). Costs as much as [`events`](Self::events);
    /// [`max_events`](Self::max_events) and [`high_events`](Self::high_events) cost a load.
    pub fn local_events(self) -> Events {
        of(self)[0]
    }

    /// Starts to watch this group's subtree. The watch does not report earlier events.
    ///
    /// It reports limits that are met, and limits that are changed ([`Events::limits`]). In a ledger that processes
    /// share, any of them may change limits (like `ledgerline set`). There, a thread of this process receives such
    /// changes and reports them within a few milliseconds. The thread starts with the first watch and ends with the
    /// last. It does not report limits that *charges of other processes* meet.
    ///
    /// # Errors
    /// If the group does not exist, this process has [`WATCHES_MAX`] watches of the ledger already, or the system
    /// gives no eventfd or no thread. [`io::ErrorKind::Unsupported`] on systems other than Linux.
    pub fn watch(self) -> io::Result<Watch<'l>> {
        if !self.exists() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the group does not exist"));
        }
        let bell = Bell::new()?;
        let subscription = listener::join(self.ledger())?;
        let watchers = &self.ledger().control().watchers;
        let take = |slot: &Slot| {
            slot.id.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(slot) = watchers.slots.iter().find(|slot| take(slot)) else {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("a process has at most {WATCHES_MAX} watches of a ledger; drop one"),
            ));
        };
        slot.eventfd.store(bell.number(), Ordering::Relaxed);
        if subscription.is_some() {
            // A change from here on may be reported although the caller's first look finds it.
            totals::collect_changes(self.table());
            slot.limits.store(totals::changes(self.table(), self.id()), Ordering::Relaxed);
        }
        // Release, partner of the Acquire in `watched`: a thread that sees the id sees the descriptor.
        slot.id.store(self.id().raw(), Ordering::Release);
        watchers.count.fetch_add(1, Ordering::Relaxed);
        // Partner of the fence in `announce`.
        fence(Ordering::SeqCst);
        Ok(Watch {
            group: self,
            slot,
            _subscription: subscription,
            bell: std::mem::ManuallyDrop::new(bell),
        })
    }
}

impl Watch<'_> {
    /// Waits until there are events that no look has reported yet. Returns the counts of the subtree, which include
    /// the events that ended the wait; `None` when the time is up. After a fork, events of the child also end a wait
    /// in the parent, and the reverse.
    ///
    /// # Errors
    /// If the wait is interrupted by a signal.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Events>> {
        Ok(if self.bell.wait(timeout)? { self.look() } else { None })
    }

    /// Returns the counts if there were events since the last look. Does not wait: it is for programs that wait for
    /// the descriptor.
    pub fn look(&self) -> Option<Events> {
        self.bell.was_rung().then(|| self.group.events())
    }
}

impl<'l> Watch<'l> {
    /// Waits for the next events without blocking a thread. The future is ready with the counts of the subtree once
    /// there were events that no look has reported yet. One task at a time may wait.
    pub fn changed(&self) -> Changed<'_, 'l> {
        Changed { watch: self, alarm: Alarm::default() }
    }
}

/// The future of [`Watch::changed`], ready when there are events.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Changed<'w, 'l> {
    watch: &'w Watch<'l>,
    alarm: Alarm,
}

impl Future for Changed<'_, '_> {
    type Output = Events;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Events> {
        let watch = self.watch;
        if let Some(events) = watch.look() {
            return Poll::Ready(events);
        }
        self.alarm.set(context.waker(), None);
        watch.slot.alarm.store(self.alarm.number(), Ordering::Relaxed);
        // Partner of the fence in `announce`: an event that the look below does not see finds the
        // alarm.
        fence(Ordering::SeqCst);
        watch.look().map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Watch<'_> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let watchers = &self.group.ledger().control().watchers;
        self.slot.id.store(TAKEN, Ordering::Relaxed);
        watchers.count.fetch_sub(1, Ordering::Relaxed);
        // A thread that found the slot before is inside the gate, and may be about to write to the descriptor. The
        // number must not become another file's until that thread is out.
        if GATE.close(lock::thread()) {
            GATE.open();
            // SAFETY: dropped once, here.
            unsafe { std::mem::ManuallyDrop::drop(&mut self.bell) };
            self.slot.id.store(FREE, Ordering::Release);
        }
        // Otherwise some thread stays inside for long: slot and descriptor are leaked.
    }
}

/// Returns the events of a group, and of its subtree.
fn of(group: Group<'_>) -> [Events; 2] {
    let totals = totals::of(group.table(), group.id());
    let (own, subtree) = totals.split_at(totals.len() / 2);
    let mut events = [own, subtree].map(Events::of_words);
    let hung = lock::gated(&group.ledger().control().hung);
    let below = |id: GroupId| {
        group.exists()
            && group.ledger().group(id).exists()
            && path::leads_through(group.table(), id.index(), group.id().index())
    };
    for (&id, &times) in hung.iter() {
        let id = GroupId::from_raw(id);
        let is_own = id == group.id() && group.exists();
        events[0].reclaimer_hung += if is_own { times } else { 0 };
        events[1].reclaimer_hung += if below(id) { times } else { 0 };
    }
    events
}

/// Counts that a reclaimer of a group was reported, and notifies the watchers.
pub(crate) fn count_hung(ledger: &Ledger, id: GroupId) {
    *lock::gated(&ledger.control().hung).entry(id.raw()).or_default() += 1;
    announce_from(ledger, id, 1);
}

/// Counts an event that the group's row does not count itself, and notifies the watchers.
pub(crate) fn count(ledger: &Ledger, id: GroupId, event: Sum) {
    sums::note(ledger.table(), id, event, 1);
    announce_from(ledger, id, 1);
}

/// Counts a change of a group's limit in its row, and notifies the watchers. Async-signal-safe.
pub(crate) fn limits_changed(ledger: &Ledger, id: GroupId) {
    let _pass = lock::pass();
    let Some(path) = RowPath::of(ledger.table(), id) else { return };
    if ledger.is_shared() {
        // The threads of all processes, including this one's, notify their watches.
        ledger.table().note_changed(ledger.table().columns.current(), path.leaf());
        listener::tell(ledger);
    } else {
        announce(ledger, &path, 1);
    }
}

/// Returns the slots in use, each with the group that it watches.
fn watched(ledger: &Ledger) -> impl Iterator<Item = (&Slot, GroupId)> {
    ledger.control().watchers.slots.iter().filter_map(|slot| {
        // Acquire: partner of the Release in `watch`.
        let id = slot.id.load(Ordering::Acquire);
        (id != FREE && id != TAKEN).then(|| (slot, GroupId::from_raw(id)))
    })
}

/// Wakes the watches whose groups count more changes of limits than were reported. No change is reported twice or in
/// part, since the counts are the rows'.
pub(crate) fn wake_changed(ledger: &Ledger) {
    totals::collect_changes(ledger.table());
    let _pass = lock::pass();
    // Partner of the fence in `watch`.
    fence(Ordering::SeqCst);
    for (slot, group) in watched(ledger) {
        let changes = totals::changes(ledger.table(), group);
        if ledger.group(group).exists() && slot.limits.swap(changes, Ordering::Relaxed) != changes {
            wake_slot(slot);
        }
    }
}

/// Notifies the watchers that limits were met at some levels of a group's path. The caller has counted the events
/// there. Async-signal-safe.
#[cold]
pub(crate) fn announce_from(ledger: &Ledger, id: GroupId, levels: Levels) {
    let _pass = lock::pass();
    if let Some(path) = RowPath::of(ledger.table(), id) {
        announce(ledger, &path, levels);
    }
}

/// Like [`announce_from`], for a caller that has the path and is inside the gate.
#[cold]
pub(crate) fn announce(ledger: &Ledger, path: &RowPath<'_>, levels: Levels) {
    let column = ledger.table().columns.current();
    for (level, &row) in path.rows().iter().enumerate() {
        if levels >> level & 1 != 0 {
            ledger.table().note_changed(column, row);
        }
    }
    // Partner of the fence in `watch`.
    fence(Ordering::SeqCst);
    if ledger.control().watchers.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    // The lowest level at which something happened, and its ancestors. A path that was written over may be shorter
    // than the walk's was.
    let rows = path.rows().get(levels.trailing_zeros() as usize..).unwrap_or_default();
    for (slot, group) in watched(ledger) {
        // A row of the path serves some group; the watched group may be gone.
        if rows.contains(&group.index()) && ledger.table().id(group.index()) == group {
            wake_slot(slot);
        }
    }
}

/// Wakes a watch. The caller entered the gate before it found the slot in use: until it leaves, the descriptor is the
/// watch's.
fn wake_slot(slot: &Slot) {
    Bell::ring_number(slot.eventfd.load(Ordering::Relaxed));
    let alarm = slot.alarm.swap(0, Ordering::SeqCst);
    if alarm != 0 {
        rung::ring(alarm);
    }
}

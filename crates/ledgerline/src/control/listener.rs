//! Receives limit changes of other processes, in a ledger that processes share.
//!
//! ```text
//! a limit of a shared ledger changes          the thread of each process that has watches or reclaimers there
//!   count it in its row, note the row           key = the header's count
//!   the header's count += 1                     its watches whose groups count more changes: wake them
//!   fence                                       another process changed a limit: ask the reclaimers below the
//!   no thread sleeps on it: done                  groups that are above their max, have waiters look again
//!   wake all who do                             sleep while count == key, for a second at most
//! ```
//!
//! The count is an eventcount in the file (`wake/eventcount.rs`), so a thread that sleeps misses no change. Any
//! process may write over it, so no thread sleeps on it for longer than a second. A woken thread reads the counts of
//! the rows, and reports those alone. If a process dies between its two steps, its change is reported with the next
//! one.
//!
//! The thread starts with the first watch or reclaimer, and ends with the last. A forked child has none until it
//! makes a watch or a reclaimer of its own. A ledger without a file has no such thread: the thread that changes a
//! limit notifies the watches itself (`events.rs`).
//!
//! Invariant C2: the group by which the thread finds its ledger points into that ledger's region. The thread uses it
//! until it is joined, which [`Listener::end`] does before the region goes (guarded by
//! `a_ledger_may_go_whose_watch_was_forgotten`).

use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::sync::are_calls_forbidden;
use crate::sync::thread::{self, Thread};
use crate::wake::eventcount::Eventcount;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest sleep on a word that another process may overwrite.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);
/// The pause between two looks, to limit the cost of a program that sets limits all the time.
pub(crate) const PACE: Duration = Duration::from_millis(5);

/// The listener of this process.
#[derive(Debug)]
pub(crate) struct Listener {
    state: Mutex<State>,
    /// Number of changes that this process itself reported. Raised before the header's count.
    told: AtomicU32,
    /// The function of the thread (`hear.rs`). Takes the header's count from which on it listens.
    run: fn(&Ledger, u32, &AtomicBool),
}

#[derive(Debug, Default)]
struct State {
    /// The process that these threads belong to.
    process: u32,
    /// Number of watches and reclaimers.
    users: usize,
    thread: Option<Hearing>,
    /// Threads that end and were not joined, because one of them ended the others.
    ending: Vec<Thread>,
}

#[derive(Debug)]
struct Hearing {
    thread: Thread,
    /// Relaxed: it is seen at the latest after the sleep, and the join orders the rest.
    stop: Arc<AtomicBool>,
}

/// A watch's or a reclaimer's hold on the listening thread, until this is dropped.
#[derive(Debug)]
pub(crate) struct Subscription<'l> {
    ledger: &'l Ledger,
    /// The process that took it.
    process: u32,
}

impl State {
    /// Forgets the threads of the process that this one was forked from. Their handles refer to no thread here.
    fn belong_to(&mut self, process: u32) {
        if self.process != process {
            std::mem::forget(self.thread.take().map(|hearing| hearing.thread));
            std::mem::forget(std::mem::take(&mut self.ending));
            (self.process, self.users) = (process, 0);
        }
    }
}

/// Joins threads that end, except the calling thread itself. Returns those that were not joined.
pub(crate) fn join_others(threads: Vec<Thread>) -> Vec<Thread> {
    let (mine, others): (Vec<_>, Vec<_>) = threads.into_iter().partition(Thread::is_this);
    others.into_iter().for_each(Thread::join);
    mine
}

/// Makes the thread listen until what is returned is dropped. Returns `None` in a ledger that processes do not share.
pub(crate) fn join(ledger: &Ledger) -> io::Result<Option<Subscription<'_>>> {
    if !ledger.is_shared() {
        return Ok(None);
    }
    let process = std::process::id();
    let mut state = lock::gated(&ledger.control().listener.state);
    state.belong_to(process);
    if state.thread.is_none() {
        state.thread = Some(start(ledger)?);
    }
    state.users += 1;
    Ok(Some(Subscription { ledger, process }))
}

impl Drop for Subscription<'_> {
    /// Ends the thread with the last subscription.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let listener = &self.ledger.control().listener;
        let mut state = lock::gated(&listener.state);
        state.belong_to(self.process);
        state.users = state.users.saturating_sub(1);
        let last = if state.users == 0 { state.thread.take() } else { None };
        // Joins while no lock is held: the thread may be about to lock.
        drop(state);
        if let Some(hearing) = last {
            let mine = join_others(vec![stop(self.ledger, hearing)]);
            lock::gated(&listener.state).ending.extend(mine);
        }
    }
}

impl Listener {
    pub(crate) fn new(run: fn(&Ledger, u32, &AtomicBool)) -> Listener {
        Listener { state: Mutex::default(), told: AtomicU32::new(0), run }
    }

    /// Ends the thread, even if watches were forgotten. Returns `false` if the calling thread is that thread itself.
    pub(crate) fn end(&self, ledger: &Ledger) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.belong_to(std::process::id());
        let hearing = state.thread.take();
        let mut threads = std::mem::take(&mut state.ending);
        drop(state);
        threads.extend(hearing.map(|hearing| stop(ledger, hearing)));
        // The calling thread itself is detached, and its data is kept.
        join_others(threads).is_empty()
    }

    /// Returns a number that grows when other processes change limits. For a moment it may be too small.
    pub(crate) fn of_others(&self, count: u32) -> u32 {
        count.wrapping_sub(self.told.load(Ordering::Relaxed))
    }
}

pub(crate) fn count(ledger: &Ledger) -> &Eventcount {
    &ledger.table().header().changes
}

/// Notifies the threads of all processes that a limit was changed. The change was counted in its row, which was noted
/// as changed. Async-signal-safe.
pub(crate) fn tell(ledger: &Ledger) {
    ledger.control().listener.told.fetch_add(1, Ordering::Relaxed);
    if count(ledger).advance() && !are_calls_forbidden() {
        count(ledger).wake_all_processes();
    }
}

/// Tells the thread to stop.
fn stop(ledger: &Ledger, hearing: Hearing) -> Thread {
    hearing.stop.store(true, Ordering::Relaxed);
    // Rings as for a change; the other processes find that nothing changed.
    tell(ledger);
    hearing.thread
}

fn start(ledger: &Ledger) -> io::Result<Hearing> {
    // SAFETY: C2.
    let root = unsafe { std::mem::transmute::<Group<'_>, Group<'static>>(ledger.root()) };
    let run = ledger.control().listener.run;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    // Changes from here on are noticed.
    let key = count(ledger).key();
    let thread = thread::start(c"ledgerline-hear", move || run(root.ledger(), key, &stopped))?;
    Ok(Hearing { thread, stop })
}

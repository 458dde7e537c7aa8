//! The thread that takes the samples, and the calls that ask what it found.
//!
//! Invariant C1: the groups that a [`Follower`] has point into its ledger's region. They are used by calls that borrow
//! the ledger, and by the sampler's thread, which [`Sampler::end`] joins before the region goes.
//!
//! The follower is locked while a sample is taken, and not while reclaimers run: one may ask for a sample itself. In
//! between, wakers may run; who asks from there finds it locked, and gets what the last sample found.

use super::follow::{Follower, Next, Status};
use super::pressure::{Pressure, eventfd, signal};
use super::{Settings, UNTRACKED};
use crate::control::{Companion, reclaim};
use crate::gate::lock::{gated, guard_forks};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::sync::wait_a_turn;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Reclaimers are not asked for pressure more often than that.
const RELIEF: Duration = Duration::from_millis(100);
/// For how many turns a call waits for another sample to end.
const TURNS: u32 = 2000;

/// What a ledger has of its container.
struct Sampler {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The process that started it. A forked child has no such thread.
    process: u32,
}

struct Shared {
    root: Group<'static>,
    follower: Mutex<Follower>,
    /// What the last sample found; locked inside the gate, so that a fork finds it whole and free.
    status: Mutex<Status>,
    pressure: AtomicU64,
    reclaimed: AtomicU64,
    stop: OwnedFd,
    /// Relaxed everywhere: the eventfd wakes, and the join orders what comes after.
    stopped: AtomicBool,
}

/// Begins to follow the container of a ledger that nobody else knows yet.
pub(crate) fn start(ledger: &Ledger, settings: Settings) -> io::Result<()> {
    guard_forks();
    let row = ledger.root().create(UNTRACKED).map_err(io::Error::other)?;
    // SAFETY: C1; guarded by the tests that drop such a ledger (`tests/container.rs`).
    let [root, row] = unsafe {
        [ledger.root(), row].map(|group| std::mem::transmute::<Group<'_>, Group<'static>>(group))
    };
    let by_hand = !settings.thread;
    let follower = Follower::new(root, row, ledger.is_shared(), settings);
    let shared = Arc::new(Shared {
        root,
        status: Mutex::new(follower.status.clone()),
        follower: Mutex::new(follower),
        pressure: AtomicU64::new(0),
        reclaimed: AtomicU64::new(0),
        stop: eventfd()?,
        stopped: AtomicBool::new(false),
    });
    // The limit holds before anybody can charge.
    let next = shared.sample(true);
    let thread = if by_hand { None } else { Some(spawn(shared.clone(), next)?) };
    let sampler = Sampler { shared, thread: Mutex::new(thread), process: std::process::id() };
    let set = ledger.control().companion.set(Box::new(sampler));
    assert!(set.is_ok(), "the ledger is new");
    Ok(())
}

/// Starts the thread, with all signals blocked: those of the program are not for it.
fn spawn(shared: Arc<Shared>, next: Option<Next>) -> io::Result<JoinHandle<()>> {
    let run = move || shared.run(next);
    // SAFETY: the sets are this function's, and sigfillset fills the first before it is read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = thread::Builder::new().name("ledgerline".to_owned()).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        thread
    }
}

impl Shared {
    /// Takes a sample, unless another one does not end.
    fn sample(&self, fresh: bool) -> Option<Next> {
        let mut turn = 0;
        let mut follower = loop {
            match self.follower.try_lock() {
                Ok(follower) => break follower,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if turn == TURNS => return None,
                Err(TryLockError::WouldBlock) => wait_a_turn(turn),
            }
            turn += 1;
        };
        let next = follower.sample(fresh);
        let status = follower.status.clone();
        *gated(&self.status) = status;
        Some(next)
    }

    fn status(&self) -> Status {
        let mut status = gated(&self.status).clone();
        status.pressure = self.pressure.load(Ordering::Relaxed);
        status.reclaimed = self.reclaimed.load(Ordering::Relaxed);
        status
    }

    /// Has the reclaimers bring the root below its max again.
    fn relieve(&self, next: &Next) {
        if next.above > 0 {
            let freed = reclaim::units(self.root, next.above, false);
            self.reclaimed.fetch_add(freed, Ordering::Relaxed);
        }
    }

    /// Asks the reclaimers for some room, for pressure.
    fn give_way(&self, next: &Next) {
        self.pressure.fetch_add(1, Ordering::Relaxed);
        let freed = reclaim::units(self.root, next.relief.max(1), true);
        self.reclaimed.fetch_add(freed, Ordering::Relaxed);
    }

    fn watch(&self) -> Pressure {
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        let pressure = follower.watch();
        let told = pressure.told.clone();
        drop(follower);
        gated(&self.status).watched = told;
        pressure
    }

    fn run(&self, next: Option<Next>) {
        let watched = || self.follower.lock().unwrap_or_else(PoisonError::into_inner).watched();
        let mut cgroup = watched();
        let mut pressure = self.watch();
        let mut after = next.map_or(Duration::ZERO, |next| next.after);
        let mut relieved: Option<Instant> = None;
        while !self.stopped.load(Ordering::Relaxed) {
            let told = pressure.sleep(&self.stop, after);
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            // (It is None only while some caller takes samples without an end.)
            let Some(next) = self.sample(false) else { continue };
            after = next.after;
            self.relieve(&next);
            if (told || next.pressure) && relieved.is_none_or(|last| last.elapsed() >= RELIEF) {
                self.give_way(&next);
                relieved = Some(Instant::now());
            }
            // The process may be moved to another cgroup.
            let now = watched();
            if now != cgroup {
                cgroup = now;
                pressure = self.watch();
            }
        }
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Companion for Sampler {
    fn end(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.process != std::process::id() {
            // It cannot be joined, nor detached: what the handle leads to is no thread's any more.
            std::mem::forget(thread.take());
            return true;
        }
        self.shared.stopped.store(true, Ordering::Relaxed);
        signal(&self.shared.stop);
        match thread.take() {
            Some(thread) if thread.thread().id() == thread::current().id() => false,
            // (It never panics out of a sample; if it did, it is no more.)
            Some(thread) => {
                let _ = thread.join();
                true
            }
            None => true,
        }
    }
}

impl Ledger {
    fn sampler(&self) -> Option<&Sampler> {
        let companion: &dyn Any = self.control().companion.get()?.as_ref();
        companion.downcast_ref()
    }

    /// What is known of the container, as of the last sample: its limit and where that comes from, what the kernel
    /// charges, how much of that is untracked. `None` for a ledger that was built without
    /// [`LedgerBuilder::container`](crate::LedgerBuilder::container). Costs a lock and a copy.
    pub fn container(&self) -> Option<Status> {
        Some(self.sampler()?.shared.status())
    }

    /// Takes a sample now, and says what it found: it reads the limits anew, forgets what was untracked before, and sets
    /// the row and the root's max. Asks the reclaimers if the root is above that, or if the cgroup's events tell of
    /// pressure. For a program that let go of much memory that was untracked, and for one that wants no thread
    /// ([`Settings::by_hand`](crate::container::Settings::by_hand)).
    ///
    /// `None` as [`container`](Self::container). In a forked child, and while another thread takes a sample for too
    /// long, it is what the last sample found. Costs some tenths of a millisecond; not async-signal-safe.
    pub fn update_container(&self) -> Option<Status> {
        let sampler = self.sampler()?;
        if sampler.process == std::process::id()
            && let Some(next) = sampler.shared.sample(true)
        {
            sampler.shared.relieve(&next);
            if next.pressure {
                sampler.shared.give_way(&next);
            }
        }
        Some(sampler.shared.status())
    }
}

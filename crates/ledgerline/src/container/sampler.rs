//! The threads that follow a container, and the calls that return its state. One thread takes the samples. The other runs
//! reclaimers, since a sample that waited for one would come too late.
//!
//! Invariant C1: the groups in a [`Follower`] point into its ledger's region. They are used by calls that borrow the ledger,
//! and by these threads, which [`Sampler::end`] joins before the region is unmapped.
//!
//! The follower is locked while a sample is taken, but not while reclaimers run, since a reclaimer may itself ask for a
//! sample. Wakers may run while it is locked; a call from a waker finds it locked, and gets the last sample.

use super::follow::{Follower, Next, Status};
use super::limits::Source;
use super::pressure::Pressure;
use super::{Settings, UNTRACKED};
use crate::control::listener::join_others;
use crate::control::{Companion, reclaim};
use crate::gate::lock::{gated, guard_forks};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::os::{self, bell::Bell};
use crate::sync::thread::{self, Thread};
use crate::sync::wait_a_turn;
use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The shortest time between two requests to reclaimers for pressure.
const RELIEF: Duration = Duration::from_millis(100);
/// For how many turns a call waits for another sample to end.
const TURNS: u32 = 2000;

/// A ledger's follower and its threads.
struct Sampler {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Thread>>,
    /// The process that started the threads. A forked child does not have them.
    process: u32,
}

struct Shared {
    root: Group<'static>,
    follower: Mutex<Follower>,
    /// The last sample, and the work of the threads. Locked inside the gate, so that a fork finds it intact and unlocked.
    status: Mutex<Status>,
    wanted: Mutex<Wanted>,
    /// Notified when more is wanted, and at the end.
    want: Condvar,
    stop: Bell,
    /// Relaxed everywhere: the bell wakes the threads, and the join orders everything after it.
    stopped: AtomicBool,
}

/// The units to ask reclaimers for.
#[derive(Default)]
struct Wanted {
    /// Units by which the root is above its max.
    above: u64,
    /// Units to free because of pressure.
    relief: u64,
}

/// Starts to follow the container of a ledger that no other thread knows yet.
pub(crate) fn start(ledger: &Ledger, settings: Settings) -> io::Result<()> {
    os::has_containers()?;
    guard_forks();
    let row = ledger.root().create(UNTRACKED).map_err(io::Error::other)?;
    // SAFETY: C1; guarded by the tests that drop such a ledger (`tests/main/container.rs`).
    let [root, row] = unsafe {
        [ledger.root(), row].map(|group| std::mem::transmute::<Group<'_>, Group<'static>>(group))
    };
    let by_hand = !settings.thread;
    let follower = Follower::new(root, row, ledger.is_shared(), settings);
    let shared = Arc::new(Shared {
        root,
        status: Mutex::new(follower.status.clone()),
        follower: Mutex::new(follower),
        wanted: Mutex::default(),
        want: Condvar::new(),
        stop: Bell::new()?,
        stopped: AtomicBool::new(false),
    });
    // The limit applies before the first charge.
    let next = shared.sample(&[], true);
    let (threads, process) = (Mutex::default(), std::process::id());
    let sampler = Sampler { shared: shared.clone(), threads, process };
    let set = ledger.control().companion.set(Box::new(sampler));
    assert!(set.is_ok(), "the ledger is new");
    // If the second thread cannot be started, the end of the ledger ends the first.
    if let Some(sampler) = ledger.sampler().filter(|_| !by_hand) {
        let asker = shared.clone();
        let mut threads = sampler.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(thread::start(c"ledgerline", move || shared.run(next))?);
        threads.push(thread::start(c"ledgerline-ask", move || asker.ask())?);
    }
    Ok(())
}

impl Shared {
    /// Locks the follower. Gives up if another sample does not end.
    fn lock(&self) -> Option<MutexGuard<'_, Follower>> {
        for turn in 0..TURNS {
            match self.follower.try_lock() {
                Ok(follower) => return Some(follower),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => wait_a_turn(turn),
            }
        }
        None
    }

    /// Takes a sample. Gives up if another one does not end. Accounts for memory given back since the look `before`.
    fn sample(&self, before: &[(Source, u64, u64)], fresh: bool) -> Option<Next> {
        let mut follower = self.lock()?;
        if !before.is_empty() {
            follower.lower(before);
        }
        let next = follower.sample(fresh);
        let sampled = follower.status.clone();
        let mut status = gated(&self.status);
        *status = Status {
            late: status.late,
            pressure: status.pressure,
            reclaimed: status.reclaimed,
            watched: std::mem::take(&mut status.watched),
            ..sampled
        };
        Some(next)
    }

    fn status(&self) -> Status {
        gated(&self.status).clone()
    }

    /// Asks the reclaimers to bring the root below its max again, and to free some memory under pressure.
    fn relieve(&self, wanted: &Wanted) {
        for (units, urgent) in [(wanted.above, false), (wanted.relief, true)] {
            if units > 0 {
                let freed = reclaim::units(self.root, units, urgent);
                gated(&self.status).reclaimed += freed;
            }
        }
    }

    /// The body of the thread that runs reclaimers.
    fn ask(&self) {
        loop {
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            let nothing = |wanted: &mut Wanted| {
                wanted.above == 0 && wanted.relief == 0 && !self.stopped.load(Ordering::Relaxed)
            };
            let mut wanted =
                self.want.wait_while(wanted, nothing).unwrap_or_else(PoisonError::into_inner);
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let now = std::mem::take(&mut *wanted);
            drop(wanted);
            self.relieve(&now);
        }
    }

    /// Ends both threads.
    fn stop(&self) {
        // Under the lock, so that a thread that is about to wait sees it.
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopped.store(true, Ordering::Relaxed);
        drop(wanted);
        self.want.notify_all();
        Bell::ring_number(self.stop.number());
    }

    fn watch(&self) -> Pressure {
        let pressure = self.follower.lock().unwrap_or_else(PoisonError::into_inner).watch();
        gated(&self.status).watched.clone_from(&pressure.told);
        pressure
    }

    fn run(&self, next: Option<Next>) {
        let watched = || self.follower.lock().unwrap_or_else(PoisonError::into_inner).watched();
        let mut cgroup = watched();
        let mut pressure = self.watch();
        let mut after = next.map_or(Duration::ZERO, |next| next.after);
        let mut relieved: Option<Instant> = None;
        while !self.stopped.load(Ordering::Relaxed) {
            let asleep = Instant::now();
            let told = pressure.sleep(&self.stop, after);
            let late = asleep.elapsed().saturating_sub(after);
            let mut status = gated(&self.status);
            status.late = status.late.max(late);
            drop(status);
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            // `None` only while other callers take samples without a pause.
            let Some(next) = self.sample(&[], false) else { continue };
            after = next.after;
            let mut relief = 0;
            if (told || next.pressure) && relieved.is_none_or(|last| last.elapsed() >= RELIEF) {
                gated(&self.status).pressure += 1;
                relief = next.relief.max(1);
                relieved = Some(Instant::now());
            }
            if next.above > 0 || relief > 0 {
                let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
                wanted.above = next.above;
                // The previous request may not have been passed on yet.
                wanted.relief = wanted.relief.max(relief);
                drop(wanted);
                self.want.notify_one();
            }
            // The process may have been moved to another cgroup.
            let now = watched();
            if now != cgroup {
                cgroup = now;
                pressure = self.watch();
            }
        }
    }
}

impl Companion for Sampler {
    fn end(&self) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = std::mem::take(&mut *threads);
        if self.process != std::process::id() {
            // They can be neither joined nor detached: in a forked child the handles belong to no thread.
            std::mem::forget(threads);
            return true;
        }
        self.shared.stop();
        join_others(threads).is_empty()
    }
}

impl Ledger {
    fn sampler(&self) -> Option<&Sampler> {
        let companion: &dyn Any = self.control().companion.get()?.as_ref();
        companion.downcast_ref()
    }

    /// Returns the state of the container as of the last sample: its limit and the origin of it, the kernel's charge, and the
    /// untracked part of it. `None` for a ledger that was built without
    /// [`LedgerBuilder::container`](crate::LedgerBuilder::container). Costs a lock and a copy.
    pub fn container(&self) -> Option<Status> {
        Some(self.sampler()?.shared.status())
    }

    /// Takes a sample now, and returns it: reads the limits anew, and sets the row and the root's max. Asks the reclaimers if
    /// the root is above its max, or if the cgroup's events show pressure. For a program without the threads
    /// ([`Settings::by_hand`](crate::container::Settings::by_hand)), or one that needs the state now.
    ///
    /// `None` in the same cases as [`container`](Self::container). Returns the last sample in a forked child, and while
    /// another thread takes a sample for too long. Costs some tenths of a millisecond; not async-signal-safe.
    pub fn update_container(&self) -> Option<Status> {
        let sampler = self.sampler()?;
        if sampler.process == std::process::id()
            && let Some(next) = sampler.shared.sample(&[], true)
        {
            let relief = if next.pressure { next.relief.max(1) } else { 0 };
            gated(&sampler.shared.status).pressure += u64::from(next.pressure);
            sampler.shared.relieve(&Wanted { above: next.above, relief });
        }
        Some(sampler.shared.status())
    }

    /// Calls `release`, which gives uncharged memory back to the kernel, such as memory that the allocator keeps, and
    /// subtracts that from the row [`UNTRACKED`] at once. Otherwise the row would keep it for a moment longer. Returns by how
    /// many units the row's charge fell; zero without a container, and in a forked child. This is for a reclaimer of the row
    /// ([`container`](crate::container) has an example), and for a program that releases much memory by itself.
    ///
    /// It relies on the kernel's numbers before and after. So memory that other threads freed and have not uncharged yet
    /// counts, too, until the next sample.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// let ledger = Ledger::builder().container().anonymous()?;
    /// let buffer = vec![1u8; 64 << 20]; // charged to nobody
    /// let with = ledger.update_container().expect("it was built with one").untracked;
    /// ledger.release_untracked(|| drop(buffer));
    /// let without = ledger.container().expect("as above").untracked;
    /// assert!(without < with);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn release_untracked(&self, release: impl FnOnce()) -> u64 {
        let sampler = self.sampler().filter(|sampler| sampler.process == std::process::id());
        let before = sampler.and_then(|sampler| {
            let shared = &sampler.shared;
            // A sample of now, so that the row falls only by the released memory.
            shared.sample(&[], false)?;
            shared.lock().map(|follower| (shared, follower.look(), follower.status.untracked))
        });
        release();
        let Some((shared, looked, untracked)) = before else { return 0 };
        shared.sample(&looked, false);
        untracked.saturating_sub(shared.status().untracked)
    }
}

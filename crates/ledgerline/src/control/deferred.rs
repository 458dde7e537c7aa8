//! Runs the program's code on behalf of allocations.
//!
//! Tokens, scores and callbacks are the program's code, which may lock and allocate. An allocation runs none of it:
//! it posts a job, and a thread of the library does it.
//!
//! ```text
//! post                                          the thread
//!   take a free slot, write the job, ready        key = count of the notices
//!   notify                                        each slot that is ready: take the job, free the slot, do it
//!                                                 sleep on the key
//! ```
//!
//! The thread starts with the first post, and ends with the process. A forked child starts its own, and has none of
//! its parent's jobs. If all slots are taken or the system cannot start a thread, the job is dropped and the poster
//! is notified.

use crate::sync::{AtomicU32, Ordering, thread};
use crate::wake::eventcount::Eventcount;
use crate::whose;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const READY: u32 = 2;

/// K1: `job` belongs to the thread that set `TAKEN`, until it sets another state. `READY` means that the job is
/// written.
struct Slot<T> {
    state: AtomicU32,
    job: UnsafeCell<Option<T>>,
}

// SAFETY: K1 (guarded by `each_job_is_done_once_and_whole`).
unsafe impl<T: Send> Sync for Slot<T> {}

/// A thread that does jobs of one kind.
pub(crate) struct Deferred<T: 'static> {
    name: &'static CStr,
    run: fn(T),
    slots: [Slot<T>; 16],
    eventcount: Eventcount,
    /// The process that has a thread; zero while one is being started.
    process: AtomicU32,
}

impl<T: Send> Deferred<T> {
    /// Creates a deferred runner with a thread of that name, which starts with the first job.
    pub(crate) const fn new(name: &'static CStr, run: fn(T)) -> Deferred<T> {
        let slots =
            [const { Slot { state: AtomicU32::new(FREE), job: UnsafeCell::new(None) } }; 16];
        Deferred { name, run, slots, eventcount: Eventcount::new(), process: AtomicU32::new(1) }
    }

    /// Posts a job to the thread. Returns `false` if it was dropped. The first post of a process starts the thread.
    pub(crate) fn post(&'static self, job: T) -> bool {
        whose::nobody(|| self.has_thread() && self.put(job))
    }

    /// Returns whether this process has the thread, and starts it if not.
    fn has_thread(&'static self) -> bool {
        let own = std::process::id();
        // Acquire, partner of the Release below: the slots are this process's.
        let found = self.process.load(Ordering::Acquire);
        if found == own {
            return true;
        }
        let take = self.process.compare_exchange(found, 0, Ordering::Acquire, Ordering::Relaxed);
        if found == 0 || take.is_err() {
            return false;
        }
        // In a child, a slot may belong to a lost thread.
        self.slots.iter().for_each(|slot| slot.state.store(FREE, Ordering::Relaxed));
        let started = thread::start(self.name, || self.work()).is_ok();
        self.process.store(if started { own } else { found }, Ordering::Release);
        started
    }

    fn put(&self, job: T) -> bool {
        let take = |slot: &&Slot<T>| {
            // Acquire, partner of the Release in `take`: the previous job was read.
            slot.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(slot) = self.slots.iter().find(take) else { return false };
        // SAFETY: K1: this thread set `TAKEN`.
        unsafe { *slot.job.get() = Some(job) };
        // Release, partner of the Acquire in `take`: the job is complete.
        slot.state.store(READY, Ordering::Release);
        self.eventcount.notify();
        true
    }

    /// Takes the jobs that were posted.
    fn take(&self, mut each: impl FnMut(T)) {
        for slot in &self.slots {
            // Acquire, partner of the Release in `put`.
            let taken =
                slot.state.compare_exchange(READY, TAKEN, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                // SAFETY: K1: this thread set `TAKEN`.
                let job = unsafe { (*slot.job.get()).take() };
                // Release, partner of the Acquire in `put`.
                slot.state.store(FREE, Ordering::Release);
                job.into_iter().for_each(&mut each);
            }
        }
    }

    fn work(&self) {
        loop {
            let key = self.eventcount.key();
            self.take(|job| {
                // A callback that panics affects nothing else.
                let _ = catch_unwind(AssertUnwindSafe(|| (self.run)(job)));
            });
            self.eventcount.wait(key, Instant::now() + Duration::from_secs(3600));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn each_job_is_done_once_and_whole() {
        const THREADS: u64 = 3;
        const EACH: u64 = 2000;
        let deferred = Deferred::<[u64; 6]>::new(c"jobs", |_| {});
        let is_over = AtomicBool::new(false);
        let look = |seen: &mut BTreeMap<u64, u32>| {
            deferred.take(|job| {
                assert_eq!(job, [job[0]; 6]);
                *seen.entry(job[0]).or_default() += 1;
            });
        };
        let mut seen = BTreeMap::new();
        let posted: Vec<u64> = std::thread::scope(|threads| {
            let taker = threads.spawn(|| {
                let mut seen = BTreeMap::new();
                while !is_over.load(Ordering::Relaxed) {
                    look(&mut seen);
                    std::thread::yield_now();
                }
                seen
            });
            let posters: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let deferred = &deferred;
                    threads.spawn(move || {
                        let numbers = thread * EACH..(thread + 1) * EACH;
                        numbers.filter(|&number| deferred.put([number; 6])).collect::<Vec<_>>()
                    })
                })
                .collect();
            let posted = posters.into_iter().flat_map(|poster| poster.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            seen = taker.join().unwrap();
            posted
        });
        look(&mut seen);
        assert!(posted.len() >= 16 && seen.values().all(|&times| times == 1));
        assert_eq!(Vec::from_iter(seen.into_keys()), posted);
        let fits = (0..20).filter(|&number| deferred.put([number; 6])).count();
        assert_eq!(fits, 16, "the others are dropped");
    }
}

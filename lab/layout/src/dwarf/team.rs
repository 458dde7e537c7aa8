//! Threads that take the units of a file, and what they share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What the threads have in common: which unit is taken next, and how far they are.
pub(super) struct Team<P> {
    taken: AtomicUsize,
    progress: Mutex<P>,
    moved: Condvar,
}

impl<P: Send> Team<P> {
    pub(super) fn new(progress: P) -> Team<P> {
        let (progress, moved) = (Mutex::new(progress), Condvar::new());
        Team { taken: AtomicUsize::new(0), progress, moved }
    }

    /// Lets so many threads take units, each one unit after the other, until there is none or `unit` says to stop. Each
    /// thread has buffers, which it uses again for each unit.
    pub(super) fn work<B: Default>(
        &self,
        threads: usize,
        units: usize,
        unit: impl Fn(usize, &mut B) -> bool + Sync,
    ) {
        let work = || {
            let mut buffers = B::default();
            loop {
                // Relaxed suffices: each number is taken once, and what the threads share is behind the lock.
                let index = self.taken.fetch_add(1, Ordering::Relaxed);
                if index >= units || !unit(index, &mut buffers) {
                    return;
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, P> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for others for as long as a condition holds.
    pub(super) fn wait_while<'t>(
        &'t self,
        progress: MutexGuard<'t, P>,
        condition: impl FnMut(&mut P) -> bool,
    ) -> MutexGuard<'t, P> {
        self.moved.wait_while(progress, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those that wait that somebody is further.
    pub(super) fn tell(&self) {
        self.moved.notify_all();
    }

    /// How far they came.
    pub(super) fn into_progress(self) -> P {
        self.progress.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Threads that take the units of a file, and their shared state.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The state that the threads share: the next unit, and the progress.
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

    /// Runs this many threads, each of which takes one unit after the other, until there is none or `unit` returns
    /// false. Each thread has buffers, which it reuses for each unit.
    pub(super) fn work<B: Default>(
        &self,
        threads: usize,
        units: usize,
        unit: impl Fn(usize, &mut B) -> bool + Sync,
    ) {
        let work = || {
            let mut buffers = B::default();
            loop {
                // Relaxed suffices: each number is taken once, and the state that the threads share is behind the
                // lock.
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

    /// Waits for other threads while a condition holds.
    pub(super) fn wait_while<'t>(
        &'t self,
        progress: MutexGuard<'t, P>,
        condition: impl FnMut(&mut P) -> bool,
    ) -> MutexGuard<'t, P> {
        self.moved.wait_while(progress, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the waiting threads that the progress changed.
    pub(super) fn tell(&self) {
        self.moved.notify_all();
    }

    /// Returns the progress.
    pub(super) fn into_progress(self) -> P {
        self.progress.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

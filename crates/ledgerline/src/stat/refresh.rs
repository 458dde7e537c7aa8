//! Folds at intervals, in a thread that the user starts.

use super::counters::Counters;
use super::items::Item;
use super::width::Width;
use crate::sync::thread::{self, Thread};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A thread that folds a table until this is dropped: see [`Counters::refresh`].
#[derive(Debug)]
#[must_use = "the thread ends when its handle is dropped"]
pub struct RefreshHandle {
    stop: Arc<Stop>,
    thread: Option<Thread>,
}

#[derive(Debug, Default)]
struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Sleeps. Says whether the thread was asked to stop.
    fn wait(&self, time: Duration) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(asked, time, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for RefreshHandle {
    fn drop(&mut self) {
        *self.stop.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl<I: Item, W: Width> Counters<I, W> {
    /// Starts a thread that [folds](Self::fold) at this interval, until the handle is dropped (which waits
    /// for a fold that is under way). So totals lag behind by that time at most, however few updates there
    /// are. A forked child has no such thread.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when the time is zero. Another error when no thread can be started.
    pub fn refresh(self: &Arc<Self>, every: Duration) -> io::Result<RefreshHandle> {
        if every.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the time between two folds is zero",
            ));
        }
        let stop = Arc::new(Stop::default());
        let (counters, told) = (Arc::clone(self), Arc::clone(&stop));
        let thread = thread::start(c"ledgerline-fold", move || {
            while !told.wait(every) {
                counters.fold();
            }
        })?;
        Ok(RefreshHandle { stop, thread: Some(thread) })
    }
}

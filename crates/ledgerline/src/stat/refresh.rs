//! Folds at intervals, in a thread that the user starts.

use super::counters::Counters;
use super::items::Item;
use super::width::Width;
use crate::sync::thread::{self, Thread};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A thread that folds a table until this is dropped: see [`Counters::refresh`].
#[derive(Debug)]
#[must_use = "the thread ends when its handle is dropped"]
pub struct RefreshHandle {
    /// The thread ends once this is dropped.
    running: Option<Sender<()>>,
    thread: Option<Thread>,
}

impl Drop for RefreshHandle {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl<I: Item, W: Width> Counters<I, W> {
    /// Starts a thread that [folds](Self::fold) at this interval until the handle is dropped. Dropping the
    /// handle waits for a fold that is under way. So totals lag behind by at most this time, however few
    /// updates there are. A forked child has no such thread.
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
        let (running, ended) = channel();
        let counters = Arc::clone(self);
        let thread = thread::start(c"ledgerline-fold", move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                counters.fold();
            }
        })?;
        Ok(RefreshHandle { running: Some(running), thread: Some(thread) })
    }
}

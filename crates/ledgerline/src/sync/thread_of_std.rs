//! The threads that the library starts by itself, where nothing forks and no signals come: the standard library's.

use std::ffi::CStr;
use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread, which goes on alone when this is dropped.
#[derive(Debug)]
pub(crate) struct Thread(JoinHandle<()>);

/// Starts a thread. What panics in it ends it, and nothing else.
///
/// # Errors
/// The system's, where it gives no thread.
pub(crate) fn start(
    name: &'static CStr,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    Builder::new().name(name.to_string_lossy().into_owned()).spawn(run).map(Thread)
}

impl Thread {
    /// Whether it is the calling thread.
    pub(crate) fn is_this(&self) -> bool {
        self.0.thread().id() == std::thread::current().id()
    }

    /// Waits for its end. It must not be the calling thread.
    pub(crate) fn join(self) {
        // (Who panicked has said so.)
        let _ = self.0.join();
    }
}

//! The threads that the library starts by itself, on systems without fork and signals: threads of the standard
//! library.

use std::ffi::CStr;
use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread. Dropping this detaches it.
#[derive(Debug)]
pub(crate) struct Thread(JoinHandle<()>);

/// Starts a thread. A panic in it ends that thread and nothing else.
///
/// # Errors
/// The system's, if it cannot make a thread.
pub(crate) fn start(
    name: &'static CStr,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    Builder::new().name(name.to_string_lossy().into_owned()).spawn(run).map(Thread)
}

impl Thread {
    /// Returns whether it is the calling thread.
    pub(crate) fn is_this(&self) -> bool {
        self.0.thread().id() == std::thread::current().id()
    }

    /// Waits for its end. It must not be the calling thread.
    pub(crate) fn join(self) {
        // The panic hook has already reported a panic.
        let _ = self.0.join();
    }
}

//! The executing process's statement that a program starts under no filter.
//!
//! The kernel reports filters in `/proc/self/status`, which takes a tenth of a small program's life. The executing
//! process mostly knows: this library runs in front of all functions that install filters (filter.rs). So it vouches,
//! by a suffix of the order's number of filters:
//!
//! ```text
//! exec, spawn (exec.rs):    no filter was noted here or in a child with this memory, nor does the kernel know one
//!                           (if the run has none), and the library will be in the program: "LEDGERLINE_FILTERS=N!"
//! the program starts:       marked: take the mark away; it has the run's filters and no more
//!                           otherwise: ask the kernel
//! ```
//!
//! A mark is valid once, for the program that it was set for: it is removed before that program's first instruction,
//! and a program without the library gets none. So a mark never covers programs that another process executes.

use ledgerline_protocol::{FILTERS, VOUCHED};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a child with this process's memory put itself under a filter. Programs that the child executes are under it,
/// too, and this process cannot tell which of the two executes.
static DOUBTED: AtomicBool = AtomicBool::new(false);

/// Ends vouching in this process and in those that it forks.
pub(crate) fn doubt() {
    // Relaxed: a later exec is the child's own, or its parent's, which waited for it.
    DOUBTED.store(true, Ordering::Relaxed);
}

/// Returns whether a process under no noted filter vouches for the programs that it executes, with this number of
/// filters of the run. If the process installed a filter past this library, the query is a call that its filter may
/// forbid, like all its calls; if the run has filters, such a filter is not noticed.
pub(crate) fn may(of_run: &[u8]) -> bool {
    // SAFETY: asks for a number.
    let has_filters = || unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 };
    let is_known = || of_run == b"0" && has_filters();
    !DOUBTED.load(Ordering::Relaxed) && !is_known()
}

/// Removes the mark, if there is one, and returns whether it did. Called while the program has one thread.
pub(crate) fn take() -> bool {
    // SAFETY: the name ends in zero, and so does the result: a string of this process's own environment, which the
    // kernel put on its stack and no thread reads now.
    unsafe {
        let value = libc::getenv(FILTERS.as_ptr()).cast::<u8>();
        if value.is_null() {
            return false;
        }
        let Some(last) = libc::strlen(value.cast()).checked_sub(1) else { return false };
        let is_marked = value.add(last).read() == VOUCHED;
        if is_marked {
            value.add(last).write(0);
        }
        is_marked
    }
}

//! Whether a program starts under a filter, as whoever executes it says.
//!
//! The kernel says it in `/proc/self/status`, which takes a tenth of a small program's life. Whoever executes the program
//! mostly knows: this library stands there before all that installs filters (filter.rs). So it vouches, by a mark behind
//! the order's number of filters:
//!
//! ```text
//! exec, spawn (exec.rs):    no filter was noted here or in a child with this memory, nor does the kernel know one
//!                           (if the run has none), and the library will be in the program: "LEDGERLINE_FILTERS=N!"
//! the program starts:       marked: take the mark away; it has the run's filters and no more
//!                           otherwise: ask the kernel
//! ```
//!
//! A mark is believed once, by the program that it was set for: it is gone before that program's first instruction, and
//! a program in which the library will not be gets none. So none says anything of what somebody else executes.

use ledgerline_protocol::{FILTERS, VOUCHED};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a child with this process's memory put itself under a filter: what that executes is under it, too, and nothing
/// here tells which of both executes.
static DOUBTED: AtomicBool = AtomicBool::new(false);

/// Nobody vouches any more in this process, nor in those that it forks.
pub(crate) fn doubt() {
    // Relaxed: who executes later is the child itself, or its parent, which waited for it.
    DOUBTED.store(true, Ordering::Relaxed);
}

/// Whether a process, under no filter that was noted, vouches for what it executes with this number of filters of the run.
/// (A process that installed one where this library does not stand is found out by a call that its filter may forbid, like
/// all that it makes; where the run has filters, it is not.)
pub(crate) fn may(of_run: &[u8]) -> bool {
    // SAFETY: asks for a number.
    let has_filters = || unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 };
    let is_known = || of_run == b"0" && has_filters();
    !DOUBTED.load(Ordering::Relaxed) && !is_known()
}

/// Takes the mark away, if there is one, and says so. While the program has one thread.
pub(crate) fn take() -> bool {
    // SAFETY: the name ends in zero, and so does what is returned: a string of this process's own environment, which the
    // kernel put on its stack and nobody reads now.
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

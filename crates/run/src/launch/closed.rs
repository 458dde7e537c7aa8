//! The standard descriptors that were closed when this process began.
//!
//! Before `main`, Rust's standard library opens `/dev/null` in the place of each, so that no file of this process
//! gets such a number. A program whose output is closed is to fail at its writes all the same, as it would plain. So
//! this notes which were closed before the standard library looks, and closes them again in the program.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

extern "C" fn note() {
    for (descriptor, closed) in (0..).zip(&CLOSED) {
        // SAFETY: asks about a number; no descriptor is touched.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        closed.store(flags < 0, Ordering::Relaxed);
    }
}

// SAFETY: the section holds pointers to functions that the loader calls before `main`; this one needs nothing of the
// standard library. (Guarded by a run with closed descriptors in crates/cli/tests/main/run_as_plain.rs.)
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// Lets a program begin with the descriptors closed that were closed here.
pub(crate) fn leave_to(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe functions may run, and close is one. The standard
    // descriptors are in their places by then, and nobody else has one of these numbers.
    unsafe {
        command.pre_exec(|| {
            for (descriptor, closed) in (0..).zip(&CLOSED) {
                if closed.load(Ordering::Relaxed) {
                    libc::close(descriptor);
                }
            }
            Ok(())
        });
    }
}

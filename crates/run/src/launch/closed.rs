//! The standard descriptors that were closed when this process began.
//!
//! Before `main`, Rust's standard library opens `/dev/null` in place of each, so that no file of this process gets such
//! a number. A program whose output is closed must still fail at its writes, as it would without this command. So this
//! module notes the closed ones before the standard library acts, and closes them again in the program.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

extern "C" fn note() {
    for (descriptor, closed) in (0..).zip(&CLOSED) {
        // SAFETY: a query for a number; no descriptor is touched.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        closed.store(flags < 0, Ordering::Relaxed);
    }
}

// SAFETY: the section holds pointers to functions that the loader calls before `main`; this one needs nothing of the
// standard library. Guarded by a run with closed descriptors in crates/cli/tests/main/run_as_plain.rs.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// Closes the descriptors in the program that were closed in this process.
pub(crate) fn leave_to(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe functions may run, and close is one. The standard
    // descriptors are in their places by then, and nothing else uses one of these numbers.
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

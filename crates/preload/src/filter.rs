//! Seccomp: detects whether a filter may forbid the system calls of this library.
//!
//! A process that puts itself under a filter, or in strict mode, allows only the calls that it needs and may be killed
//! for any other. A query for filters is itself a call that a filter may forbid. So the answer is kept beforehand, in
//! memory that a fork does not wipe:
//!
//! | a filter that                      | is noticed                                                          |
//! |------------------------------------|---------------------------------------------------------------------|
//! | the program installs               | in `prctl` and `syscall`, which this library replaces (doors.rs)    |
//! | was there when the program started | in `/proc/self/status`, by calls that the loader made before, unless the executing process vouches (vouch.rs) |
//! | the run itself is under            | not at all: it allows the run's calls                               |
//!
//! From then on the process makes no system call for its account:
//!
//! | subject                           | under a filter                                                           |
//! |-----------------------------------|--------------------------------------------------------------------------|
//! | blocks and mappings               | are charged and returned as usual                                        |
//! | a thread's first block            | the thread has no name: it is charged to the process's own row           |
//! | a forked child                    | has a row: the C library knows its id; without one (a bare `clone`) none  |
//! | a program that it executes        | is not accounted: a ledger that is not open cannot be opened              |
//! | a span's second owner             | its byte of shadow was made before the filter, or the first is charged    |
//! | a refusal                         | dead processes are not settled, other CPUs' stock stays; it is counted without a time |
//! | `--on-max kill`                   | an illegal instruction ends the process                                  |
//! | messages to the user              | none                                                                     |
//!
//! A filter of one thread counts for the whole process: this library cannot tell which threads inherit it. If a filter
//! for all threads is installed while another thread is in the middle of such a call, that thread can still make the
//! call.

use ledgerline::Ledger;
use ledgerline_protocol::{Start, at_start, vouched};
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of possible filters besides the run's own. A forked child inherits the filters and the number.
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Returns whether a system call of this library's own might kill the process.
///
/// Relaxed, as everywhere here: a thread under a filter either installed it, or was started by one that was under it.
/// The module's documentation covers the others.
pub(crate) fn is_on() -> bool {
    FILTERS.load(Ordering::Relaxed) != 0
}

/// Counts a filter that is about to be installed, or was found.
pub(crate) fn add() {
    FILTERS.fetch_add(1, Ordering::Relaxed);
    Ledger::forbid_system_calls(true);
}

/// Uncounts a filter that was not installed.
pub(crate) fn take_back() {
    if FILTERS.fetch_sub(1, Ordering::Relaxed) == 1 {
        Ledger::forbid_system_calls(false);
    }
}

/// Notes whether this program was started under more filters than the run is. It was not if the executing process
/// vouches for that. Called once in a program. Returns the whole state that was read.
pub(crate) fn look(of_run: Option<u32>, is_vouched: bool) -> Start {
    let start = if is_vouched { vouched(of_run) } else { at_start() };
    if start.filters.is_some_and(|own| own > of_run.unwrap_or(0)) {
        add();
    }
    start
}

/// Waits a little for another thread's short step.
pub(crate) fn wait() {
    if is_on() {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Returns the time of `CLOCK_MONOTONIC`; zero under a filter. In strict mode even the processor refuses to read the
/// clock.
pub(crate) fn milliseconds() -> i64 {
    if is_on() {
        return 0;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the record is live and writable; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// Ends the process without a system call. A handler that returns is called again.
pub(crate) fn end() -> ! {
    loop {
        // SAFETY: an invalid instruction. The kernel answers it with SIGILL, or on aarch64 with SIGTRAP or SIGILL,
        // whether that is blocked or not.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("ud2");
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("udf #0");
        }
    }
}

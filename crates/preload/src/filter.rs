//! Seccomp: whether a filter may forbid the system calls of this library.
//!
//! A process that puts itself under a filter (or in strict mode) allows what it itself needs, and may be killed for
//! anything else. Whether there is a filter cannot be asked without a call that it may forbid. So it is known
//! beforehand, in memory that a fork does not wipe:
//!
//! | a filter that                      | is noticed                                                          |
//! |------------------------------------|---------------------------------------------------------------------|
//! | the program installs               | in `prctl` and `syscall`, which this library stands before (doors.rs) |
//! | was there when the program started | in `/proc/self/status`, with calls that the loader made before, unless whoever executed it vouches (vouch.rs) |
//! | the run itself is under            | not at all: it allows what the run does                              |
//!
//! From then on the process makes no system call for its account:
//!
//! | what                              | under a filter                                                           |
//! |-----------------------------------|--------------------------------------------------------------------------|
//! | blocks and mappings               | are charged and returned as ever                                         |
//! | a thread's first block            | the thread has no name: it is charged to the process's own row           |
//! | a forked child                    | has a row: the C library knows its id; without one (a bare `clone`) none  |
//! | a program that it executes        | is not accounted: a ledger that is not open cannot be opened              |
//! | a span's second owner             | its byte of shadow was made before the filter, or the first is charged    |
//! | a refusal                         | nobody dead is settled, other CPUs' stock stays; it is counted without a time |
//! | `--on-max kill`                   | an illegal instruction ends the process                                  |
//! | words to the user                 | none                                                                     |
//!
//! A filter of one thread counts for the whole process: who inherits it cannot be told. Another thread that is in the
//! middle of such a call at the very moment when a filter for all threads is installed can still make it.

use ledgerline::Ledger;
use ledgerline_protocol::{Start, at_start, vouched};
use std::sync::atomic::{AtomicU32, Ordering};

/// How many filters there may be, besides the run's own. A forked child inherits them, and the number.
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Whether a system call of this library's own might kill the process.
///
/// Relaxed, as everywhere here: a thread under a filter either installed it, or was started by one that was under it;
/// of others the documentation above speaks.
pub(crate) fn is_on() -> bool {
    FILTERS.load(Ordering::Relaxed) != 0
}

/// Another filter is about to be installed, or was found.
pub(crate) fn add() {
    FILTERS.fetch_add(1, Ordering::Relaxed);
    Ledger::forbid_system_calls(true);
}

/// It was not installed.
pub(crate) fn take_back() {
    if FILTERS.fetch_sub(1, Ordering::Relaxed) == 1 {
        Ledger::forbid_system_calls(false);
    }
}

/// Notes whether this program was started under more filters than the run is, which nobody did if that is vouched for.
/// Once in a program. Returns what else was read with that.
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

/// The time of `CLOCK_MONOTONIC`; zero under a filter (in strict mode the processor itself refuses to tell it).
pub(crate) fn milliseconds() -> i64 {
    if is_on() {
        return 0;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the record is live and writable; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// Ends the process without a system call. (A handler that returns is called again.)
pub(crate) fn end() -> ! {
    loop {
        // SAFETY: an instruction that is none, which the kernel answers with SIGILL (on aarch64 with SIGTRAP or
        // SIGILL), whether that is blocked or not.
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

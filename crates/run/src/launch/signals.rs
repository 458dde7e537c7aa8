//! Signals for the program, held back from this process.
//!
//! They are blocked and waited for, not caught. So the program inherits ignored signals, as under `nohup`, as ignored.
//! Neither the standard library nor rustix has these calls, so this file makes them through libc.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;
use std::time::Duration;

use super::failure::Failure;

/// Signals that would end or stop this process before its output is complete, or that are useful to the program alone.
/// Signals for faults of this process itself stay its own.
const PASSED_ON: [libc::c_int; 16] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGWINCH,
    libc::SIGURG,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// Returns all that are held back: those, the real-time signals, and SIGCHLD.
fn all_held() -> impl Iterator<Item = libc::c_int> {
    PASSED_ON.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).chain([libc::SIGCHLD])
}

/// A guard that holds the signals back until it is dropped.
pub struct Signals {
    held: libc::sigset_t,
    before: libc::sigset_t,
}

/// A signal that arrived.
pub struct Arrived {
    /// The signal's number.
    pub number: libc::c_int,
    /// Whether the kernel itself sent it, like a terminal's Ctrl-C, to the whole foreground group.
    pub by_kernel: bool,
}

impl Signals {
    /// Holds the signals back. Called before anything that may start a thread: a thread that does not hold a signal
    /// back receives it for all.
    pub fn hold() -> Result<Signals, Failure> {
        // SAFETY: a sigset_t is an array of integers, for which zeros are valid.
        let (mut held, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { std::mem::zeroed() };
        // SAFETY: both sets are live and writable; the signal numbers are constants of the platform, so sigaddset
        // cannot fail.
        let failed = unsafe {
            libc::sigemptyset(&mut held);
            for signal in all_held() {
                libc::sigaddset(&mut held, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &held, &mut before) != 0
        };
        if failed {
            let error = io::Error::last_os_error();
            return Err(Failure::internal(format!("signals cannot be held back: {error}")));
        }
        Ok(Signals { held, before })
    }

    /// Returns the next signal, or `None` after `patience`.
    pub fn next(&self, patience: Duration) -> Option<Arrived> {
        let timeout = libc::timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: a siginfo_t is integers and a union of such, for which zeros are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: all three are live for the whole call, and `info` is writable.
        let signal = unsafe { libc::sigtimedwait(&self.held, &mut info, &timeout) };
        let by_kernel = info.si_code == libc::SI_KERNEL;
        // An interruption counts as no signal: the caller asks again.
        (signal > 0).then_some(Arrived { number: signal, by_kernel })
    }

    /// Restores the signals in a program to the state in which this process was started. Also ensures that children
    /// wait to be collected: if SIGCHLD was ignored, the kernel would discard their statuses.
    pub fn leave_to(&self, command: &mut Command) -> io::Result<()> {
        let mask = self.before;
        // SAFETY: a zeroed sigaction is the default action with an empty mask.
        let (default, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { std::mem::zeroed() };
        // SAFETY: both structures are live; the default action runs no code of this process.
        if unsafe { libc::sigaction(libc::SIGCHLD, &default, &mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: between fork and exec only async-signal-safe functions may run; sigaction and sigprocmask are,
        // and the closure owns plain copies of what it passes to them.
        unsafe {
            command.pre_exec(move || {
                if libc::sigaction(libc::SIGCHLD, &before, null_mut()) != 0
                    || libc::sigprocmask(libc::SIG_SETMASK, &mask, null_mut()) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            })
        };
        Ok(())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Signals that arrived too late for the program are dropped with it.
        while self.next(Duration::ZERO).is_some() {}
        // SAFETY: `before` is a set that sigprocmask itself filled in.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}

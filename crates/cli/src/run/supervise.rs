//! The program's life: start it, pass signals on, collect what dies.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Signals that would end us before the account is printed. They are the
/// program's to answer.
const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exited(u8),
    Killed(i32),
}

impl Status {
    fn from_wait(status: libc::c_int) -> Status {
        if libc::WIFSIGNALED(status) {
            Status::Killed(libc::WTERMSIG(status))
        } else {
            // Only the low eight bits of an exit code ever reach a parent.
            Status::Exited(libc::WEXITSTATUS(status) as u8)
        }
    }

    /// The exit code that tells a shell the same.
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(code) => code,
            Status::Killed(signal) => {
                u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
            }
        }
    }

    /// The name of the signal that killed the program.
    pub fn signal(self) -> Option<String> {
        let Status::Killed(signal) = self else { return None };
        let name = match signal {
            libc::SIGHUP => "SIGHUP",
            libc::SIGINT => "SIGINT",
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGILL => "SIGILL",
            libc::SIGTRAP => "SIGTRAP",
            libc::SIGABRT => "SIGABRT",
            libc::SIGBUS => "SIGBUS",
            libc::SIGFPE => "SIGFPE",
            libc::SIGKILL => "SIGKILL",
            libc::SIGUSR1 => "SIGUSR1",
            libc::SIGSEGV => "SIGSEGV",
            libc::SIGUSR2 => "SIGUSR2",
            libc::SIGPIPE => "SIGPIPE",
            libc::SIGALRM => "SIGALRM",
            libc::SIGTERM => "SIGTERM",
            libc::SIGXCPU => "SIGXCPU",
            libc::SIGXFSZ => "SIGXFSZ",
            libc::SIGSYS => "SIGSYS",
            other => return Some(format!("signal {other}")),
        };
        Some(name.to_owned())
    }
}

/// The signals that are the program's to answer, held back from this process
/// until this value is dropped.
pub struct Signals {
    held: libc::sigset_t,
    before: libc::sigset_t,
}

/// A program that runs.
pub struct Session {
    main: u32,
    started: Instant,
    signals: Signals,
}

/// A program that has ended. Signals are still held back, so that the account
/// is not lost to an impatient Ctrl-C.
pub struct Ended {
    pub status: Status,
    pub wall: Duration,
    signals: Signals,
}

impl Signals {
    /// Holds the signals back. To be called before anything that may start a
    /// thread: a thread that does not hold a signal back receives it for all.
    pub fn hold() -> io::Result<Signals> {
        // SAFETY: a sigset_t is an array of integers, for which zeros are valid.
        let (mut held, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { std::mem::zeroed() };
        // SAFETY: both sets are live and writable; the signal numbers are
        // constants of the platform, so sigaddset cannot fail.
        let failed = unsafe {
            libc::sigemptyset(&mut held);
            for signal in PASSED_ON {
                libc::sigaddset(&mut held, signal);
            }
            libc::sigaddset(&mut held, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &held, &mut before) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(Signals { held, before }) }
    }

    /// The next signal, or nothing after `patience`.
    fn next(&self, patience: Duration) -> Option<libc::siginfo_t> {
        let timeout = libc::timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: a siginfo_t is integers and a union of such, for which zeros
        // are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: all three are live for the whole call, and `info` is writable.
        let signal = unsafe { libc::sigtimedwait(&self.held, &mut info, &timeout) };
        // An interruption counts as nothing: the caller asks again anyway.
        (signal > 0).then_some(info)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Those that arrived too late for the program are dropped with it.
        while self.next(Duration::ZERO).is_some() {}
        // SAFETY: `before` is a set that sigprocmask itself filled in.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

impl Session {
    /// Starts the program, with this process as the one that inherits its
    /// orphans.
    pub fn start(command: &mut Command, signals: Signals) -> io::Result<Session> {
        let action = default_sigchld()?;
        let before = signals.before;
        // SAFETY: this option takes no pointer; the remaining arguments are
        // unused by it. Where it fails, orphans go to init and are merely
        // collected there.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        // SAFETY: between fork and exec only async-signal-safe functions may
        // run; sigaction and sigprocmask are, and the closure owns plain
        // copies of what it passes to them.
        unsafe {
            command.pre_exec(move || {
                // The program gets the signals as whoever started us left them.
                if libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut()) != 0
                    || libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            })
        };
        let started = Instant::now();
        // The handle is dropped on purpose: the status is collected together
        // with the orphans' in `watch`.
        let main = command.spawn()?.id();
        Ok(Session { main, started, signals })
    }

    /// The process id of the program.
    pub fn main(&self) -> u32 {
        self.main
    }

    /// Waits for the end of the program. `tick` runs once in `period`
    /// meanwhile, and a last time right after the end.
    pub fn watch(self, period: Duration, tick: impl Fn()) -> io::Result<Ended> {
        let mut last = Instant::now();
        loop {
            if let Some(status) = self.collect()? {
                let wall = self.started.elapsed();
                tick();
                return Ok(Ended { status, wall, signals: self.signals });
            }
            if last.elapsed() >= period {
                tick();
                last = Instant::now();
            }
            if let Some(signal) = self.signals.next(period) {
                self.pass_on(&signal);
            }
        }
    }

    /// Collects every child that has ended; the program's status, if it is
    /// among them.
    fn collect(&self) -> io::Result<Option<Status>> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a live, writable int for the whole call.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            match pid {
                0 => return Ok(None),
                -1 => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                pid if pid.unsigned_abs() == self.main => {
                    return Ok(Some(Status::from_wait(status)));
                }
                _ => {}
            }
        }
    }

    fn pass_on(&self, signal: &libc::siginfo_t) {
        // What the terminal sends goes to the whole foreground group, and so
        // has reached the program already; a second Ctrl-C would often mean
        // something else to it. What somebody sent to us alone is passed on.
        if signal.si_signo == libc::SIGCHLD
            || (signal.si_code == libc::SI_KERNEL && self.same_group())
        {
            return;
        }
        // SAFETY: kill takes no pointers. The program has not been waited for
        // yet, so its process id is still its own.
        unsafe { libc::kill(self.main.cast_signed(), signal.si_signo) };
    }

    fn same_group(&self) -> bool {
        // SAFETY: getpgid takes no pointers; a failure compares as different.
        unsafe { libc::getpgid(self.main.cast_signed()) == libc::getpgrp() }
    }
}

impl Ended {
    /// Lets signals act on this process again.
    pub fn release(self) {
        drop(self.signals);
    }
}

/// Whether a process runs, as opposed to having ended and waiting to be
/// collected.
pub fn is_alive(pid: u32) -> bool {
    let Ok(number) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: kill takes no pointers; signal 0 sends nothing.
    let reachable = unsafe { libc::kill(number, 0) } == 0
        || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    if !reachable {
        return false;
    }
    // The state follows the name, which is in brackets and may hold any byte.
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(line) => {
            let state =
                line.iter().rposition(|&byte| byte == b')').and_then(|end| line.get(end + 2));
            !matches!(state, Some(b'Z' | b'X' | b'x'))
        }
        // It ended between the two questions.
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(_) => true,
    }
}

/// Makes sure that children wait to be collected: where SIGCHLD was ignored,
/// the kernel would throw their statuses away. The action that was set before.
fn default_sigchld() -> io::Result<libc::sigaction> {
    // SAFETY: a zeroed sigaction is the default action with an empty mask.
    let (default, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    // SAFETY: both structures are live; the default action runs no code of ours.
    let result = unsafe { libc::sigaction(libc::SIGCHLD, &default, &mut before) };
    if result == 0 { Ok(before) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        assert_eq!(Status::Exited(7).code(), 7);
        assert_eq!(Status::Killed(libc::SIGKILL).code(), 137);
        assert_eq!(Status::Killed(libc::SIGSEGV).signal().as_deref(), Some("SIGSEGV"));
        assert_eq!(Status::Killed(40).signal().as_deref(), Some("signal 40"));
        assert_eq!(Status::Exited(0).signal(), None);
    }

    #[test]
    fn a_zombie_is_not_alive() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(u32::MAX));
        let mut child = Command::new("true").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        // Nobody has waited for it, so it exists as a zombie.
        while is_alive(child.id()) {
            assert!(Instant::now() < deadline, "`true` does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
    }
}

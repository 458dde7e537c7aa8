//! The program's life: starts it, passes signals on, collects ended processes.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgid, getpgrp, getpid, kill_process,
    set_child_subreaper, wait,
};

use super::failure::Failure;
use super::signals::{Arrived, Signals};
use crate::account::Status;
use ledgerline_protocol::resident_ever;

/// A running program.
pub struct Session {
    main: Pid,
    started: Instant,
    signals: Signals,
}

/// A program that has ended. Signals are still held back, so that its account is not lost to an impatient Ctrl-C.
pub struct Ended {
    /// Its exit status.
    pub status: Status,
    /// From its start to its end.
    pub wall: Duration,
    /// The largest resident size of one process, among those that were waited for.
    pub max_resident: u64,
    signals: Signals,
}

impl Session {
    /// Starts the program, with this process as the one that inherits its orphans.
    pub(crate) fn start(command: &mut Command, signals: Signals) -> io::Result<Session> {
        signals.leave_to(command)?;
        // If this fails, orphans go to init and are collected there.
        let _ = set_child_subreaper(Some(getpid()));
        let started = Instant::now();
        // The handle is dropped on purpose: `watch` collects the status together with the orphans'.
        let main = Pid::from_child(&command.spawn()?);
        Ok(Session { main, started, signals })
    }

    /// Returns the process id of the program.
    pub fn main(&self) -> u32 {
        self.main.as_raw_nonzero().get().cast_unsigned()
    }

    /// Waits for the end of the program. `tick` runs at the start, whenever the time that it returned has passed, and a
    /// last time right after the end.
    pub fn watch(self, mut tick: impl FnMut() -> Duration) -> Result<Ended, Failure> {
        let mut period = tick();
        let mut last = Instant::now();
        loop {
            let collected = self.collect().map_err(|error| {
                Failure::internal(format!("waiting for the program failed: {error}"))
            })?;
            if let Some(status) = collected {
                let wall = self.started.elapsed();
                tick();
                let max_resident = resident_ever(libc::RUSAGE_CHILDREN);
                return Ok(Ended { status, wall, max_resident, signals: self.signals });
            }
            if last.elapsed() >= period {
                period = tick();
                last = Instant::now();
            }
            if let Some(signal) = self.signals.next(period) {
                self.pass_on(&signal);
            }
        }
    }

    /// Collects every child that has ended; returns the program's status, if it is among them.
    fn collect(&self) -> io::Result<Option<Status>> {
        while let Some((child, status)) = rustix::io::retry_on_intr(|| wait(WaitOptions::NOHANG))? {
            if child == self.main {
                return Ok(Some(status_of(status)));
            }
        }
        Ok(None)
    }

    fn pass_on(&self, signal: &Arrived) {
        // The terminal's signals go to the whole foreground group, and so have reached the program already; a second
        // Ctrl-C would often have another meaning for it. A signal to this process alone is passed on. The program has
        // not been waited for yet, so its process id is still its own.
        let same_group = || getpgid(Some(self.main)) == Ok(getpgrp());
        if signal.number == libc::SIGCHLD {
            return;
        }
        if !(signal.by_kernel && same_group()) {
            // By libc, since rustix names no real-time signals. An error means that the program has ended, and the
            // signal has no target.
            // SAFETY: kill takes no pointers.
            unsafe { libc::kill(self.main.as_raw_nonzero().get(), signal.number) };
        }
        if signal.number == libc::SIGTSTP {
            // A shell waits for this process to stop, too. Its SIGCONT resumes both.
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }
}

/// Returns whether no process of a run lives: each would be a child of this process, or below one, since orphans come
/// here. Collects ended processes.
pub(crate) fn alone() -> bool {
    loop {
        match rustix::io::retry_on_intr(|| wait(WaitOptions::NOHANG)) {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

fn status_of(status: WaitStatus) -> Status {
    match status.terminating_signal() {
        Some(signal) => Status::Killed(signal),
        // A parent receives only the low eight bits of an exit code.
        None => Status::Exited(status.exit_status().unwrap_or_default() as u8),
    }
}

impl Ended {
    /// Lets signals act on this process again. Returns the program's exit code. An error in writing replaces only
    /// success: it must not hide a failure of the program.
    pub fn exit(self, written: Result<(), Failure>) -> Result<u8, Failure> {
        drop(self.signals);
        match (self.status.code(), written) {
            (0, written) => written.map(|()| 0),
            (code, written) => {
                if let Err(failure) = written {
                    failure.report();
                }
                Ok(code)
            }
        }
    }
}

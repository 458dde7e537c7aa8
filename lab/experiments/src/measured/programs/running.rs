//! A program that was started. It is waited for, its errors are collected, and it never outlives this process.

use super::user::User;
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time of one program.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The amount of work of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) passes: usize,
    pub(crate) quick: bool,
}

/// A program in a process group of its own, which is killed on drop.
pub(super) struct Running {
    child: Child,
    what: String,
    complaints: File,
}

impl Running {
    /// Starts it without input and output. Its standard error is kept.
    pub(super) fn start(command: &mut Command, user: Option<User>) -> Result<Running, String> {
        let what = Path::new(command.get_program())
            .file_name()
            .map_or_else(|| "it".to_owned(), |name| name.to_string_lossy().into_owned());
        let complaints =
            tempfile::tempfile().map_err(|error| format!("no file for messages: {error}"))?;
        let stderr = complaints.try_clone().map_err(|error| error.to_string())?;
        if let Some(user) = user {
            command.uid(user.id).gid(user.group);
        }
        let parent = std::process::id();
        // SAFETY: two system calls and no memory, between fork and exec.
        unsafe { command.pre_exec(move || end_with(parent)) };
        let child = command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => format!("{what} is not installed"),
                _ => format!("{what} cannot be started: {error}"),
            })?;
        Ok(Running { child, what, complaints })
    }

    /// Waits until it has succeeded.
    pub(super) fn succeed(mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.complaint(&format!("failed ({status})"))),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(None) => {
                    let seconds = PATIENCE.as_secs();
                    return Err(self.complaint(&format!("was not done after {seconds} s")));
                }
                Err(error) => return Err(self.complaint(&error.to_string())),
            }
        }
    }

    /// Returns whether it still runs.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Describes a failure, with the last line that the program wrote.
    pub(super) fn complaint(&mut self, why: &str) -> String {
        let mut text = String::new();
        let read = self
            .complaints
            .rewind()
            .and_then(|()| (&mut self.complaints).take(1 << 16).read_to_string(&mut text));
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        match (read, last) {
            (Ok(_), Some(line)) => format!("{} {why}: {}", self.what, line.trim()),
            _ => format!("{} {why}", self.what),
        }
    }

    /// Signals the group. The child leads it and has not been waited for, so the group's number is still its own.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.lives() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Makes the calling process end when its parent ends in any way.
fn end_with(parent: u32) -> io::Result<()> {
    // A server can catch this signal, to free its kernel resources, too.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before the request.
    if std::os::unix::process::parent_id() == parent {
        Ok(())
    } else {
        Err(io::ErrorKind::Other.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_program_and_its_last_line() {
        let run = |script| Running::start(Command::new("sh").args(["-c", script]), None)?.succeed();
        assert_eq!(run("exit 0"), Ok(()));
        let error = run("echo one >&2; echo two >&2; exit 3").unwrap_err();
        assert_eq!(error, "sh failed (exit status: 3): two");
        let error = Running::start(&mut Command::new("ledgerline-no-such-program"), None).err();
        assert_eq!(error.unwrap(), "ledgerline-no-such-program is not installed");
    }

    #[test]
    fn whoever_still_runs_is_ended_with_what_it_started() {
        let mut running =
            Running::start(Command::new("sh").args(["-c", "sleep 600 & wait"]), None).unwrap();
        assert!(running.lives());
        let group = running.child.id().to_string();
        drop(running);
        // Whether a process of the group still runs. A process that has ended remains until its new parent collects it.
        let runs = || {
            std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                let fields = stat.rsplit(')').next().unwrap_or_default();
                let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
                matches!(fields[..], [state, _, of, ..] if of == group && state != "Z")
            })
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while runs() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!runs());
    }
}

//! Real programs whose resident pages are followed: a compile, a database, a storm of messages.
//!
//! Each runs in a directory of its own that is removed afterwards, ends in bounded time, and takes along
//! whatever it started.

mod compile;
mod database;
mod messages;

use super::trace::Trace;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek};
use std::os::fd::FromRawFd;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest that one program may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much a program is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) passes: usize,
    pub(super) quick: bool,
}

/// A program: what it is called, and how it is run and recorded.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) record: fn(&[usize], Size) -> Result<Trace, String>,
}

pub(super) const PROGRAMS: [Program; 3] = [
    Program { name: "make -j", record: compile::record },
    Program { name: "pgbench", record: database::record },
    Program { name: "messages", record: messages::record },
];

/// A directory that is removed with all that is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Scratch> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ledgerline-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Not followed, not shared: fails if somebody has put something there.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Scratch(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays for the system's own cleaning.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whom to run programs as that refuse to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    id: u32,
    group: u32,
}

impl User {
    /// None where this process is not root's; an error where there is nobody else.
    fn other_than_root() -> Result<Option<User>, String> {
        // SAFETY: it has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::named(&users, name))
            .map(Some)
            .ok_or_else(|| "there is neither a user postgres nor nobody to run it as".to_owned())
    }

    fn named(users: &str, name: &str) -> Option<User> {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == name;
            let mut numbers = fields.skip(1).take(2).map_while(|text| text.parse().ok());
            let user = User { id: numbers.next()?, group: numbers.next()? };
            (found && user.id != 0).then_some(user)
        })
    }
}

/// A program in a process group of its own, which ends with this value.
struct Running {
    child: Child,
    what: String,
    complaints: File,
}

impl Running {
    /// Starts it without input and output; what it complains about is kept.
    fn start(command: &mut Command, user: Option<User>) -> Result<Running, String> {
        let what = Path::new(command.get_program())
            .file_name()
            .map_or_else(|| "it".to_owned(), |name| name.to_string_lossy().into_owned());
        let complaints =
            scratch_file().map_err(|error| format!("no file for messages: {error}"))?;
        let stderr = complaints.try_clone().map_err(|error| error.to_string())?;
        if let Some(user) = user {
            command.uid(user.id).gid(user.group);
        }
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
    fn succeed(mut self) -> Result<(), String> {
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

    /// Whether it still runs.
    fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What went wrong, with the last line that it wrote.
    fn complaint(&mut self, why: &str) -> String {
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

    fn signal(&self, signal: libc::c_int) {
        let Ok(group) = libc::pid_t::try_from(self.child.id()) else { return };
        // SAFETY: the group is our child's, and the child has not been waited for: its number is its own.
        unsafe { libc::kill(-group, signal) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.lives() {
            self.signal(libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// A file in memory.
fn scratch_file() -> io::Result<File> {
    // SAFETY: the name lives here.
    let file = unsafe { libc::memfd_create(c"complaints".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// Hands a directory to a user.
fn give(path: &Path, user: Option<User>) -> Result<(), String> {
    match user {
        Some(user) => chown(path, Some(user.id), Some(user.group))
            .map_err(|error| format!("{} cannot be given away: {error}", path.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_all_that_is_in_it() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/file"), "text").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn users_are_found_by_name_and_root_is_not() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nbad:x:y:z\n";
        assert_eq!(User::named(users, "nobody"), Some(User { id: 65534, group: 65533 }));
        for name in ["root", "bad", "other"] {
            assert_eq!(User::named(users, name), None, "{name}");
        }
    }

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
        let group = libc::pid_t::try_from(running.child.id()).unwrap();
        drop(running);
        // SAFETY: signal 0 asks only whether there is such a group.
        let gone = || unsafe { libc::kill(-group, 0) } != 0;
        // An orphan's end is waited for by whoever adopts it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !gone() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(gone());
    }
}

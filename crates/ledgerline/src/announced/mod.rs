//! Announced ledgers: files in the user's runtime directory, where those who watch find them.
//!
//! | module    | what it holds                                                |
//! |-----------|--------------------------------------------------------------|
//! | `folder`  | the folders in which they lie, and whose they must be        |
//! | `called`  | what their files are called: by name, program and process    |
//! | `nowhere` | stands for `folder` where there are none                    |
//! | `process` | whether the process that announced one still runs            |
//!
//! The program holds its file's lock (`flock`) as long as it has the ledger. The kernel lets go of it when the program
//! ends or executes another one. A forked child holds it, too, so the process is looked at besides.

mod called;
#[cfg_attr(not(unix), path = "nowhere.rs")]
mod folder;
mod process;

use called::Called;
use folder::Folder;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// How many ledgers of ended programs are kept in a folder, beside those that run.
const KEPT: usize = 8;

/// A ledger that a program of this user announced ([`LedgerBuilder::announce`](crate::LedgerBuilder::announce)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announced {
    /// The name by which it was announced.
    pub name: String,
    /// The program's name, as the kernel has it: 15 bytes at most.
    pub program: String,
    /// The process, in its own PID namespace.
    pub pid: u32,
    /// Whether the program still has the ledger. Otherwise it ended, and this is what it left.
    pub running: bool,
    /// The ledger's file.
    pub path: PathBuf,
    /// When the ledger was made.
    pub since: SystemTime,
}

/// The ledgers that programs of this user announced, those that run first, each by name.
///
/// Looks into every folder in which such a program may have put one; folders that are not this user's alone are passed
/// over. Costs some ten microseconds a ledger. Not async-signal-safe.
///
/// ```
/// for ledger in ledgerline::announced() {
///     println!("{}: {} ({})", ledger.name, ledger.program, ledger.pid);
/// }
/// ```
pub fn announced() -> Vec<Announced> {
    let mut found: Vec<Announced> = folder::existing().iter().flat_map(listed).collect();
    found.sort_by_cached_key(|it| (!it.running, it.name.clone(), it.since, it.pid));
    found
}

/// What lies in a folder.
fn listed(folder: &Folder) -> Vec<Announced> {
    let listed = folder.names().into_iter().filter_map(|file| {
        let Called { name, program, process } = Called::parse(&file)?;
        let opened = folder.open(&file)?;
        let metadata = opened.metadata().ok()?;
        // (A file's birth, which tmpfs keeps since Linux 6.)
        let born = metadata.created().or_else(|_| metadata.modified());
        let since = born.unwrap_or(SystemTime::UNIX_EPOCH);
        let running = is_locked(&opened) && process.may_run();
        let path = folder.path().join(&file);
        Some(Announced { name, program, pid: process.pid, running, path, since })
    });
    listed.collect()
}

/// Whether somebody holds a file's lock.
fn is_locked(file: &File) -> bool {
    // (The lock that is asked for goes with the descriptor, which the caller closes.)
    file.try_lock_shared().is_err()
}

/// The announcement of a ledger that this process made: its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Announcement {
    folder: Folder,
    file: String,
    /// Holds the lock.
    locked: File,
    process: u32,
}

impl Announcement {
    /// Makes an empty file for a ledger with that name, in the first folder that is there or can be made, and takes away
    /// what ended programs left.
    ///
    /// # Errors
    /// When the name is not as [`LedgerBuilder::announce`](crate::LedgerBuilder::announce) says, when there is no folder,
    /// or when this process announced that name already.
    pub(crate) fn new(name: &str) -> io::Result<Announcement> {
        let called = Called::own(name)?;
        let file = called.to_string();
        let folder = folder::make()?;
        tidy(&folder, name);
        let made = folder.create(&file).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(
                error.kind(),
                format!("this process has announced a ledger {name:?} already"),
            ),
            _ => error,
        })?;
        // Nobody holds the lock of a new file for long: who looks asks for it and lets go.
        made.lock().inspect_err(|_| folder.remove(&file))?;
        Ok(Announcement { folder, file, locked: made, process: std::process::id() })
    }

    /// The empty file.
    pub(crate) fn file(&self) -> &File {
        &self.locked
    }

    /// Where the file lies.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.file)
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // (A forked child's copy is not its to remove.)
        if self.process == std::process::id() {
            self.folder.remove(&self.file);
        }
    }
}

/// Takes away what ended programs left: under this name, and all but the newest under others.
fn tidy(folder: &Folder, name: &str) {
    let mut ended = listed(folder);
    ended.retain(|announced| !announced.running);
    ended.sort_by_key(|announced| std::cmp::Reverse(announced.since));
    let mut kept = 0;
    for announced in ended {
        kept += usize::from(announced.name != name);
        if (announced.name == name || kept > KEPT)
            && let Some(file) = announced.path.file_name().and_then(OsStr::to_str)
        {
            folder.remove(file);
        }
    }
}

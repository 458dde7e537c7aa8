//! Announced ledgers: files in the user's runtime directory, where monitoring programs find them.
//!
//! | module    | what it holds                                                |
//! |-----------|--------------------------------------------------------------|
//! | `folder`  | the folders of these files, and the check of their owner     |
//! | `called`  | the names of these files: name, program and process          |
//! | `nowhere` | stands in for `folder` on systems that have none             |
//! | `process` | whether the process that announced a ledger still runs       |
//!
//! The program holds its file's lock (`flock`) as long as it has the ledger. The kernel releases it when the program ends or
//! executes another one. A forked child holds it, too, so the process is checked as well.

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

/// How many ledgers of ended programs are kept in a folder, besides those of running ones.
const KEPT: usize = 8;

/// A ledger that a program of this user announced ([`LedgerBuilder::announce`](crate::LedgerBuilder::announce)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announced {
    /// The name by which it was announced.
    pub name: String,
    /// The program's name as the kernel has it: at most 15 bytes.
    pub program: String,
    /// The process, in its own PID namespace.
    pub pid: u32,
    /// Whether the program still has the ledger. Otherwise it has ended, and this is the ledger that it left.
    pub running: bool,
    /// The ledger's file.
    pub path: PathBuf,
    /// When the ledger was created.
    pub since: SystemTime,
}

/// Returns the ledgers that programs of this user announced: those of running programs first, each part sorted by name.
///
/// Looks into every folder in which such a program may have put one, and skips folders that do not belong to this user
/// alone. Costs some ten microseconds a ledger. Not async-signal-safe.
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

/// Returns the ledgers in a folder.
fn listed(folder: &Folder) -> Vec<Announced> {
    let listed = folder.names().into_iter().filter_map(|file| {
        let Called { name, program, process } = Called::parse(&file)?;
        let opened = folder.open(&file)?;
        let metadata = opened.metadata().ok()?;
        // A file's birth, which tmpfs keeps since Linux 6.
        let born = metadata.created().or_else(|_| metadata.modified());
        let since = born.unwrap_or(SystemTime::UNIX_EPOCH);
        let running = is_locked(&opened) && process.may_run();
        let path = folder.path().join(&file);
        Some(Announced { name, program, pid: process.pid, running, path, since })
    });
    listed.collect()
}

/// Returns whether any process holds a file's lock.
fn is_locked(file: &File) -> bool {
    // The lock taken here ends with the descriptor, which the caller closes.
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
    /// Creates an empty file for a ledger with that name, in the first folder that exists or can be created, and removes the
    /// files of ended programs.
    ///
    /// # Errors
    /// If the name breaks the rules of [`LedgerBuilder::announce`](crate::LedgerBuilder::announce), if there is no folder,
    /// or if this process has already announced that name.
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
        // The lock of a new file is never held for long: a listing takes it and releases it at once.
        made.lock().inspect_err(|_| folder.remove(&file))?;
        Ok(Announcement { folder, file, locked: made, process: std::process::id() })
    }

    /// Returns the empty file.
    pub(crate) fn file(&self) -> &File {
        &self.locked
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.file)
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // A forked child must not remove its parent's file.
        if self.process == std::process::id() {
            self.folder.remove(&self.file);
        }
    }
}

/// Removes the files of ended programs: all under this name, and all but the newest under others.
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

//! Finds ledgers: those of running programs, those that ended programs left, and the one that a process belongs to.
//!
//! | module    | contents                                                                   |
//! |-----------|----------------------------------------------------------------------------|
//! | `process` | the facts in `/proc` about a process: its files, maps, environment and parent |
//! | `runs`    | the ledgers of `ledgerline run`                                            |
//!
//! Programs that embed the library are found by their announcement ([`ledgerline::LedgerBuilder::announce`]), or by the
//! ledger's file that they have mapped.

mod process;
mod runs;

use crate::watch::Source;
use crate::watch::source::open_view;
use ledgerline::Announced;
use process::Process;
use std::path::{Path, PathBuf};

/// A ledger that was found. [`Source::open`] opens its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its title: `sort (run 4711)`, `orders: server (4711)`, or a file.
    pub title: String,
    /// The path that opens it, as long as the process lives; for an ended program, as long as the file exists.
    pub path: PathBuf,
    /// Its origin.
    pub kind: Kind,
    /// The program's name; for a run, the program that it was told to run.
    pub program: String,
    /// The process that has it; for a run, the supervisor.
    pub pid: u32,
    /// Whether the program is still running. Otherwise the ledger is its remainder.
    pub running: bool,
    /// The most groups that it may have: the number of rows that were ever used.
    pub groups: u32,
}

/// The origin of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `ledgerline run` made it.
    Run,
    /// A program announced it by this name.
    Announced(String),
    /// A program has mapped a ledger's file.
    Mapped,
}

/// Returns the ledgers of this user's processes, and those that ended programs announced: runs first, then announced
/// ones, those of ended programs last. Looks at the open files of all of this user's processes, which takes some ten
/// microseconds for each.
///
/// A run whose supervisor was killed is not in it, though its programs may go on.
pub fn all() -> Vec<Found> {
    let runs = runs::all();
    let announced = ledgerline::announced();
    runs.into_iter().chain(announced.iter().filter_map(of_announced)).collect()
}

fn of_announced(found: &Announced) -> Option<Found> {
    let Announced { name, program, pid, running, path, .. } = found;
    let ended = if *running { "" } else { ", ended" };
    Some(Found {
        title: format!("{name}: {program} ({pid}{ended})"),
        path: path.clone(),
        kind: Kind::Announced(name.clone()),
        program: program.clone(),
        pid: *pid,
        running: *running,
        groups: groups(path)?,
    })
}

/// Returns the number of rows that the ledger in a file may have; `None` if the file is not a ledger.
fn groups(path: &Path) -> Option<u32> {
    open_view(path).ok()?.groups_at_most().ok()
}

/// Returns the ledger that a process belongs to. The process may be a `ledgerline run`, its program, or any that runs
/// below it; a program that announced a ledger, even if it has ended; or one that has mapped a ledger's file.
///
/// # Errors
/// A sentence with the reason why there is none, and with advice.
pub fn by_pid(pid: u32) -> Result<Found, String> {
    let announced = ledgerline::announced();
    // A running program comes before an ended one with the same id.
    let of_announced = || announced.iter().filter(|found| found.pid == pid).find_map(of_announced);
    let process = Process(pid);
    if let Some(found) = of_announced().filter(|found| found.running || !process.exists()) {
        return Ok(found);
    }
    if !process.exists() {
        return Err(format!("there is no process {pid}, and none of that number left a ledger"));
    }
    let looked_into = process.files().map_err(|error| {
        format!("process {pid} cannot be looked into ({error}): look as its user, or as root")
    })?;
    drop(looked_into);
    let mut in_run = false;
    if let Some(found) = runs::of(process, &mut in_run).or_else(|| mapped(process)) {
        return Ok(found);
    }
    if let Some(found) = process.ancestors().find_map(runs::held_by) {
        return Ok(found);
    }
    Err(if in_run {
        format!(
            "the `ledgerline run` of process {pid} is not there any more: its ledger can be opened by root alone, as long \
             as the process runs"
        )
    } else {
        format!(
            "process {pid} has no ledger: give a process of a `ledgerline run`, or of a program that announced its \
             ledger or shares it in a file; for root also a process that outlived its run"
        )
    })
}

/// Returns a ledger's file that a process has mapped for writing.
fn mapped(process: Process) -> Option<Found> {
    process.mapped_files().into_iter().find_map(|path| {
        let groups = groups(&path)?;
        let program = process.name();
        let title = format!("{}: {program} ({})", path.display(), process.0);
        let (kind, pid) = (Kind::Mapped, process.0);
        Some(Found { title, path, kind, program, pid, running: true, groups })
    })
}

impl Source {
    /// Opens a ledger that was found.
    ///
    /// # Errors
    /// As for [`open`](Self::open): its program may have ended meanwhile.
    pub fn found(found: &Found) -> Result<Source, String> {
        Ok(Source::open(&found.path)?.titled(found.title.clone()))
    }

    /// Opens the ledger that a process belongs to ([`by_pid`]).
    ///
    /// # Errors
    /// A sentence with the reason why there is none, and with advice.
    pub fn of_pid(pid: u32) -> Result<Source, String> {
        Source::found(&by_pid(pid)?)
    }

    /// Opens the ledger that a user names: by a PID, a file, or the name under which a program announced it. A number
    /// is a PID, and a name with a `/` is a file. Among several ledgers with one name, a running program's is chosen,
    /// or else that of the program that ended last.
    ///
    /// # Errors
    /// A sentence with the missing thing, or with the ledgers among which the name is ambiguous.
    pub fn named(name: &str) -> Result<Source, String> {
        if let Ok(pid) = name.parse() {
            return Source::of_pid(pid);
        }
        let path = Path::new(name);
        let is_file = name.contains('/');
        let mut known: Vec<Announced> = ledgerline::announced();
        known.retain(|found| !is_file && found.name == name);
        let running = known.iter().filter(|found| found.running).count();
        if running > 1 {
            let pids: Vec<String> = known[..running].iter().map(|it| it.pid.to_string()).collect();
            let pids = pids.join(", ");
            return Err(format!(
                "several programs announced {name:?}: give one of the PIDs {pids}"
            ));
        }
        let last = known.iter().max_by_key(|found| (found.running, found.since));
        if let Some(found) = last.and_then(of_announced) {
            return Source::found(&found);
        }
        if is_file || path.exists() {
            return Source::open(path);
        }
        Err(format!("{name:?} is no PID, no file, and no ledger that a program announced"))
    }
}

//! The ledgers of `ledgerline run`: files in memory that the supervisor has open and its programs have mapped.

use super::process::Process;
use super::{Found, Kind, groups};
use ledgerline_protocol::{DESCRIPTORS, Which, given, path_of};
use std::collections::HashSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns whether the kernel shows such a file by this name.
fn is_shown(name: &[u8]) -> bool {
    given::shown(name).is_some_and(|(which, _)| which == Which::Ledger)
}

fn is_ledger(link: &Path) -> bool {
    link.read_link().is_ok_and(|file| is_shown(file.as_os_str().as_bytes()))
}

/// Returns all runs of this user.
pub(super) fn all() -> Vec<Found> {
    let mut seen = HashSet::new();
    let mut found: Vec<Found> = Process::own().filter_map(held_by).collect();
    found.sort_by_key(|found| found.pid);
    found.retain(|found| {
        let file = found.path.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        file.is_ok_and(|file| seen.insert(file))
    });
    found
}

/// Returns the run that a process supervises: it has the ledger open for writing, while observers may only read.
pub(super) fn held_by(process: Process) -> Option<Found> {
    let mut files = process.files().ok()?.filter(|link| is_ledger(link));
    let path = files.find(|link| process.may_write(link))?;
    found(path, process)
}

/// Returns the run that a process supervises or belongs to. `in_run` becomes true if it belongs to one, even if that
/// cannot be opened any more.
pub(super) fn of(process: Process, in_run: &mut bool) -> Option<Found> {
    if let Some(found) = held_by(process) {
        return Some(found);
    }
    if let Some(found) = by_environment(process) {
        return Some(found);
    }
    *in_run = process.shares(is_shown);
    let path = process.map_files().find(|link| is_ledger(link))?;
    let program = process.name();
    let title = format!("{program} ({}, its run is gone)", process.0);
    Some(Found { title, program, ..found(path, process)? })
}

/// Finds the run by the process's environment, which has the ledger's path: `/proc/SUPERVISOR/fd/NUMBER`, or a
/// descriptor of its own if it left the run's `/proc`.
fn by_environment(process: Process) -> Option<Found> {
    let mut strings = process.environment().into_iter().filter_map(|text| CString::new(text).ok());
    let path = strings.find_map(|text| match path_of(&text)? {
        (Which::Ledger, path) => Some(path.to_bytes().to_vec()),
        (Which::Heap, _) => None,
    })?;
    if path.starts_with(DESCRIPTORS.as_bytes()) {
        return process.ancestors().find_map(held_by);
    }
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&path));
    let supervisor = path.strip_prefix("/proc").ok()?.iter().next()?.to_str()?.parse().ok()?;
    // The id may be another process's by now.
    if !is_ledger(&path) || !Process(supervisor).may_write(&path) {
        return None;
    }
    found(path, Process(supervisor))
}

fn found(path: PathBuf, supervisor: Process) -> Option<Found> {
    let groups = groups(&path)?;
    let program = supervisor.first_child().unwrap_or(supervisor).name();
    let title = format!("{program} (run {})", supervisor.0);
    let (kind, pid) = (Kind::Run, supervisor.0);
    Some(Found { title, path, kind, program, pid, running: true, groups })
}

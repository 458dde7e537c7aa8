//! Finding and opening what is to be shown.

use ledgerline::Ledger;
use ledgerline::stat::{CountersFile, CountersSnapshot};
use ledgerline_protocol::MEMORY_FILE;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What a file turned out to be.
pub(super) enum Source {
    Ledger(Ledger),
    Counters(CountersSnapshot),
}

/// Opens a file and tells what it is.
pub(super) fn open(path: &Path) -> Result<Source, String> {
    let name = path.display();
    // Before it is opened: a pipe would wait for a writer.
    let metadata = path.metadata().map_err(|error| format!("{name}: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("{name} is not a file"));
    }
    // A ledger is mapped for writing, as whoever may charge it does; nothing is written here.
    let file = File::options().read(true).write(true).open(path).or_else(|_| File::open(path));
    let file = file.map_err(|error| format!("{name}: {error}"))?;
    if CountersFile::is_one(&file).map_err(|error| format!("{name}: {error}"))? {
        return CountersFile::open(&file)
            .map(|counters| Source::Counters(counters.table()))
            .map_err(|error| format!("{name}: {error}"));
    }
    match Ledger::open_in(&file) {
        Ok(ledger) => Ok(Source::Ledger(ledger)),
        Err(ledgerline::OpenError::NotALedger) => {
            Err(format!("{name} is neither a ledger nor a table of counters"))
        }
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Where the ledger of a run can be opened: `pid` is the `ledgerline run` itself, which has it open, or a process that
/// runs under it, which has it mapped. (The kernel lets only a privileged user open what another process mapped.)
pub(super) fn of_run(pid: u32) -> Result<PathBuf, String> {
    let name = format!("/memfd:{MEMORY_FILE} (deleted)");
    let is_ledger = |path: &PathBuf| path.read_link().is_ok_and(|link| link.as_os_str() == &*name);
    let inside = |folder: &str| {
        let entries = PathBuf::from(format!("/proc/{pid}/{folder}")).read_dir();
        entries.map(|entries| entries.flatten().map(|entry| entry.path()).find(is_ledger))
    };
    let open = inside("fd").map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no process {pid}"),
        _ => format!("process {pid} cannot be looked into: {error}"),
    })?;
    open.or_else(|| inside("map_files").ok().flatten()).ok_or_else(|| {
        format!(
            "process {pid} has no ledger: give the ID of the `ledgerline run` itself, or, as root, of a process \
             that runs under it"
        )
    })
}

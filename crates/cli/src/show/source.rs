//! Opens the ledger or the table to show.

use ledgerline::Ledger;
use ledgerline::stat::{CountersFile, CountersSnapshot};
use std::fs::File;
use std::path::Path;

/// The kind of an opened file.
pub(super) enum Source {
    Ledger(Ledger),
    Counters(CountersSnapshot),
}

/// Opens a file and determines its kind.
pub(super) fn open(path: &Path) -> Result<Source, String> {
    let name = path.display();
    // Before it is opened: a pipe would wait for a writer.
    let told = |error: std::io::Error| format!("{name}: {error}");
    let metadata = path.metadata().map_err(told)?;
    if !metadata.is_file() {
        return Err(format!("{name} is not a file"));
    }
    // A ledger is mapped for writing, like by a charging program; nothing is written here.
    let file = File::options().read(true).write(true).open(path).or_else(|_| File::open(path));
    let file = file.map_err(told)?;
    if CountersFile::is_one(&file).map_err(told)? {
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

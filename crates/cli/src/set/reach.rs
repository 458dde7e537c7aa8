//! The ledger whose limits are to be changed, if this user may change them.

use ledgerline::stat::CountersFile;
use ledgerline::{Ledger, OpenError};
use ledgerline_view::watch::find;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Opens the ledger of a run, or in a file.
pub(super) fn ledger(pid: Option<u32>, file: Option<&Path>) -> Result<Ledger, String> {
    match (pid, file) {
        (Some(pid), _) => {
            owns(pid)?;
            open(&find::by_pid(pid)?.path, &format!("process {pid}"))
        }
        (None, Some(file)) => open(file, &file.display().to_string()),
        (None, None) => Err("give --pid PID or --file FILE".to_owned()),
    }
}

/// Refuses another user's process with its name. The kernel would refuse it, too, with a poorer message.
fn owns(pid: u32) -> Result<(), String> {
    let Ok(process) = Path::new(&format!("/proc/{pid}")).metadata() else { return Ok(()) };
    may(process.uid(), &format!("process {pid}"))
}

fn may(owner: u32, what: &str) -> Result<(), String> {
    let me = rustix::process::geteuid();
    if me.is_root() || me.as_raw() == owner {
        return Ok(());
    }
    Err(format!(
        "{what} is user {owner}'s, and this is user {}: only its owner and root may change its limits",
        me.as_raw()
    ))
}

fn open(path: &Path, name: &str) -> Result<Ledger, String> {
    // Before it is opened: a pipe would wait for a writer.
    let metadata = path.metadata().map_err(|error| format!("{name}: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("{name} is not a file"));
    }
    may(metadata.uid(), name)?;
    let read_only = || {
        format!(
            "{name} may only be read, so its limits cannot be changed; `ledgerline show` looks at it"
        )
    };
    let file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error)
            if [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem]
                .contains(&error.kind()) =>
        {
            return Err(read_only());
        }
        Err(error) => return Err(format!("{name}: {error}")),
    };
    let ledger = Ledger::open_in(&file).map_err(|error| match error {
        OpenError::NotALedger if CountersFile::is_one(&file).unwrap_or(false) => {
            format!("{name} is a table of counters, which has no limits")
        }
        OpenError::NotALedger => format!("{name} is not a ledger"),
        OpenError::ReadOnly => read_only(),
        error => format!("{name}: {error}"),
    })?;
    if !ledger.is_steerable() {
        return Err(format!(
            "{name}: the program keeps its limits to itself (it made the ledger with \
             LedgerBuilder::steerable(false)), so nobody else may change them"
        ));
    }
    Ok(ledger)
}

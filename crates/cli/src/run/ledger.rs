//! The ledger of a run: a file that exists only in memory, and only while somebody has it open.

use std::fs::File;
use std::io;

use ledgerline::{Ledger, Limit};
use ledgerline_protocol::{ITEMS, MEMORY_FILE};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, getrlimit};

use crate::launch::Failure;

/// Groups of a run: the most that a ledger holds, unless address space is short.
const GROUPS: u32 = 1 << 20;
/// With fewer groups a run would be of little use.
const LEAST: u32 = 1 << 12;
/// Each program of a run maps the ledger. Under a limit on address space (`ulimit -v`) it takes at most this part,
/// so that the limit still is the program's.
const SHARE: u64 = 16;

/// Makes the ledger, with the limits of its root.
pub(super) fn new(max: Limit, high: Limit) -> Result<(File, Ledger), Failure> {
    let (file, ledger) = create().map_err(|error| {
        let short = error.raw_os_error() == Some(libc::ENOMEM);
        let advice = if short { "; raise the limit on address space (ulimit -v)" } else { "" };
        Failure::internal(format!("the ledger cannot be created: {error}{advice}"))
    })?;
    ledger
        .root()
        .set_max(max)
        .map_err(|error| Failure::internal(format!("--max cannot be set: {error}")))?;
    ledger.root().set_high(high);
    Ok((file, ledger))
}

fn create() -> io::Result<(File, Ledger)> {
    let room = getrlimit(Resource::As).current;
    let fits =
        |ledger: &Ledger| room.is_none_or(|room| ledger.footprint().reserved <= room / SHARE);
    let mut groups = GROUPS;
    loop {
        let file = File::from(memfd_create(MEMORY_FILE, MemfdFlags::CLOEXEC)?);
        match Ledger::builder().items(&ITEMS).capacity(groups).create_in(&file) {
            Ok(ledger) if fits(&ledger) || groups <= LEAST => return Ok((file, ledger)),
            Err(error) if room.is_none() || groups <= LEAST => return Err(error),
            _ => groups /= 4,
        }
    }
}

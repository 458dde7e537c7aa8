//! The ledger of a run: a file that exists only in memory, and only while somebody has it open.

use std::fs::File;
use std::io;

use ledgerline::container::Settings;
use ledgerline::{Ledger, Limit};
use ledgerline_protocol::{ITEMS, MEMORY_FILE, RESERVED};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Resource, getrlimit};

use crate::launch::Failure;

/// Groups of a run, unless address space is short: two for each process that lives at a time, and for each of its
/// further threads by name. (Ended processes share rows.)
const GROUPS: u32 = 1 << 16;
/// With fewer groups a run would be of little use.
const LEAST: u32 = 1 << 12;
/// Each program of a run maps the ledger. Under a limit on address space (`ulimit -v`) it takes at most this part,
/// so that the limit still is the program's.
const SHARE: u64 = 16;

/// The limits of a run's root.
pub(super) struct Limits {
    pub(super) max: Limit,
    /// What of the max is kept.
    pub(super) reserve: u64,
    pub(super) high: Limit,
    /// Whether the container's limit is followed, too.
    pub(super) container: bool,
}

/// Makes the ledger, with the limits of its root. The part of `max` that is kept as the reserve is noted in it.
pub(super) fn new(limits: &Limits) -> Result<(File, Ledger), Failure> {
    let &Limits { max, reserve, high, container } = limits;
    let settings = container.then(|| Settings::new().at_most(max).reserve(reserve));
    let (file, ledger) = create(settings).map_err(|error| {
        let short = error.raw_os_error() == Some(libc::ENOMEM);
        let advice = if short { "; raise the limit on address space (ulimit -v)" } else { "" };
        Failure::internal(format!("the ledger cannot be created: {error}{advice}"))
    })?;
    if let Some(item) = ledger.item(RESERVED) {
        ledger.root().add_stat(item, reserve.cast_signed());
    }
    if !container {
        ledger
            .root()
            .set_max(ordinary(max, reserve))
            .map_err(|error| Failure::internal(format!("--max cannot be set: {error}")))?;
    }
    // From now on no process can make the file shorter: who has it mapped would be killed. (A sandbox may not know
    // of seals; then nobody is kept from it.)
    let _ = fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
    ledger.root().set_high(high);
    Ok((file, ledger))
}

/// The root's max, of which the reserve is no part.
pub(super) fn ordinary(max: Limit, reserve: u64) -> Limit {
    max.get().map_or(max, |max| Limit::units(max - reserve))
}

fn create(container: Option<Settings>) -> io::Result<(File, Ledger)> {
    let room = getrlimit(Resource::As).current;
    let fits =
        |ledger: &Ledger| room.is_none_or(|room| ledger.footprint().reserved <= room / SHARE);
    let mut groups = GROUPS;
    loop {
        let file =
            File::from(memfd_create(MEMORY_FILE, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        let builder = Ledger::builder().items(&ITEMS).capacity(groups);
        let builder = match &container {
            Some(settings) => builder.container_with(settings.clone()),
            None => builder,
        };
        match builder.create_in(&file) {
            Ok(ledger) if fits(&ledger) || groups <= LEAST => return Ok((file, ledger)),
            Err(error) if room.is_none() || groups <= LEAST => return Err(error),
            _ => groups /= 4,
        }
    }
}

//! The ledger of a run: a file that exists only in memory, and only while a process has it open.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;

use ledgerline::container::Settings;
use ledgerline::{Ledger, Limit};
use ledgerline_protocol::given::{self, MODE};
use ledgerline_protocol::{Count, Item, MOST_BYTES, Which};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use rustix::process::{Resource, getrlimit};

use ledgerline_run::launch::Failure;

/// The default number of rows of a run, unless address space is short: one for each process that lives at the same
/// time, and one for each further thread name of it. Ended processes share rows.
pub(super) const ROWS: &str = "16384";
/// The values of `--rows`: at most as many as a ledger can have.
pub(super) const ROWS_TAKEN: RangeInclusive<i64> = 64..=MOST_ROWS as i64;
const MOST_ROWS: u32 = 1 << 20;
/// With fewer rows a run would be of little use.
const LEAST: u32 = 1 << 12;
/// The further rows of the second ledger, which keeps the rows of ended processes longer.
const MORE: u32 = 1 << 8;
/// Each program of a run maps the ledger. Under a limit on address space (`ulimit -v`) it takes at most this part, so
/// that most of the limit is left to the program.
const SHARE: u64 = 16;

/// The limits of a run, as the user set them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The limits of blocks and mappings together, and of blocks alone.
    pub(super) max: Limit,
    pub(super) max_heap: Limit,
    /// The part of each that is kept as the reserve.
    pub(super) reserve: u64,
    pub(super) high: Limit,
    /// The memory that `max` counts.
    pub(super) count: Count,
    /// Whether the container's limit is followed, too.
    pub(super) container: bool,
    /// The number of rows that the account has at the same time.
    pub(super) rows: u32,
}

impl Limits {
    /// Returns whether there is a limit that refuses.
    pub(super) fn refuse(&self) -> bool {
        self.container || [self.max, self.max_heap] != [Limit::MAX; 2]
    }

    /// Returns a max without the reserve.
    pub(super) fn ordinary(&self, max: Limit) -> Limit {
        max.get().map_or(max, |max| Limit::units(max.saturating_sub(self.reserve)))
    }
}

/// Makes the ledger, with the limits of its root. Facts that a limit of the ledger cannot express are noted in items.
pub(super) fn new(limits: &Limits, nonce: u128) -> Result<(File, Ledger), Failure> {
    let (max, reserve) = (limits.max, limits.reserve);
    let container = limits.container.then(|| Settings::new().at_most(max).reserve(reserve));
    let name = given::name(Which::Ledger, nonce);
    let (file, ledger) = create(&name, limits.rows, &Item::NAMES, container).map_err(failed)?;
    // An account could not distinguish a larger number from damage.
    let max_heap = limits.max_heap.get().map_or(0, |max| max.min(MOST_BYTES - 1) + 1);
    for (item, number) in [(Item::Reserved, limits.reserve), (Item::MaxHeap, max_heap)] {
        if let Some(item) = ledger.item(item.name()) {
            ledger.root().add_stat(item, number.cast_signed());
        }
    }
    // A limit on resident memory is the supervisor's to apply.
    if !limits.container && limits.count == Count::Mapped {
        limit("--max", &ledger, limits.ordinary(max))?;
    }
    seal(&file)?;
    ledger.root().set_high(limits.high);
    Ok((file, ledger))
}

/// Makes the second ledger, if blocks have a limit of their own.
pub(super) fn heap(limits: &Limits, nonce: u128) -> Result<Option<(File, Ledger)>, Failure> {
    if limits.max_heap == Limit::MAX {
        return Ok(None);
    }
    let rows = (limits.rows + MORE).min(MOST_ROWS);
    let name = given::name(Which::Heap, nonce);
    let (file, ledger) = create(&name, rows, &[], None).map_err(failed)?;
    limit("--max-heap", &ledger, limits.ordinary(limits.max_heap))?;
    seal(&file)?;
    Ok(Some((file, ledger)))
}

/// Settles and folds the rows of ended processes in the second ledger, which no account shows.
pub(super) fn tidy(heap: &Ledger, alive: &dyn Fn(u32) -> bool) {
    /// The number of ended rows from which they are folded: each fold is a look at all rows.
    const MANY: usize = 128;
    heap.settle_dead(alive);
    let ended: Vec<_> = heap.ended().collect();
    if ended.len() > MANY
        && let Ok(row) = heap.root().create("ended")
    {
        heap.fold_ended(&ended, row);
        // Its total is not needed, so it makes room at once. If it cannot be destroyed yet, the next one cannot be
        // created either.
        let _ = row.destroy();
    }
}

fn limit(option: &str, ledger: &Ledger, max: Limit) -> Result<(), Failure> {
    let set = ledger.root().set_max(max);
    set.map_err(|error| Failure::internal(format!("{option} cannot be set: {error}")))
}

/// Seals the file, so that no process can shorten it, which would kill the processes that have it mapped. No program
/// opens a file without these seals.
fn seal(file: &File) -> Result<(), Failure> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(file, seals).map_err(|error| {
        Failure::internal(format!(
            "the ledger cannot be sealed, so no program would open it: {error}"
        ))
    })
}

fn failed(error: io::Error) -> Failure {
    let short = error.raw_os_error() == Some(libc::ENOMEM);
    let advice = if short { "; raise the limit on address space (ulimit -v)" } else { "" };
    Failure::internal(format!("the ledger cannot be created: {error}{advice}"))
}

fn create(
    name: &CStr,
    mut rows: u32,
    items: &[&str],
    container: Option<Settings>,
) -> io::Result<(File, Ledger)> {
    let room = getrlimit(Resource::As).current;
    let fits =
        |ledger: &Ledger| room.is_none_or(|room| ledger.footprint().reserved <= room / SHARE);
    loop {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        // A new file is open to all users.
        fchmod(&file, Mode::from_raw_mode(MODE))?;
        let builder = Ledger::builder().items(items).capacity(rows).spare_addresses(true);
        let builder = match &container {
            Some(settings) => builder.container_with(settings.clone()),
            None => builder,
        };
        match builder.create_in(&file) {
            Ok(ledger) if fits(&ledger) || rows <= LEAST => return Ok((file, ledger)),
            Err(error) if room.is_none() || rows <= LEAST => return Err(error),
            _ => rows /= 2,
        }
    }
}

//! Opens a ledger in a file that another process created. Its header determines the layout, and is checked first.

use crate::control;
use crate::control::audit::Audit;
use crate::error::OpenError;
use crate::ledger::Ledger;
use crate::making::builder::{BATCHES, CAPACITIES, TIMES};
use crate::os;
use crate::percpu::columns_of_cpus;
use crate::region::{Place, Region};
use crate::sync::{AtomicU32, Ordering};
use crate::table::header::{Header, MAGIC, VERSION};
use crate::table::plan::Plan;
use crate::table::{Settings, items};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// The most columns of a ledger: no machine has more CPUs.
const COLUMNS_MAX: u32 = 1 << 16;

/// A copy of a file's header.
#[repr(C, align(128))]
struct CopiedHeader([u8; size_of::<Header>()]);

const _: () = assert!(align_of::<CopiedHeader>() >= align_of::<Header>());

/// Returns the settings of the ledger in a file, after checking its header. It must have `columns` columns or more.
/// Allocates nothing.
pub(crate) fn read_settings(file: &File, columns: u32) -> Result<Settings, OpenError> {
    // `stat` would cost a small program two more pages. No code reads at this file's position.
    let length = (&mut &*file).seek(SeekFrom::End(0)).map_err(|error| match error.kind() {
        io::ErrorKind::NotSeekable => OpenError::NotALedger,
        _ => OpenError::Io(error),
    })?;
    let length = usize::try_from(length).map_err(|_| OpenError::NotALedger)?;
    if length < Plan::PAGE {
        return Err(OpenError::NotALedger);
    }
    let mut first = CopiedHeader([0; size_of::<Header>()]);
    // SAFETY: the buffer belongs to this function.
    let read = unsafe { os::read_at(file, first.0.as_mut_ptr(), first.0.len(), 0) };
    if read.map_err(OpenError::Io)? < first.0.len() {
        return Err(OpenError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    // SAFETY: it is as large and as aligned as a header; any bytes are valid atomics.
    let header = unsafe { &*first.0.as_ptr().cast::<Header>() };
    // Acquire: partner of the Release in `initialise`. The kernel read the page either after that store, or before.
    if header.magic.load(Ordering::Acquire) != MAGIC {
        return Err(OpenError::NotALedger);
    }
    let version = header.version.load(Ordering::Relaxed);
    if version != VERSION {
        return Err(OpenError::Version { found: version, known: VERSION });
    }
    let capacity = header.capacity.load(Ordering::Relaxed) as usize;
    let found = header.columns.load(Ordering::Relaxed);
    let batch = header.batch.load(Ordering::Relaxed);
    let items = header.item_count.load(Ordering::Relaxed) as usize;
    let flag = |word: &AtomicU32| match word.load(Ordering::Relaxed) {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(OpenError::Damaged),
    };
    if !CAPACITIES.contains(&capacity)
        || !(columns..=COLUMNS_MAX).contains(&found)
        || !BATCHES.contains(&batch)
        || items > items::ITEMS_MAX
    {
        return Err(OpenError::Damaged);
    }
    let plan = Plan { capacity, columns: found as usize, items };
    // The file must back all memory that will be touched: access beyond its end would be a SIGBUS. A file of another length
    // was created with other numbers, so this process would write over data that is not its own.
    if length != plan.size() {
        return Err(OpenError::Damaged);
    }
    Ok(Settings {
        plan,
        batch,
        flows: flag(&header.flows)?,
        audit: flag(&header.audit)?,
        opened: true,
        makers_limits: flag(&header.makers_limits)?,
    })
}

impl Ledger {
    /// Maps a ledger that another process created in a file. Allocates nothing. Programs that only read it should use a
    /// [`View`](crate::View), which needs no write permission.
    ///
    /// # Errors
    /// If the file is not a ledger, has another version, or was created for fewer CPUs than this machine may have.
    pub fn open_in(file: &File) -> Result<Ledger, OpenError> {
        open(file, |plan| Region::shared_at(file, plan.size(), plan.place()))
    }

    /// Like [`open_in`](Self::open_in), but leaves unused address space to other mappings; see
    /// [`LedgerBuilder::spare_addresses`](crate::LedgerBuilder::spare_addresses). Costs one more mapping for each CPU.
    ///
    /// # Errors
    /// Same as [`open_in`](Self::open_in).
    pub fn open_sparing(file: &File) -> Result<Ledger, OpenError> {
        open(file, |plan| Region::shared_in_parts(file, plan.parts(), plan.place()))
    }
}

fn open(file: &File, map: impl FnOnce(Plan) -> io::Result<Region>) -> Result<Ledger, OpenError> {
    let settings = read_settings(file, columns_of_cpus())?;
    let region = map(settings.plan).map_err(|error| {
        if error.kind() == io::ErrorKind::OutOfMemory
            && let Ok(first) = Region::shared_at(file, Plan::PAGE, Place::ANYWHERE)
        {
            // SAFETY: the file holds a header, as just checked, which is all atomics.
            let header = unsafe { &*first.at::<Header>(0) };
            header.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        if os::says_read_only(&error) { OpenError::ReadOnly } else { OpenError::Io(error) }
    })?;
    let audit = settings.audit.then(|| Audit::new(None));
    control::lay(settings, audit, TIMES, region).map_err(OpenError::Io)
}

//! A view: a ledger's file for a program that only reads it.

use crate::error::OpenError;
use crate::ledger::{Footprint, Mistakes, mistakes_in};
use crate::making::open::read_settings;
use crate::os;
use crate::report::memory_stat::item_names;
use crate::report::scan::Scan;
use crate::report::snapshot::{self, Snapshot};
use crate::report::statistics::Statistics;
use crate::sync::Ordering;
use crate::table::copy::Copy;
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A ledger in a file, for programs that only read it. A view needs no write permission, never writes, and costs the
/// charging processes nothing: it copies the used parts out of the file (by `pread`) and reads the copy.
///
/// It differs from [`Ledger::open_in`](crate::Ledger::open_in) as follows:
///
/// * The file may have been created for any number of CPUs, and its program may have ended.
/// * Statistics are read without collecting them, and of all groups at once.
/// * The file may become shorter, be written over or change in any way at any time. A reading is then an error, or has
///   [damaged](crate::GroupState::Damaged) groups. A mapped file that becomes shorter would kill its reader.
/// * A reading takes longer: some 1.5 µs a group, and memory for a copy of the used parts (about 1.3 KB a group and two
///   CPUs). A reading that takes more than ten seconds fails.
///
/// ```
/// use ledgerline::{Ledger, View};
/// # let path = std::env::temp_dir().join(format!("ledger-view-{}", std::process::id()));
/// # let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
/// let ledger = Ledger::builder().items(&["rows_read"]).create_in(&file)?;
/// let query = ledger.root().create("q1")?;
/// let charge = query.try_charge(1000)?;
/// query.add_stat(ledger.item("rows_read").unwrap(), 7);
///
/// // In any process that may read the file:
/// let view = View::open(std::fs::File::open(&path)?)?;
/// let reading = view.read()?;
/// assert_eq!(reading.snapshot.groups[1].path, "/q1");
/// assert_eq!(reading.snapshot.groups[1].current, 1000);
/// let rows_read = reading.statistics.line("rows_read").unwrap();
/// assert_eq!(reading.statistics.subtree(0, rows_read), 7);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct View {
    /// Locked while a thread reads.
    copy: Mutex<Copy>,
    capacity: u32,
    items: Vec<String>,
}

/// The result of one reading of a [`View`]. Each number is exact when writers are still. Otherwise each word was true at some
/// moment of the call, and the words of one group are read some ten microseconds apart: units may be off by those that the
/// group's cells fetched or gave back in that time, and charges by 127 for each CPU that charges it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// The groups, as in [`Ledger::snapshot`](crate::Ledger::snapshot).
    pub snapshot: Snapshot,
    /// The statistics of each group of the snapshot, by its index there.
    pub statistics: Statistics,
    /// When the reading began, by `CLOCK_MONOTONIC`.
    pub clock: Duration,
    /// Mistakes of callers, as far as they were detected.
    pub mistakes: Mistakes,
    /// How many processes failed to map the ledger because they had too little address space.
    pub turned_away: u64,
}

impl View {
    /// Opens a ledger in a file that is open for reading. The descriptor's position is not kept.
    ///
    /// # Errors
    /// If the file is not a ledger, has another version, contradicts itself, or cannot be read.
    pub fn open(file: File) -> Result<View, OpenError> {
        let settings = read_settings(&file, 1)?;
        let copy = Copy::new(settings, file)?;
        copy.read_header()?;
        let (capacity, items) = (copy.table().capacity(), item_names(copy.table()));
        Ok(View { copy: Mutex::new(copy), capacity, items })
    }

    /// Reads all groups and their statistics; see [`Reading`]. Repeats that for up to 20 ms while transfers or collections
    /// move numbers from one place to another; `steady` is `false` if one was under way in the end. One thread reads at a
    /// time. Costs 1.5 µs a group.
    ///
    /// # Errors
    /// If the file cannot be read, if it became shorter ([`io::ErrorKind::UnexpectedEof`]), or if it has so many groups and
    /// columns that ten seconds are not enough ([`io::ErrorKind::TimedOut`]).
    pub fn read(&self) -> io::Result<Reading> {
        let mut copy = self.lock();
        let clock = os::monotonic();
        let quiet = copy.read()?;
        let table = copy.table();
        let scan = Scan::of_copy(table, quiet.transfers);
        let mut summed = scan.clone();
        summed.sum_up();
        let snapshot = snapshot::of(table, &summed);
        let steady = quiet.collections;
        let statistics = Statistics::of(table, &scan, &snapshot, &self.items, steady);
        let mistakes = mistakes_in(table.header());
        let turned_away = table.header().turned_away.load(Ordering::Relaxed);
        Ok(Reading { snapshot, statistics, clock, mistakes, turned_away })
    }

    /// Returns a snapshot of the tree, like [`Ledger::snapshot`](crate::Ledger::snapshot). Costs 1 µs a group.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let mut copy = self.lock();
        let quiet = copy.read()?;
        let mut scan = Scan::of_copy(copy.table(), quiet.transfers);
        scan.sum_up();
        Ok(snapshot::of(copy.table(), &scan))
    }

    /// Returns the names of the ledger's own items, as they were when it was opened.
    pub fn item_names(&self) -> &[String] {
        &self.items
    }

    /// Returns the most groups at a time, the root included.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns an upper bound of the present groups: the rows that were ever used. Costs a few reads of the file.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub fn groups_at_most(&self) -> io::Result<u32> {
        let copy = self.lock();
        copy.read_header()?;
        copy.rows_in_use()
    }

    /// Returns the memory that the file takes, and its size.
    ///
    /// # Errors
    /// If the system does not report them.
    pub fn footprint(&self) -> io::Result<Footprint> {
        let metadata = self.lock().file().metadata()?;
        Ok(Footprint { resident: os::bytes_behind(&metadata), reserved: metadata.len() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Copy> {
        // A copy that a panic left incomplete is copied again.
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Reads the counters of another process.

use super::layout::{Header, View, read_layout};
use super::places::PlaceSnapshot;
use super::snapshot::CountersSnapshot;
use crate::region::Region;
use std::fs::File;
use std::io;

/// The table that another process keeps in a file ([`CountersBuilder::create_in`]), for reading. The file
/// names its items and places, so no item type is needed.
///
/// Everything in the file is checked. A damaged file gives an error or wrong numbers, and does no other
/// harm. But *truncating* a file while it is mapped takes the memory away from every process that maps
/// it. A memfd can be sealed against that.
///
/// [`CountersBuilder::create_in`]: super::CountersBuilder::create_in
///
/// ```
/// # use ledgerline::stat::{Counters, CountersFile, Places};
/// # use std::os::fd::FromRawFd;
/// # ledgerline::items! { enum Cache { #[doc = "Pages."] Pages = "nr_pages" } }
/// # // SAFETY: makes a file of its own.
/// # let file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"counters".as_ptr(), 0)) };
/// let places = Places::single("machine")?;
/// let counters = Counters::<Cache, i8>::builder(&places).create_in(&file)?;
/// counters.add(places.root(), Cache::Pages, 7);
///
/// let looking_on = CountersFile::open(&file)?;
/// assert_eq!(looking_on.table().value(0, "nr_pages"), Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CountersFile {
    view: View,
    items: Vec<String>,
    places: Vec<PlaceSnapshot>,
    #[allow(dead_code, reason = "keeps the memory mapped")]
    region: Region,
}

// SAFETY: the mapping is only read, by atomics, and mapped as long as `region`.
unsafe impl Send for CountersFile {}
// SAFETY: as above.
unsafe impl Sync for CountersFile {}

/// How many turns a reader waits for a fold to end. They are few: a fold takes microseconds, and the
/// process may have died in one.
const PATIENCE: u32 = 200;

impl CountersFile {
    /// Maps the file for reading. It need not be open for writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is not a file of counters, has another version, or is
    /// damaged. Another error if it cannot be mapped.
    pub fn open(file: &File) -> io::Result<CountersFile> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
        let length = file.metadata()?.len();
        let holds = |size: usize| u64::try_from(size).is_ok_and(|size| size <= length);
        if !holds(size_of::<Header>()) {
            return Err(invalid("this is no file of counters: it is too short"));
        }
        let start = Region::read_only(file, size_of::<Header>())?;
        // SAFETY: the mapping holds a header, which consists of atomics.
        let layout = read_layout(unsafe { &*start.at::<Header>(0) }).map_err(invalid)?;
        if !holds(layout.size) {
            return Err(invalid("this file of counters was cut off"));
        }
        let region = Region::read_only(file, layout.size)?;
        // SAFETY: the mapping has the layout's size, and lives as long as the view (S1).
        let view = unsafe { View::new(region.at(0), layout) };
        let damaged = || invalid("the names in this file of counters are damaged");
        let items = view.read_items().ok_or_else(damaged)?;
        let places = view.read_places().ok_or_else(damaged)?;
        Ok(CountersFile { view, items, places, region })
    }

    /// Returns the whole table as owned data.
    pub fn table(&self) -> CountersSnapshot {
        CountersSnapshot::read(&self.view, self.items.clone(), self.places.clone(), PATIENCE)
    }

    /// Returns whether a file begins like a file of counters, whatever follows.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_one(file: &File) -> io::Result<bool> {
        if file.metadata()?.len() < size_of::<Header>() as u64 {
            return Ok(false);
        }
        let start = Region::read_only(file, size_of::<Header>())?;
        // SAFETY: as in `open`.
        Ok(unsafe { &*start.at::<Header>(0) }.is_named())
    }
}

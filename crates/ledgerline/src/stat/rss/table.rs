//! The table of owners: one sparse region with their rows, their masks and the columns of cells.

use super::row::{MOVE_MAX, Row};
use super::{Kind, Pages};
use crate::percpu::{Words, columns_of_cpus};
use crate::region::Region;
use crate::region::free_list::FreeList;
use crate::region::row_set::Bits;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use std::fmt;
use std::io;

/// The most owners of a table.
const CAPACITY_MAX: u32 = 1 << 24;
const PAGE: usize = 4096;
/// How many words a cell has.
const KINDS: usize = Kind::ALL.len();

/// The id of an owner: a row, and how often it was used. The id of an owner that has gone is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId {
    pub(super) row: u32,
    pub(super) generation: u32,
}

/// Every row has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// How many rows the table has.
    pub capacity: u32,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table is full with {} owners", self.capacity)
    }
}

impl std::error::Error for Full {}

/// The owner has unregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the owner has unregistered")
    }
}

impl std::error::Error for Gone {}

/// Mistakes of callers, as counted by a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// How many updates of more than 2^46 pages at once, and sums past 2^47 pages, were clamped.
    pub clamped: u64,
    /// How many owners unregistered with a negative number of pages of a kind.
    pub negative: u64,
}

/// The first 128 bytes of the region, in the place of row 0, which the free list never holds.
#[repr(C)]
#[derive(Debug)]
struct Header {
    free: FreeList,
    /// Rows up to this one have been used.
    high_water: AtomicU32,
    clamped: AtomicU64,
    negative: AtomicU64,
}

const _: () = assert!(size_of::<Header>() <= size_of::<Row>());

/// Resident pages by owner. See the [module](super).
///
/// Threads may share it. It is usually in a `static LazyLock`, or leaked, so that owners are `Owner<'static>`. Making
/// it costs address space. In use it costs 128 bytes and a mask per owner, and 32 bytes for each CPU that ran a shared
/// owner.
#[derive(Debug)]
pub struct Table {
    header: *const Header,
    rows: *const Row,
    masks: *const AtomicU64,
    /// Words of a mask.
    mask_words: usize,
    pub(super) cells: Words,
    capacity: u32,
    region: Region,
}

// SAFETY: the region is accessed only through atomics and sections, and mapped as long as the table.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// Makes a table for up to `capacity` owners at a time.
    ///
    /// # Errors
    /// When `capacity` is zero or more than 2^24 - 1, or there is no address space for it.
    pub fn new(capacity: u32) -> io::Result<Table> {
        if !(1..CAPACITY_MAX).contains(&capacity) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a table has 1 to {} owners, not {capacity}", CAPACITY_MAX - 1),
            ));
        }
        let columns = columns_of_cpus() as usize;
        let rows = capacity as usize + 1;
        let mask_words = columns.div_ceil(64);
        let masks = rows * size_of::<Row>();
        let cells = (masks + rows * mask_words * 8).next_multiple_of(PAGE);
        let stride = (rows * KINDS * 8).next_multiple_of(PAGE);
        let size = stride.checked_mul(columns).and_then(|all| all.checked_add(cells));
        let region = Region::anonymous(size.ok_or(io::ErrorKind::OutOfMemory)?)?;
        Ok(Table {
            header: region.at(0),
            rows: region.at(0),
            masks: region.at(masks),
            mask_words,
            // SAFETY: the region has a column of `stride` bytes there for each possible CPU, and for strangers, and
            // lives as long as the table. The cells are written through `Words`, and by `close`, when the owner has no
            // other user.
            cells: unsafe { Words::new(region.at(cells), stride) },
            capacity,
            region,
        })
    }

    /// Takes a row for an owner.
    pub(super) fn take(&self) -> Result<OwnerId, Full> {
        let full = Full { capacity: self.capacity };
        let row = match self.header().free.pop(|row| self.checked(row).map(|row| &row.next)) {
            Some(row) => row,
            None => {
                // Relaxed: rows past the high water are untouched memory.
                let more = |rows| (rows < self.capacity).then(|| rows + 1);
                let high_water = &self.header().high_water;
                let taken = high_water.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
                taken.map_err(|_| full)? + 1
            }
        };
        let generation = self.row(row).generation.load(Ordering::Relaxed).wrapping_add(1);
        self.row(row).open(generation);
        Ok(OwnerId { row, generation })
    }

    /// Returns the pages of an owner, on any thread. They are exact if no writer of the owner is active, otherwise off
    /// by the pages that moved during the call. Costs a few loads, and a line for each CPU that ran the owner.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn read(&self, owner: OwnerId) -> Result<Pages, Gone> {
        let row = self.checked(owner.row).ok_or(Gone)?;
        // Acquire, partner of the Release in `Row::open`.
        if row.generation.load(Ordering::Acquire) != owner.generation {
            return Err(Gone);
        }
        let pages = self.sum(owner.row);
        // Partner of the fence in `close`: if any word was read after it was emptied, the generation
        // is seen to have changed.
        fence(Ordering::Acquire);
        if row.generation.load(Ordering::Relaxed) != owner.generation {
            return Err(Gone);
        }
        Ok(pages)
    }

    /// Adds `n` pages to an owner from other code, such as a reclaimer or a thread that returns pages of another. It
    /// is an atomic operation on the owner's row. Async-signal-safe. Clamps and counts as [`Mistakes`] describes.
    ///
    /// # Errors
    /// [`Gone`]. Nothing is changed then, even if the row has another owner by now.
    pub fn add_to(&self, owner: OwnerId, kind: Kind, n: i64) -> Result<(), Gone> {
        let row = self.checked(owner.row).ok_or(Gone)?;
        if row.generation.load(Ordering::Relaxed) != owner.generation {
            return Err(Gone);
        }
        let n = self.clamp(n);
        if row.add_elsewhere(owner.generation, kind, n).ok_or(Gone)? != 0 {
            self.header().clamped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Iterates over all owners with their pages.
    pub fn owners(&self) -> impl Iterator<Item = (OwnerId, Pages)> + '_ {
        (1..=self.header().high_water.load(Ordering::Relaxed)).filter_map(|row| {
            let generation = self.row(row).generation.load(Ordering::Relaxed);
            let id = OwnerId { row, generation };
            (generation % 2 == 1).then(|| self.read(id).ok()).flatten().map(|pages| (id, pages))
        })
    }

    /// Returns the mistakes of callers so far.
    pub fn mistakes(&self) -> Mistakes {
        Mistakes {
            clamped: self.header().clamped.load(Ordering::Relaxed),
            negative: self.header().negative.load(Ordering::Relaxed),
        }
    }

    /// Returns the bytes of memory that the table takes now.
    pub fn resident(&self) -> u64 {
        self.region.resident()
    }

    /// Returns how many owners it can have at a time.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Clamps `n` to the most that one update moves, and counts that.
    pub(super) fn clamp(&self, n: i64) -> i64 {
        let clamped = n.clamp(-MOVE_MAX, MOVE_MAX);
        if clamped != n {
            self.header().clamped.fetch_add(1, Ordering::Relaxed);
        }
        clamped
    }

    /// Puts a CPU into an owner's mask.
    pub(super) fn note(&self, row: u32, column: u32) {
        // Relaxed: a reader that must see the cell has synchronized with the update, and so sees this, too.
        self.mask(row)[column as usize / 64].fetch_or(1 << (column % 64), Ordering::Relaxed);
    }

    /// Iterates over the CPUs that ran an owner since it was shared.
    pub(super) fn ran_on(&self, row: u32) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(self.mask(row)).flat_map(|(at, word)| {
            Bits(word.load(Ordering::Relaxed)).map(move |bit| at * 64 + bit as u32)
        })
    }

    /// Returns the sum of an owner's words.
    pub(super) fn sum(&self, row: u32) -> Pages {
        let own = Kind::ALL.map(|kind| self.row(row).pages(kind));
        self.pages(row, own, |word| word.load(Ordering::Relaxed))
    }

    /// Ends an owner: empties all its words and frees its row. Returns the pages of the words.
    pub(super) fn close(&self, owner: OwnerId) -> Pages {
        let row = self.row(owner.row);
        let closed = owner.generation.wrapping_add(1);
        row.generation.store(closed, Ordering::Relaxed);
        // Partner of the fence in `read`.
        fence(Ordering::Release);
        let own = Kind::ALL.map(|kind| row.take(closed, kind));
        // No section is under way on these words: no other thread has the owner any more.
        let pages = self.pages(owner.row, own, |word| word.swap(0, Ordering::Relaxed));
        for word in self.mask(owner.row) {
            word.store(0, Ordering::Relaxed);
        }
        if pages.negative().is_some() {
            self.header().negative.fetch_add(1, Ordering::Relaxed);
        }
        self.header().free.push(owner.row, &row.next);
        pages
    }

    /// Adds the pages in an owner's cells to those of its row. A sum beyond an `i64`, which takes 2^16 largest
    /// updates, is clamped and counted.
    fn pages(&self, row: u32, own: [i128; 4], read: impl Fn(&AtomicU64) -> u64) -> Pages {
        let mut sums = own;
        for column in self.ran_on(row) {
            for (sum, kind) in sums.iter_mut().zip(Kind::ALL) {
                *sum += i128::from(read(self.cell(column, row, kind)) as i64 >> 1);
            }
        }
        Pages::from(sums.map(|sum| {
            let clamped = sum.clamp(i64::MIN.into(), i64::MAX.into());
            if clamped != sum {
                self.header().clamped.fetch_add(1, Ordering::Relaxed);
            }
            clamped as i64
        }))
    }

    fn header(&self) -> &Header {
        // SAFETY: the region begins with a header, zeroed at first, and is mapped as long as `self`.
        unsafe { &*self.header }
    }

    /// Returns the row of that number, if the table has it.
    fn checked(&self, row: u32) -> Option<&Row> {
        (1..=self.capacity).contains(&row).then(|| self.row(row))
    }

    pub(super) fn row(&self, row: u32) -> &Row {
        debug_assert!((1..=self.capacity).contains(&row));
        // SAFETY: rows are numbered from 1 to the capacity (`register`, `checked`), and the region has
        // room for them.
        unsafe { &*self.rows.add(row as usize) }
    }

    fn mask(&self, row: u32) -> &[AtomicU64] {
        debug_assert!((1..=self.capacity).contains(&row));
        // SAFETY: as in `row`. Each row has a mask of `mask_words` words there.
        unsafe {
            let mask = self.masks.add(row as usize * self.mask_words);
            std::slice::from_raw_parts(mask, self.mask_words)
        }
    }

    fn cell(&self, column: u32, row: u32, kind: Kind) -> &AtomicU64 {
        // SAFETY: a mask contains only valid columns, and the slot of a row of the table is within each.
        unsafe { self.cells.word(column, slot(row, kind)) }
    }
}

/// Returns the index of a word in a column.
#[inline(always)]
pub(super) fn slot(row: u32, kind: Kind) -> usize {
    row as usize * KINDS + kind as usize
}

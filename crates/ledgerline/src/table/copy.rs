//! A copy of a ledger's file in the private memory of a process that may only read the file.
//!
//! The file is read and never mapped: if it becomes shorter, a read returns an error, where a mapping would kill the
//! process. The copy is a [`Table`] that does not change while it is read, so the code for live tables also reads copies.
//!
//! ```text
//! header                                      number of rows ever used; transfers and collections so far
//! for each 256 rows:
//!   rows                                        their generations
//!   rows                                        their words, and the columns in which they have cells and sums
//!   cells, counts, sums in those columns
//!   totals, of rows that have any
//!   rows                                        their generations: a row that changed hands is free in the copy
//! header                                      transfers and collections: if not as before, all is copied again
//! ```
//!
//! So the parts of a row are read some ten microseconds apart. Parts of the file that belong to no row in use, most of
//! which are holes, are not read.
//!
//! The kernel copies an aligned word of eight bytes whole if source and destination have the same offset in their pages.
//! No processor guarantees that for its block copy; `tests/main/view.rs` checks it on the machine at hand. On a Xeon of
//! 2023 words are torn when the destination alone crosses a page while another thread unmaps memory. A torn word would be
//! a meaningless number for one look. So `fill` crosses a page only where source and destination both do.

use super::header::{Counts, Header};
use super::plan::Plan;
use super::row::{Row, state};
use super::{Settings, Table, rows_used};
use crate::counter::moves::Moves;
use crate::os;
use crate::percpu::STRIDE;
use crate::percpu::word::Cell;
use crate::region::Region;
use crate::region::row_set::Bits;
use crate::sync::Ordering;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The smallest page of any machine.
const PAGE: usize = 4096;
/// How many rows are copied at a time.
const CHUNK: usize = 256;
/// How often a copy is retried to find one without a transfer or a collection under way, and for how long retries begin.
const TRIES: u32 = 32;
const TRYING: Duration = Duration::from_millis(20);
/// The longest time that a copy may take, whatever numbers the file holds.
const LONGEST: Duration = Duration::from_secs(10);
/// The most cells that a copy reads: those of a million rows on 256 CPUs.
const CELLS_MAX: usize = 1 << 28;
/// With more columns than a row has bits for, the file's holes show which of them hold data.
const COLUMNS_TOLD: usize = 64;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Copy {
    file: File,
    table: Table,
    /// The rows of one chunk, as they were before and after it was copied.
    around: Region,
    /// How many rows of the copy may be in use.
    filled: usize,
    /// How many cells the rows of the present copy have.
    cells: usize,
}

// SAFETY: the copy's own mappings and descriptor may be used by any thread; all that changes them is `&mut`.
unsafe impl Send for Copy {}

/// Which kinds of moves between places of the ledger were certainly not under way during the copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    /// No transfer was under way: each unit is in one group (`counter/moves.rs`).
    pub(crate) transfers: bool,
    /// No collection was under way: each count is either in a cell or in the totals (`table/sums.rs`).
    pub(crate) collections: bool,
}

impl Copy {
    /// Returns an empty copy for a file with these settings.
    pub(crate) fn new(settings: Settings, file: File) -> io::Result<Copy> {
        let region = Region::anonymous(settings.plan.size())?;
        let table = Table::of_copy(settings, region)?;
        let around = Region::anonymous(2 * CHUNK * size_of::<Row>())?;
        Ok(Copy { file, table, around, filled: 0, cells: 0 })
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Copies all rows in use. After an error the copy is unusable until the next call succeeds.
    ///
    /// # Errors
    /// When the file cannot be read or has become shorter ([`io::ErrorKind::UnexpectedEof`]), and after ten seconds.
    pub(crate) fn read(&mut self) -> io::Result<Quiet> {
        let begun = Instant::now();
        let mut turn = 0;
        loop {
            turn += 1;
            let quiet = self.read_once(begun + LONGEST)?;
            // A writer that was killed in the middle of a move is waited for no longer than `TRYING`.
            let again = turn < TRIES && begun.elapsed() < TRYING;
            if quiet.transfers && quiet.collections || !again {
                return Ok(quiet);
            }
        }
    }

    fn read_once(&mut self, deadline: Instant) -> io::Result<Quiet> {
        self.read_header()?;
        let numbers =
            |copy: &Copy| [copy.table.transfers(), copy.table.collections()].map(Moves::quiet);
        let before = numbers(self);
        let told = self.told();
        let rows = self.rows_in_use()? as usize;
        self.cells = 0;
        for first in (0..rows).step_by(CHUNK) {
            self.read_chunk(first..(first + CHUNK).min(rows))?;
            // The following steps take time in proportion to the number of cells.
            if Instant::now() > deadline || self.cells > CELLS_MAX {
                let why = "the ledger is too large to be copied";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        // Rows that an earlier copy found beyond these no longer exist. Readers of the copy check the header's number once
        // more, by the rule that the row behind the last one was never used.
        (rows..self.filled).for_each(|row| self.row(row).blank());
        self.filled = rows;
        self.read_header()?;
        let after = numbers(self);
        // Store the number of rows that this copy was made with.
        self.table.header().given.high_water.store(told, Ordering::Release);
        let [transfers, collections] =
            [0, 1].map(|kind| before[kind].is_some() && before[kind] == after[kind]);
        Ok(Quiet { transfers, collections })
    }

    /// Copies the header alone.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub(crate) fn read_header(&self) -> io::Result<()> {
        self.fill(self.table.region(), 0, 0..size_of::<Header>())
    }

    /// Returns the number of rows ever used according to the copied header.
    fn told(&self) -> u32 {
        self.table.header().given.high_water.load(Ordering::Acquire)
    }

    /// Returns the number of rows ever used, checked against a few rows of the file.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub(crate) fn rows_in_use(&self) -> io::Result<u32> {
        let failed = std::cell::Cell::new(None);
        let used = |row: u32| {
            let place = Plan::ROWS + row as usize * size_of::<Row>();
            match self.fill(&self.around, 0, place..place + size_of::<Row>()) {
                Ok(()) => self.row_before(0).generation() != 0,
                Err(error) => {
                    failed.set(Some(error));
                    false
                }
            }
        };
        let rows = rows_used(self.told(), self.table.capacity(), used);
        failed.take().map_or(Ok(rows), Err)
    }

    fn read_chunk(&mut self, rows: Range<usize>) -> io::Result<()> {
        const ROW: usize = size_of::<Row>();
        let place = Plan::ROWS + rows.start * ROW..Plan::ROWS + rows.end * ROW;
        self.fill(&self.around, 0, place.clone())?;
        // A large part of a damaged file may be a hole.
        if rows.start >= self.filled && (0..rows.len()).all(|at| self.row_before(at).is_blank()) {
            return Ok(());
        }
        self.filled = self.filled.max(rows.end);
        self.fill(self.table.region(), place.start, place.clone())?;
        self.read_columns(&rows)?;
        self.fill(&self.around, CHUNK * ROW, place)?;
        for (at, row) in rows.enumerate() {
            let copied = self.row(row);
            let same =
                [self.row_before(at), self.row_before(CHUNK + at)].into_iter().all(|other| {
                    other.state.load(Ordering::Relaxed) != state::FREE
                        && other.is_of_generation_of(copied)
                });
            if !same {
                copied.state.store(state::FREE, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Copies the rows' cells, counts and sums in all columns, and their totals.
    fn read_columns(&mut self, rows: &Range<usize>) -> io::Result<()> {
        let plan = self.table.plan;
        let (mut cells, mut sums) = (Noted::new(), Noted::new());
        for row in rows.clone() {
            let noted = [self.row(row).columns_noted(), self.row(row).statistics_noted()];
            cells.add(row, noted[0]);
            sums.add(row, noted[1]);
            let bits = noted[0].count_ones() + noted[1].count_ones();
            self.cells += bits as usize * plan.columns.div_ceil(64);
        }
        let column = |column: usize| plan.first_column() + column * STRIDE;
        self.each_column(plan.first_column(), STRIDE, |number| {
            let Some(rows) = cells.rows(number % 64) else { return Ok(()) };
            self.read_items(column(number), size_of::<Cell>(), &rows)?;
            self.read_items(column(number) + plan.counts(), size_of::<Counts>(), &rows)
        })?;
        let stride = plan.statistics_stride();
        self.each_column(plan.statistics(), stride, |number| {
            let Some(rows) = sums.rows(number % 63) else { return Ok(()) };
            let column = plan.statistics() + number * stride;
            self.read_items(column, plan.statistics_width(), &rows)
        })?;
        let Some(rows) = sums.all() else { return Ok(()) };
        self.read_items(plan.totals(), plan.totals_width(), &rows)
    }

    /// Calls `read` for each of the columns from `first` on that may hold data.
    fn each_column(
        &self,
        first: usize,
        stride: usize,
        mut read: impl FnMut(usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let columns = self.table.plan.columns;
        let mut column = 0;
        while column < columns {
            if columns > COLUMNS_TOLD {
                match os::next_data(&self.file, first + column * stride) {
                    None => return Ok(()),
                    Some(data) => column = column.max((data - first) / stride),
                }
                if column >= columns {
                    return Ok(());
                }
            }
            read(column)?;
            column += 1;
        }
        Ok(())
    }

    fn read_items(&self, start: usize, width: usize, rows: &Range<usize>) -> io::Result<()> {
        let place = start + rows.start * width..start + rows.end * width;
        self.fill(self.table.region(), place.start, place)
    }

    /// Copies a part of the file to a place in a region.
    fn fill(&self, region: &Region, to: usize, from: Range<usize>) -> io::Result<()> {
        let length = from.len();
        assert!(length > 0 && to.checked_add(length).is_some_and(|end| end <= region.size()));
        // This keeps words whole; see the module's documentation. A region begins at a page.
        debug_assert!(to % PAGE + length <= PAGE || to % PAGE == from.start % PAGE);
        let start = region.at::<u8>(to).cast_mut();
        let mut done = 0;
        while done < length {
            // SAFETY: writes at most the rest of the part, which lies in the region (R1), as just checked. No other code
            // knows the region, and all references into it are to atomics, for which any bytes are valid.
            // Guarded by `tests/main/view.rs`, which compares copies with the ledger.
            let read = unsafe {
                os::read_at(&self.file, start.add(done), length - done, from.start + done)
            }?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
        Ok(())
    }

    fn row(&self, row: usize) -> &Row {
        self.table.row(row as u32)
    }

    /// Returns a row of `around`, by its place in the present chunk.
    fn row_before(&self, at: usize) -> &Row {
        // SAFETY: `at` checks the bounds; rows are all atomics, for which any bytes are valid.
        unsafe { &*self.around.at(at * size_of::<Row>()) }
    }
}

/// For each column bit, the range of rows in a chunk that have data in that column.
struct Noted([Option<Range<usize>>; 64]);

impl Noted {
    fn new() -> Noted {
        Noted([const { None }; 64])
    }

    fn add(&mut self, row: usize, bits: u64) {
        for bit in Bits(bits) {
            let rows = self.0[bit].get_or_insert(row..row + 1);
            *rows = rows.start.min(row)..rows.end.max(row + 1);
        }
    }

    fn rows(&self, bit: usize) -> Option<Range<usize>> {
        self.0[bit].clone()
    }

    /// Returns the range of rows that have any bit.
    fn all(&self) -> Option<Range<usize>> {
        let rows = self.0.iter().flatten().cloned();
        rows.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, View};
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn columns_that_hold_nothing_are_passed_over() {
        let file = memfd();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(b"x", 700 << 20).unwrap();
        assert_eq!(os::next_data(&file, 5 << 20), Some(700 << 20));
        assert_eq!(os::next_data(&file, (700 << 20) + 8), Some((700 << 20) + 8));
        assert_eq!(os::next_data(&file, 800 << 20), None);
    }

    #[test]
    fn rows_are_found_by_the_columns_in_which_they_have_something() {
        let mut bits = Noted::new();
        bits.add(7, 1 << 63 | 1);
        bits.add(9, 1);
        assert_eq!((bits.rows(0), bits.rows(63), bits.rows(1)), (Some(7..10), Some(7..8), None));
        assert_eq!(bits.all(), Some(7..10));
        assert_eq!(Noted::new().all(), None);
    }

    fn memfd() -> File {
        // SAFETY: creates a new file.
        unsafe { File::from_raw_fd(libc::memfd_create(c"copy".as_ptr(), 0)) }
    }

    /// Copies a part of a file, which may be large, and keeps its holes.
    fn put(from: &File, at: usize, to: &File, place: usize, length: usize) {
        const STEP: usize = 1 << 16;
        for offset in (0..length).step_by(STEP) {
            let mut part = vec![0; STEP.min(length - offset)];
            from.read_exact_at(&mut part, (at + offset) as u64).unwrap();
            if part.iter().any(|&byte| byte != 0) {
                to.write_all_at(&part, (place + offset) as u64).unwrap();
            }
        }
    }

    /// Imitates a ledger that was created on a machine with a hundred CPUs, of which few charged.
    #[test]
    fn a_ledger_with_more_columns_than_a_row_has_bits_for_is_read_as_any() {
        let (file, wide) = (memfd(), memfd());
        let ledger = Ledger::builder().capacity(1000).items(&["rows"]).create_in(&file).unwrap();
        for n in 1..=400 {
            let group = ledger.root().create(&format!("g{n}")).unwrap();
            group.charge_units(n).unwrap();
            group.add_stat(ledger.item("rows").unwrap(), 1);
        }
        let (old, new) = (ledger.table().plan, Plan { columns: 100, ..ledger.table().plan });
        assert!(old.columns < new.columns);
        wide.set_len(new.size() as u64).unwrap();
        put(&file, 0, &wide, 0, old.sets());
        for column in 0..old.columns {
            let [from, to] = [old, new].map(|plan| plan.first_column() + column * STRIDE);
            put(&file, from, &wide, to, STRIDE);
            let stride = old.statistics_stride();
            let [from, to] = [old, new].map(|plan| plan.statistics() + column * stride);
            put(&file, from, &wide, to, stride);
        }
        put(&file, old.totals(), &wide, new.totals(), old.size() - old.totals());
        let columns = std::mem::offset_of!(Header, columns) as u64;
        wide.write_all_at(&(new.columns as u32).to_le_bytes(), columns).unwrap();

        let [narrow, wide] = [file, wide].map(|file| View::open(file).unwrap().read().unwrap());
        assert_eq!(narrow.snapshot, ledger.snapshot());
        assert_eq!((wide.snapshot, wide.statistics), (narrow.snapshot, narrow.statistics));
    }
}

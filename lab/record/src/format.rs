//! The plan and the recording: words of 64 bits in this machine's order. The library in the program and the reader
//! of its files (`lab/recording`) both compile this file.
//!
//! ```text
//! plan:       MAGIC VERSION device inode heap
//!             n (low high)…                     operations: functions, addresses within the file's image
//!             n (address type)…                 objects that are there from the start
//!             n (low high)…                     allocation sites; none means all
//!             n (size type-or-AMBIGUOUS)…       sizes of blocks, ascending
//!             n (size cells length name… map…)… types; the map has a cell for each byte, four a word
//! recording:  header | sites | folds | neighbours | objects … | arena: threads, tables, rows
//! ```

/// How a plan begins.
pub(crate) const PLAN_MAGIC: u64 = u64::from_le_bytes(*b"ledgrPLN");
/// How a recording begins.
pub(crate) const RECORDING_MAGIC: u64 = u64::from_le_bytes(*b"ledgrREC");
/// The version of both. The library refuses a plan of another one.
pub(crate) const VERSION: u64 = 3;

/// The name of the plan within the recording's folder.
pub(crate) const PLAN: &str = "plan";
/// A recording is called this and the process id, with a number behind it where that name was taken.
pub(crate) const RECORDING: &str = "process-";
/// The variable that names the folder.
pub(crate) const VARIABLE: &str = "LEDGERLINE_RECORD";

/// Which blocks of the heap are taken for objects. The plan has the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Heap {
    /// None: globals and what the program says itself.
    None = 0,
    /// Blocks of a type's size, which may be rounded up to their alignment, and `calloc` with elements of it.
    #[default]
    Exact = 1,
    /// Blocks of a multiple of it, too.
    Arrays = 2,
}

/// The widest alignment to which a block's size is taken to be rounded up. A block of whole pages is a buffer.
pub(crate) const WIDEST_ALIGN: usize = 256;

/// Stands for the type of a size that several wanted types have.
pub(crate) const AMBIGUOUS: u64 = u64::MAX;
/// The cell of a byte that belongs to no field.
pub(crate) const NO_CELL: u16 = u16::MAX;

/// The ways of touching.
pub(crate) const KINDS: usize = 3;
pub(crate) const LOAD: usize = 0;
pub(crate) const STORE: usize = 1;
pub(crate) const ATOMIC: usize = 2;

/// At most so many of each in a plan.
pub(crate) const MOST_TYPES: usize = 4096;
pub(crate) const MOST_OPERATIONS: usize = 64;
pub(crate) const MOST_SITES: usize = 64;
/// Of a type, in bytes.
pub(crate) const LARGEST_TYPE: u64 = 1 << 20;
/// Of all types of a plan, in bytes.
pub(crate) const LARGEST_PLAN: u64 = 1 << 26;

/// Words of the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const PROCESS: usize = 2;
    /// One more than the objects there have been: ids below this are or were in use.
    pub(crate) const OBJECTS: usize = 3;
    /// Objects that were not noted: there was no room.
    pub(crate) const OBJECTS_LOST: usize = 4;
    /// Objects that were not noted: another lies there.
    pub(crate) const OVERLAPPING: usize = 5;
    pub(crate) const THREADS: usize = 6;
    /// Threads that came when there was no room.
    pub(crate) const THREADS_LOST: usize = 7;
    /// Blocks whose size several wanted types have.
    pub(crate) const AMBIGUOUS: usize = 8;
    /// The first such size.
    pub(crate) const AMBIGUOUS_SIZE: usize = 9;
    /// What recording costs, in picoseconds: a probe, what counting adds to it, what an operation adds.
    pub(crate) const PROBE_PS: usize = 10;
    pub(crate) const COUNT_PS: usize = 11;
    /// Sites and folds that found their tables full.
    pub(crate) const SITES_LOST: usize = 12;
    pub(crate) const FOLDS_LOST: usize = 13;
    /// Annotations with a name that is not a wanted type's.
    pub(crate) const UNKNOWN_NAMES: usize = 14;
    /// The head of the list of free objects.
    pub(crate) const FREE: usize = 15;
    pub(crate) const OPERATION_PS: usize = 16;
    /// Accesses and operations for whose counts there was no room.
    pub(crate) const TABLES_LOST: usize = 17;
    /// The alignment that the first block of an ambiguous size was asked with; 1 where none was.
    pub(crate) const AMBIGUOUS_ALIGN: usize = 18;
    /// Accesses of signal handlers that came while their thread had no block yet.
    pub(crate) const DROPPED: usize = 19;
    /// Offsets in bytes of threads' blocks.
    pub(crate) const FIRST_THREAD: usize = 64;
}

/// Threads that are told apart.
pub(crate) const MOST_THREADS: usize = 4096;

/// Where the parts begin, in bytes.
pub(crate) const SITES_AT: usize = 1 << 16;
/// Words of a row of the tables that follow: two of key and a count. An object has as many.
pub(crate) const ROW: usize = 3;
/// Rows of the table of sites. Each is a site: address within the image (or [`FOREIGN`]), type and one (and [`ROUNDED`]),
/// blocks.
pub(crate) const MOST_SITE_ROWS: usize = 1024;
/// The site of a block that code of another file asked for.
pub(crate) const FOREIGN: u64 = u64::MAX;
/// The bit of sites whose blocks are larger than the type: their size is rounded up to their alignment.
pub(crate) const ROUNDED: u64 = 1 << 32;
pub(crate) const FOLDS_AT: usize = SITES_AT + MOST_SITE_ROWS * ROW * 8;
/// Rows of objects that are gone. Each is: type and one (and [`UNASKED`]), users, how many.
pub(crate) const MOST_FOLDS: usize = 4096;
pub(crate) const NEIGHBOURS_AT: usize = FOLDS_AT + MOST_FOLDS * ROW * 8;
/// Rows of neighbours, which are two objects of one type that lay on one pair of lines until the first of them went. Each is:
/// [`neighbours`], those that used one of the two and not the other, how many.
pub(crate) const MOST_NEIGHBOURS: usize = 4096;
pub(crate) const OBJECTS_AT: usize = 1 << 20;
const _: () = assert!(NEIGHBOURS_AT + MOST_NEIGHBOURS * ROW * 8 <= OBJECTS_AT);

/// Bytes of a pair of lines.
pub(crate) const PAIR: usize = 128;

/// Two objects of a type in one word: the type and one, where in a pair of lines the first begins, and by how many bytes they
/// lie apart.
pub(crate) fn neighbours(ty: u64, first: usize, second: usize) -> u64 {
    (ty + 1) | ((first % PAIR) as u64) << 16 | ((second - first) as u64) << 32
}
/// Objects. Each is: start (or the next free one), type and one (and [`UNASKED`]), users.
pub(crate) const MOST_OBJECTS: usize = 1 << 24;
/// How many times it is in the type's word of a block that may be an array, where the user did not ask for arrays. It is
/// no object. Its users are 1 once it is used, so the reader can say that asking would help.
pub(crate) const UNASKED: u64 = 1 << 32;
pub(crate) const ARENA_AT: usize = OBJECTS_AT + MOST_OBJECTS * ROW * 8;
pub(crate) const ARENA_BYTES: usize = 8 << 30;

/// The bit of a thread in the word of an object's users; threads from this one on share it, and count as
/// several.
pub(crate) const MANY: usize = 63;

/// Words of a thread's block.
pub(crate) mod thread {
    pub(crate) const ID: usize = 0;
    /// 16 bytes.
    pub(crate) const NAME: usize = 1;
    pub(crate) const OPERATIONS: usize = 3;
    /// Calls of probes since the block is there.
    pub(crate) const PROBES: usize = 4;
    /// Of these, calls that counted something.
    pub(crate) const COUNTED: usize = 5;
    /// Accesses of signal handlers that came while the thread counted.
    pub(crate) const DROPPED: usize = 6;
    /// CPU time in nanoseconds, operations, probes and counted at the first measurement.
    pub(crate) const FIRST: usize = 7;
    /// The same at the last.
    pub(crate) const LAST: usize = 11;
    /// Its number in the process.
    pub(crate) const NUMBER: usize = 15;
    /// Whether an operation goes on: how deep in calls; 0 is none.
    pub(crate) const DEPTH: usize = 16;
    /// The stack pointer where it began.
    pub(crate) const STACK: usize = 17;
    /// The table that the operation touched last, as an offset; tables link on.
    pub(crate) const OPEN: usize = 18;
    /// Offsets of tables by type; 0 where the thread never touched the type.
    pub(crate) const TABLES: usize = 20;
}

/// Rows of a table: the first is what was touched outside of operations, the last what was touched in
/// combinations beyond those that have a row of their own.
pub(crate) const ROWS: usize = 34;
pub(crate) const OUTSIDE: usize = 0;
pub(crate) const REST: usize = ROWS - 1;

/// Words of a table: a thread's counts for a type.
pub(crate) mod table {
    use super::ROWS;
    /// The next table that the operation touched.
    pub(crate) const NEXT: usize = 0;
    /// Whether it is in that list.
    pub(crate) const LISTED: usize = 1;
    /// How many cells the operation touched.
    pub(crate) const TOUCHED: usize = 2;
    /// The row that was used last.
    pub(crate) const RECENT: usize = 3;
    /// How many rows there are, the first among them.
    pub(crate) const USED: usize = 4;
    /// Of which type.
    pub(crate) const TYPE: usize = 5;
    /// Offsets of rows.
    pub(crate) const FIRST_ROW: usize = 6;
    /// Then: the operation's cells as a mask, in order, its counts.
    pub(crate) const MASK: usize = FIRST_ROW + ROWS;
}

/// How large a type's tables and rows are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Cells of the type.
    pub(crate) cells: usize,
}

impl Shape {
    /// Words of a mask.
    pub(crate) fn mask(self) -> usize {
        self.cells.div_ceil(64)
    }

    /// Words of a list of cells.
    pub(crate) fn order(self) -> usize {
        self.cells.div_ceil(4)
    }

    /// Where a table's list of touched cells begins.
    pub(crate) fn table_order(self) -> usize {
        table::MASK + self.mask()
    }

    /// Where a table's counts of the operation begin.
    pub(crate) fn table_counts(self) -> usize {
        self.table_order() + self.order()
    }

    /// Words of a table.
    pub(crate) fn table(self) -> usize {
        self.table_counts() + KINDS * self.cells
    }

    // A row: how many operations, how many cells in order, the mask, the order, the counts.

    /// Where a row's mask begins.
    pub(crate) fn row_mask(self) -> usize {
        2
    }

    /// Where a row's list of cells begins.
    pub(crate) fn row_order(self) -> usize {
        2 + self.mask()
    }

    /// Where a row's counts begin.
    pub(crate) fn row_counts(self) -> usize {
        self.row_order() + self.order()
    }

    /// Words of a row.
    pub(crate) fn row(self) -> usize {
        self.row_counts() + KINDS * self.cells
    }
}

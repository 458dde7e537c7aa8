//! The plan and the recording: words of 64 bits in this machine's order. The recorder in the program writes
//! them, and `ledgerline_advise::recording` reads them.
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

/// The first word of a plan.
pub const PLAN_MAGIC: u64 = u64::from_le_bytes(*b"ledgrPLN");
/// The first word of a recording.
pub const RECORDING_MAGIC: u64 = u64::from_le_bytes(*b"ledgrREC");
/// The version of both. The library refuses a plan of another one.
pub const VERSION: u64 = 3;

/// The name of the plan within the recording's folder.
pub const PLAN: &str = "plan";
/// The prefix of a recording's name. The process id follows, with a number behind it if that name was taken.
pub const RECORDING: &str = "process-";
/// The variable that names the folder.
pub const VARIABLE: &str = "LEDGERLINE_RECORD";

/// The blocks of the heap that count as objects. The plan has the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Heap {
    /// None: globals, and objects that the program declares.
    None = 0,
    /// Blocks of a type's size, which may be rounded up to their alignment, and `calloc` with elements of it.
    #[default]
    Exact = 1,
    /// Also blocks of a multiple of it.
    Arrays = 2,
}

/// The widest alignment to which a block's size is assumed to be rounded up. A block of whole pages is a buffer.
pub const WIDEST_ALIGN: usize = 256;

/// Stands for the type of a size that several wanted types have.
pub const AMBIGUOUS: u64 = u64::MAX;
/// The cell of a byte that belongs to no field.
pub const NO_CELL: u16 = u16::MAX;

/// The ways of touching.
pub const KINDS: usize = 3;
pub const LOAD: usize = 0;
pub const STORE: usize = 1;
pub const ATOMIC: usize = 2;

/// The most of each in a plan.
pub const MOST_TYPES: usize = 4096;
pub const MOST_OPERATIONS: usize = 64;
pub const MOST_SITES: usize = 64;
/// The largest type, in bytes.
pub const LARGEST_TYPE: u64 = 1 << 20;
/// The largest total of a plan's types, in bytes.
pub const LARGEST_PLAN: u64 = 1 << 26;

/// Words of the header.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const PROCESS: usize = 2;
    /// One more than the number of objects so far: ids below this are or were in use.
    pub const OBJECTS: usize = 3;
    /// Objects that were not noted because there was no room.
    pub const OBJECTS_LOST: usize = 4;
    /// Objects that were not noted because another lies there.
    pub const OVERLAPPING: usize = 5;
    pub const THREADS: usize = 6;
    /// Threads that started when there was no room.
    pub const THREADS_LOST: usize = 7;
    /// Blocks whose size several wanted types have.
    pub const AMBIGUOUS: usize = 8;
    /// The first such size.
    pub const AMBIGUOUS_SIZE: usize = 9;
    /// The cost of recording, in picoseconds: a probe, what counting adds to it, what an operation adds.
    pub const PROBE_PS: usize = 10;
    pub const COUNT_PS: usize = 11;
    /// Sites and folds that found their tables full.
    pub const SITES_LOST: usize = 12;
    pub const FOLDS_LOST: usize = 13;
    /// Annotations with a name that is not a wanted type's.
    pub const UNKNOWN_NAMES: usize = 14;
    /// The head of the list of free objects.
    pub const FREE: usize = 15;
    pub const OPERATION_PS: usize = 16;
    /// Accesses and operations whose counts had no room.
    pub const TABLES_LOST: usize = 17;
    /// The requested alignment of the first block of an ambiguous size; 1 if there was none.
    pub const AMBIGUOUS_ALIGN: usize = 18;
    /// Accesses of signal handlers before their thread had a block.
    pub const DROPPED: usize = 19;
    /// Offsets in bytes of threads' blocks.
    pub const FIRST_THREAD: usize = 64;
}

/// The most threads that are distinguished.
pub const MOST_THREADS: usize = 4096;

/// The start of each part, in bytes.
pub const SITES_AT: usize = 1 << 16;
/// Words of a row of the tables that follow: two of key and a count. An object has as many.
pub const ROW: usize = 3;
/// Rows of the table of sites. Each is a site: address within the image (or [`FOREIGN`]), type and one (and
/// [`ROUNDED`]), blocks.
pub const MOST_SITE_ROWS: usize = 1024;
/// The site of a block that code of another file requested.
pub const FOREIGN: u64 = u64::MAX;
/// The bit of sites whose blocks are larger than the type: their size is rounded up to their alignment.
pub const ROUNDED: u64 = 1 << 32;
pub const FOLDS_AT: usize = SITES_AT + MOST_SITE_ROWS * ROW * 8;
/// Rows of objects that are gone. Each is: type and one (and [`UNASKED`]), users, how many.
pub const MOST_FOLDS: usize = 4096;
pub const NEIGHBOURS_AT: usize = FOLDS_AT + MOST_FOLDS * ROW * 8;
/// Rows of neighbours, which are two objects of one type that lay on one pair of lines until the first of them went.
/// Each is: [`neighbours`], the threads that used one of the two and not the other, how many.
pub const MOST_NEIGHBOURS: usize = 4096;
pub const OBJECTS_AT: usize = 1 << 20;
const _: () = assert!(NEIGHBOURS_AT + MOST_NEIGHBOURS * ROW * 8 <= OBJECTS_AT);

/// Bytes of a pair of lines.
pub const PAIR: usize = 128;

/// Packs two objects of a type into one word: the type and one, the start of the first in a pair of lines, and the
/// distance between them in bytes.
pub fn neighbours(ty: u64, first: usize, second: usize) -> u64 {
    (ty + 1) | ((first % PAIR) as u64) << 16 | ((second - first) as u64) << 32
}
/// Objects. Each is: start (or the next free one), type and one (and [`UNASKED`]), users.
pub const MOST_OBJECTS: usize = 1 << 24;
/// The unit of the count in the type's word of a block that may be an array, if the user did not request arrays. The
/// block is not an object. Its users are 1 once it is used, so the reader can report that requesting arrays would
/// help.
pub const UNASKED: u64 = 1 << 32;
pub const ARENA_AT: usize = OBJECTS_AT + MOST_OBJECTS * ROW * 8;
pub const ARENA_BYTES: usize = 8 << 30;

/// The bit of a thread in the word of an object's users. Threads from this one on share it, and count as several.
pub const MANY: usize = 63;

/// Words of a thread's block.
pub mod thread {
    pub const ID: usize = 0;
    /// 16 bytes.
    pub const NAME: usize = 1;
    pub const OPERATIONS: usize = 3;
    /// Calls of probes since the block exists.
    pub const PROBES: usize = 4;
    /// Of these, calls that counted something.
    pub const COUNTED: usize = 5;
    /// Accesses of signal handlers while the thread counted.
    pub const DROPPED: usize = 6;
    /// CPU time in nanoseconds, operations, probes and counted at the first measurement.
    pub const FIRST: usize = 7;
    /// The same at the last measurement.
    pub const LAST: usize = 11;
    /// Its number in the process.
    pub const NUMBER: usize = 15;
    /// The call depth of the current operation; 0 is none.
    pub const DEPTH: usize = 16;
    /// The stack pointer at its start.
    pub const STACK: usize = 17;
    /// The table that the operation touched last, as an offset; tables link on.
    pub const OPEN: usize = 18;
    /// Offsets of tables by type; 0 if the thread never touched the type.
    pub const TABLES: usize = 20;
}

/// Rows of a table. The first has the accesses outside of operations; the last has the combinations of fields beyond
/// those with a row of their own.
pub const ROWS: usize = 34;
pub const OUTSIDE: usize = 0;
pub const REST: usize = ROWS - 1;

/// Words of a table: a thread's counts for a type.
pub mod table {
    use super::ROWS;
    /// The next table that the operation touched.
    pub const NEXT: usize = 0;
    /// Whether it is in that list.
    pub const LISTED: usize = 1;
    /// The number of cells that the operation touched.
    pub const TOUCHED: usize = 2;
    /// The row that was used last.
    pub const RECENT: usize = 3;
    /// The number of rows, including the first.
    pub const USED: usize = 4;
    /// The type.
    pub const TYPE: usize = 5;
    /// Offsets of rows.
    pub const FIRST_ROW: usize = 6;
    /// Then: the operation's cells as a mask, in order, its counts.
    pub const MASK: usize = FIRST_ROW + ROWS;
}

/// The sizes of a type's tables and rows.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Cells of the type.
    pub cells: usize,
}

impl Shape {
    /// Words of a mask.
    pub fn mask(self) -> usize {
        self.cells.div_ceil(64)
    }

    /// Words of a list of cells.
    pub fn order(self) -> usize {
        self.cells.div_ceil(4)
    }

    /// Returns the start of a table's list of touched cells.
    pub fn table_order(self) -> usize {
        table::MASK + self.mask()
    }

    /// Returns the start of a table's counts of the operation.
    pub fn table_counts(self) -> usize {
        self.table_order() + self.order()
    }

    /// Words of a table.
    pub fn table(self) -> usize {
        self.table_counts() + KINDS * self.cells
    }

    // A row: how many operations, how many cells in order, the mask, the order, the counts.

    /// Returns the start of a row's mask.
    pub fn row_mask(self) -> usize {
        2
    }

    /// Returns the start of a row's list of cells.
    pub fn row_order(self) -> usize {
        2 + self.mask()
    }

    /// Returns the start of a row's counts.
    pub fn row_counts(self) -> usize {
        self.row_order() + self.order()
    }

    /// Words of a row.
    pub fn row(self) -> usize {
        self.row_counts() + KINDS * self.cells
    }
}

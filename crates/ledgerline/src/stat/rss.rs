//! Resident pages of owners. Reads are exact, an update takes about a nanosecond, and nothing is ever
//! flushed.
//!
//! A [`Table`] has a row for each owner (an address space, a thread, an arena) and a column of cells for
//! each CPU. The CPU that runs an owner adds to that owner's cell in its own column. A reader adds up the
//! cells of the CPUs that ran the owner; a mask in the row names them. Nothing is batched, so no update is
//! late, and nothing is flushed when a CPU switches to another owner.
//!
//! ```text
//! owner \ CPU  | own | elsewhere | mask | cpu0  cpu1  ...
//! 1 (single)   | 12  | -2        | -    | .     .         one thread: its own words, in the row
//! 2 (shared)   | 5   | .         | 0    | +7    .         many: the running CPU's cell
//! ```
//!
//! An [`Owner`] starts with one thread and costs only its row: each update is one plain instruction on the
//! row's own words. [`share`](Owner::share) makes it a [`SharedOwner`], for any number of threads. Other
//! code, such as a reclaimer, adds through [`Table::add_to`], to separate words.
//!
//! A cell is four words, one for each [`Kind`]. Bit 0 of a word is its mark. The first update of that owner
//! on that CPU sets it, after it has put the CPU into the row's mask. So later updates only read and write
//! their own word.
//!
//! ```
//! use ledgerline::stat::rss::{Kind, Table};
//!
//! let table = Table::new(1000)?;
//! let owner = table.register()?;
//! owner.add(Kind::Anon, 32);
//!
//! let owner = owner.share();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| owner.add(Kind::Anon, 32));
//!     scope.spawn(|| owner.add(Kind::File, 1));
//! });
//! table.add_to(owner.id(), Kind::Anon, -4)?; // somebody else's reclaim
//! assert_eq!(owner.read().resident(), 61);
//! assert_eq!(owner.unregister().anon, 60); // what was left
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Fork
//!
//! A forked child has a copy of the table as it was at the fork. Parent and child go on with their own
//! copies, and neither sees the other's updates. Owners of threads that the child does not have stay in its
//! copy until it drops them.

mod owner;
mod row;
mod table;

pub use owner::{Owner, SharedOwner};
pub use table::{Full, Gone, Mistakes, OwnerId, Table};

/// The kind of a page: the four that the kernel counts for an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Pages of files.
    File,
    /// Anonymous pages.
    Anon,
    /// Pages that were swapped out. They are not resident, but still count for the owner.
    Swap,
    /// Pages of shared memory.
    Shmem,
}

impl Kind {
    /// All kinds, in the order in which they are kept.
    pub const ALL: [Kind; 4] = [Kind::File, Kind::Anon, Kind::Swap, Kind::Shmem];
}

/// How many pages of each kind an owner has. A negative number means that the caller subtracted more than
/// was added, or, while updates are in flight, that a page moved from one CPU to another during the read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// [`Kind::File`].
    pub file: i64,
    /// [`Kind::Anon`].
    pub anon: i64,
    /// [`Kind::Swap`].
    pub swap: i64,
    /// [`Kind::Shmem`].
    pub shmem: i64,
}

impl Pages {
    /// Returns the pages of one kind.
    pub const fn of(self, kind: Kind) -> i64 {
        match kind {
            Kind::File => self.file,
            Kind::Anon => self.anon,
            Kind::Swap => self.swap,
            Kind::Shmem => self.shmem,
        }
    }

    /// Returns the resident pages: file, anonymous and shared; clamped at the ends of an `i64`.
    pub const fn resident(self) -> i64 {
        self.file.saturating_add(self.anon).saturating_add(self.shmem)
    }

    /// Returns the first kind of which more was subtracted than added.
    pub fn negative(self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|&kind| self.of(kind) < 0)
    }
}

impl From<[i64; 4]> for Pages {
    /// Takes the pages in the order of [`Kind::ALL`].
    fn from([file, anon, swap, shmem]: [i64; 4]) -> Pages {
        Pages { file, anon, swap, shmem }
    }
}

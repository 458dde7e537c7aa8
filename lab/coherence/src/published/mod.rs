//! Layout changes that others published with figures, as tests of the model out of sample.
//!
//! A [`Case`] is a file: what was published and where, the nearest machine, which CPU does what to which field, the
//! offsets before and after, and what the source leaves open, as ranges. [`Case::predict`] simulates both layouts at
//! points that fill the machine's ranges and the case's together, so that what nobody knows widens the interval.
//! [`Case::decide`] varies each range alone and names those on which the answer turns.
//!
//! Nothing is fitted on a published change. Where a source prints absolute figures, the work of an operation is chosen
//! so that the layout *before* takes what is printed, at each point by itself.
//!
//! ```
//! use ledgerline_coherence::published::Case;
//! let case = Case::built_in("sock-refcnt").unwrap();
//! let row = &case.predict(2).unwrap()[0];
//! assert!(row.published > 0.0 && row.right_sign());
//! assert!(Case::built_in("sock-color").is_none());
//! ```

mod decide;
mod file;
mod predict;
mod program;
mod text;

pub use decide::{Alone, Decided, turns_on};
pub use predict::Predicted;
pub use text::table;

use crate::machine::{Machine, Range};
use crate::text_file::BadFile;

/// A published change of a layout.
#[derive(Clone, Debug)]
pub struct Case {
    /// A short name.
    pub name: String,
    /// What moved where.
    pub title: String,
    /// Where it was published: a commit with its subject, an address, an issue.
    pub source: String,
    /// What the source says of the effect, in its words.
    pub says: String,
    /// The machine it is simulated on, with what the case changes in it.
    pub machine: Machine,
    /// The name of the machine file.
    pub machine_name: String,
    /// Why this machine stands for the one of the source.
    pub why_machine: String,
    /// The unit of the published figures.
    pub unit: String,
    /// What was published; each row with a number of CPUs of its own.
    pub rows: Vec<Row>,
    /// The work of an operation beside the fields.
    pub work: Work,
    /// What else the source leaves open.
    pub unknowns: Vec<(String, Range)>,
    /// What is taken for granted, in plain words.
    pub assumes: Vec<String>,
    fields: Vec<Field>,
    roles: Vec<Role>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// How many CPUs took part.
    pub cpus: usize,
    /// Throughput before and after, where both are printed, in the case's unit.
    pub throughput: Option<[f64; 2]>,
    /// The change of throughput from before to after, in per cent of before.
    pub change: f64,
    /// By how much the source says that this may be off, in per cent; zero where it says nothing.
    pub within: f64,
    /// Nanoseconds that a CPU spends on an operation before, where the source tells.
    pub before_ns: Option<f64>,
}

/// The work of an operation beside the fields that are simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Nanoseconds; nobody published them.
    Unknown(Range),
    /// What makes the layout before take the published time, for this reason.
    Fitted(String),
}

/// A field, or an array of which each CPU has an element of its own.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    /// Offsets in bytes before and after.
    offsets: [u64; 2],
    /// Bytes from one CPU's element to the next before and after; none of a field that all CPUs share.
    strides: Option<[u64; 2]>,
}

/// What a part of the CPUs repeats.
#[derive(Clone, Debug, PartialEq)]
struct Role {
    name: String,
    share: f64,
    steps: Vec<Doing>,
}

/// A step of a role, so many times.
#[derive(Clone, Debug, PartialEq)]
struct Doing {
    times: Quantity,
    what: What,
}

#[derive(Clone, Debug, PartialEq)]
enum Quantity {
    Number(f64),
    /// The unknown of this number.
    Unknown(usize),
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    /// This share of the operation's work.
    Work(f64),
    /// Nanoseconds, for instance while a lock is held.
    Nanoseconds(Quantity),
    /// A load that the next step waits for, or not; of every CPU's element, or of the field.
    Load {
        field: usize,
        overlapping: bool,
        of_all: bool,
    },
    Store(usize),
    Atomic(usize),
    /// Waits in a queue, and leaves it.
    Acquire(usize),
    Release(usize),
    /// Spins on a word, and frees it.
    Lock(usize),
    Unlock(usize),
    Together(Vec<Doing>),
}

/// The cases that come with the crate, each with its name and its text.
pub const BUILT_IN: [(&str, &str); 14] = [
    ("dentry-lockref", include_str!("../../published/dentry-lockref.toml")),
    ("dotnet-memory-cache", include_str!("../../published/dotnet-memory-cache.toml")),
    ("file-f-op", include_str!("../../published/file-f-op.toml")),
    ("file-f-ref", include_str!("../../published/file-f-ref.toml")),
    ("haproxy-pool", include_str!("../../published/haproxy-pool.toml")),
    ("haproxy-queues", include_str!("../../published/haproxy-queues.toml")),
    ("libcds-urcu", include_str!("../../published/libcds-urcu.toml")),
    ("libdb-buffer-header", include_str!("../../published/libdb-buffer-header.toml")),
    ("memcg-adjacent-lines", include_str!("../../published/memcg-adjacent-lines.toml")),
    ("mmap-lock-isolated", include_str!("../../published/mmap-lock-isolated.toml")),
    ("neighbour-refcnt", include_str!("../../published/neighbour-refcnt.toml")),
    ("rwsem-two-lines", include_str!("../../published/rwsem-two-lines.toml")),
    ("sock-refcnt", include_str!("../../published/sock-refcnt.toml")),
    ("vmmeter-counters", include_str!("../../published/vmmeter-counters.toml")),
];

impl Case {
    /// The case that comes with the crate under a name of [`BUILT_IN`].
    #[must_use]
    pub fn built_in(name: &str) -> Option<Case> {
        let (name, text) = file::FILES.built_in(name)?;
        Some(Case::parse(name, text).expect("a test reads every built-in case"))
    }

    /// Reads a case; `name` is what an error calls it.
    ///
    /// # Errors
    /// An error of one line says what is wrong, on which line, and what is expected.
    pub fn parse(name: &str, text: &str) -> Result<Case, BadFile> {
        file::parse(name, text)
    }

    /// Opens the built-in case of a name, or the file at a path.
    ///
    /// # Errors
    /// An error of one line: the file cannot be read, or [`Case::parse`] refuses it.
    pub fn open(name_or_path: &str) -> Result<Case, BadFile> {
        match Case::built_in(name_or_path) {
            Some(case) => Ok(case),
            None => Case::parse(name_or_path, &file::FILES.read(name_or_path)?),
        }
    }
}

#[cfg(test)]
mod tests;

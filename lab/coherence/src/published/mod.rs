//! Layout changes that others published with figures, as tests of the model out of sample.
//!
//! A [`Case`] is a file: the published change and its source, the nearest machine, the accesses of each CPU, the
//! offsets before and after, and, as ranges, the figures that the source leaves open. [`Case::predict`] simulates
//! both layouts at points that fill the machine's ranges and the case's together, so that unknown figures widen the
//! interval. [`Case::decide`] varies each range alone and names those that the answer depends on.
//!
//! Nothing is fitted on a published change. If a source prints absolute figures, the work of an operation is chosen
//! so that the layout *before* takes the printed time, at each point separately.
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
    /// The fields that moved, and where to.
    pub title: String,
    /// The place of publication: a commit with its subject, an address, an issue.
    pub source: String,
    /// The effect in the source's words.
    pub says: String,
    /// The simulated machine, with the case's changes to it.
    pub machine: Machine,
    /// The name of the machine file.
    pub machine_name: String,
    /// The reason why this machine stands for the source's.
    pub why_machine: String,
    /// The unit of the published figures.
    pub unit: String,
    /// The published figures, each with its own number of CPUs.
    pub rows: Vec<Row>,
    /// The work of an operation beside the fields.
    pub work: Work,
    /// The other figures that the source leaves open.
    pub unknowns: Vec<(String, Range)>,
    /// The assumptions, in plain words.
    pub assumes: Vec<String>,
    fields: Vec<Field>,
    roles: Vec<Role>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The number of CPUs that took part.
    pub cpus: usize,
    /// Throughput before and after, in the case's unit, if both are printed.
    pub throughput: Option<[f64; 2]>,
    /// The change of throughput from before to after, in per cent of before.
    pub change: f64,
    /// The error of the change by the source, in per cent; zero if the source gives none.
    pub within: f64,
    /// Nanoseconds of a CPU for an operation before, if the source gives them.
    pub before_ns: Option<f64>,
}

/// The work of an operation beside the fields that are simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Nanoseconds; they are not published.
    Unknown(Range),
    /// The work that makes the layout before take the published time, for this reason.
    Fitted(String),
}

/// A field, or an array with an element for each CPU.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    /// Offsets in bytes before and after.
    offsets: [u64; 2],
    /// Bytes from one CPU's element to the next before and after; `None` for a field that all CPUs share.
    strides: Option<[u64; 2]>,
}

/// The steps that a part of the CPUs repeats.
#[derive(Clone, Debug, PartialEq)]
struct Role {
    name: String,
    share: f64,
    steps: Vec<Doing>,
}

/// A step of a role, with its number of repetitions.
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
    /// Nanoseconds, such as those for which a lock is held.
    Nanoseconds(Quantity),
    /// A load that the next step may wait for, of the field or of every CPU's element.
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
    /// Returns the built-in case of a name in [`BUILT_IN`].
    #[must_use]
    pub fn built_in(name: &str) -> Option<Case> {
        let (name, text) = file::FILES.built_in(name)?;
        Some(Case::parse(name, text).expect("a test reads every built-in case"))
    }

    /// Reads a case; errors call it `name`.
    ///
    /// # Errors
    /// An error of one line gives the mistake, its line, and the expected form.
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

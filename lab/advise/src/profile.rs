//! Profiles: how often each role reads and writes each field of a type.
//!
//! A [`Profile`] is about operations. An operation is anything that the program repeats: a charge, a fault, a packet.
//! Each CPU plays a [`Role`]. An operation of that role computes for a while and goes through its [`Phase`]s, each a
//! number of times, and a phase touches fields. Accesses of one phase happen together: a phase that occurs once in 64
//! operations touches all of its fields then.
//!
//! [`Profile::open`] recognizes these formats by their content:
//!
//! | format | accesses | missing |
//! |---|---|---|
//! | TOML by hand, or of a recorder | as written | |
//! | tables of the kernel's `net_cachelines` | fields by path, transmission and reception | how often; how many objects |
//! | `perf c2c report --stdio` | addresses by CPU | operations; locked instructions |
//! | `perf mem report --stdio`, `perf mem -D report` | addresses, by CPU or thread where printed | operations |
//! | `perf.data`; `perf script` with addresses | addresses by CPU, weighed by period | operations |
//!
//! The objects in [`Known`] map addresses to fields. If operations are not known, one operation spans two accesses of
//! the busiest CPU to the field that it touches most: that field is touched once, others in proportion. In a table each
//! field is touched once. None of these formats has the other work of an operation, so that is taken to be 1000 ns.
//! Such a profile tells which CPUs share which fields, and which hot fields lie side by side. Its nanoseconds are
//! meaningful only after a user has corrected the work; [`Profile::to_toml`] writes the profile for that.
//!
//! ```
//! use ledgerline_advise::profile::{Access, Instances, Kind, Phase, Role, TypeProfile, WorkBasis};
//! let access = |field: &str, kind, times| Access { field: field.to_owned(), kind, times };
//! let counter = TypeProfile {
//!     name: "page_counter".to_owned(),
//!     instances: Instances::Shared,
//!     roles: vec![Role {
//!         name: "charge".to_owned(),
//!         share: 1.0,
//!         work_ns: 300.0,
//!         basis: WorkBasis::Stated,
//!         phases: vec![Phase {
//!             name: "walk".to_owned(),
//!             times: 1.0 / 64.0,
//!             accesses: vec![access("usage", Kind::Atomic, 1.0), access("max", Kind::Load, 1.0)],
//!         }],
//!     }],
//! };
//! assert_eq!(counter.times("usage", Kind::Atomic), 1.0 / 64.0);
//! ```

mod by_hand;
mod c2c;
mod dotted;
mod fields;
mod kinds;
mod known;
mod mem_report;
mod net_cachelines;
mod open;
mod perf_data;
mod samples;
mod script;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use ledgerline_coherence::layout::PAIR;
use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};
use serde::Serialize;

pub use fields::{find, lines};
pub use known::{Known, Object, Where};

/// The [`Role::name`] if all CPUs do the same and the profile has no name.
pub const EVERYONE: &str = "all";
/// The [`Phase::name`] of accesses that happen in every operation.
pub const ALWAYS: &str = "always";

/// The default work of an operation besides its accesses, in nanoseconds.
const WORK_NS: f64 = 1000.0;

/// The observed or assumed accesses of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The name of its source in errors and reports: a file.
    pub source: String,
    /// The machine file or built-in machine on which it was taken, if known.
    pub machine: Option<String>,
    /// The number of CPUs that took part, if known.
    pub cpus: Option<usize>,
    /// The types that it knows, in its own order.
    pub types: Vec<TypeProfile>,
    /// The line on which the source first names a field, for sources that people write.
    pub lines: BTreeMap<String, usize>,
}

/// The profile of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeProfile {
    /// The name in debug information.
    pub name: String,
    /// The number of its objects.
    pub instances: Instances,
    /// The roles that use them. Their shares add up to one.
    pub roles: Vec<Role>,
}

/// The number of objects of a type, and how CPUs share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// One, by all.
    #[default]
    Shared,
    /// One a CPU, each on lines of its own.
    PerCpu,
    /// One a CPU, in a row: elements of an array, or adjacent blocks of an allocator. Objects of neighbouring CPUs may
    /// share lines.
    Row(Row),
    /// A number of objects, dealt out to the CPUs in turn.
    Dealt(usize),
}

/// Objects that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Bytes from the start of an object to the start of the next.
    pub stride: u64,
    /// The offset of the first object in a pair of lines; `None` if only its alignment is known.
    pub begins: Option<u64>,
}

impl Row {
    /// Returns the largest power of two, up to a pair of lines, that divides the stride. All objects begin at multiples
    /// of it if the first does.
    #[must_use]
    pub fn base(self) -> u64 {
        (1 << self.stride.trailing_zeros().min(63)).min(PAIR)
    }

    /// Returns the row if the type has `size` bytes aligned to `align` instead of `today` bytes. The gap that an
    /// allocator or an enclosing record leaves between objects is kept.
    #[must_use]
    pub fn of_size(self, today: u64, size: u64, align: u64) -> Row {
        let align = align.max(1);
        let between = self.stride.saturating_sub(today);
        let stride = size.saturating_add(between).next_multiple_of(align);
        Row { stride, begins: self.begins.filter(|begins| begins.is_multiple_of(align.min(PAIR))) }
    }
}

impl Instances {
    /// Returns the row of the objects, if they lie in one.
    #[must_use]
    pub fn row(self) -> Option<Row> {
        match self {
            Instances::Row(row) => Some(row),
            _ => None,
        }
    }
}

/// The program that a share of the CPUs repeats.
#[derive(Clone, Debug, PartialEq)]
pub struct Role<A = Access> {
    /// Its name.
    pub name: String,
    /// Its share of the CPUs, from 0 to 1.
    pub share: f64,
    /// The time of an operation besides these accesses, in nanoseconds.
    pub work_ns: f64,
    /// The source of the work.
    pub basis: WorkBasis,
    /// Its accesses.
    pub phases: Vec<Phase<A>>,
}

impl Role {
    /// Returns a role that touches fields in every operation and whose work is not known.
    fn supposed(name: &str, share: f64, accesses: Vec<Access>) -> Role {
        let phases = vec![Phase { name: ALWAYS.to_owned(), times: 1.0, accesses }];
        let basis = WorkBasis::Stated;
        Role { name: name.to_owned(), share, work_ns: WORK_NS, basis, phases }
    }
}

/// The source of an operation's work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WorkBasis {
    /// It is stated.
    #[default]
    Stated,
    /// It lies between two figures, in nanoseconds.
    Within {
        /// The least.
        low: f64,
        /// The most.
        high: f64,
    },
    /// An operation was timed as a whole, waits included: the work has to be found ([`settle`](crate::cost::settle)).
    Takes {
        /// The time on today's layout, in nanoseconds.
        ns: f64,
        /// The part of it that recording took.
        recording_ns: f64,
    },
    /// An operation was timed while its thread ran alone: the work has to be found from that.
    Alone {
        /// The time alone, in nanoseconds.
        ns: f64,
        /// The time on today's layout beside all others, in nanoseconds, if that was measured too.
        takes_ns: Option<f64>,
    },
}

/// Accesses that happen together.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase<A = Access> {
    /// Its name.
    pub name: String,
    /// Occurrences in an operation, on average; less than one for a rare phase.
    pub times: f64,
    /// The accesses, in order.
    pub accesses: Vec<A>,
}

/// An access to a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The field's path from the type, as `layout show --expand` prints it: `memory.usage`, `stat[3]`.
    pub field: String,
    /// The kind of access.
    pub kind: Kind,
    /// Occurrences in a phase, on average.
    pub times: f64,
}

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Read.
    Load,
    /// Written.
    Store,
    /// Changed by an atomic instruction.
    Atomic,
}

impl Kind {
    /// Returns whether it takes the line from other CPUs.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Kind::Load
    }

    /// Returns the word of a profile for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Atomic => "atomic",
        }
    }
}

impl TypeProfile {
    /// Returns all accesses, in the order of the profile.
    fn accesses(&self) -> impl Iterator<Item = &Access> {
        let phases = self.roles.iter().flat_map(|role| &role.phases);
        phases.flat_map(|phase| &phase.accesses)
    }

    /// Returns how often an operation touches a field in a way, averaged over all CPUs.
    #[must_use]
    pub fn times(&self, field: &str, kind: Kind) -> f64 {
        let mut sum = 0.0;
        for role in &self.roles {
            for phase in &role.phases {
                let here = phase.accesses.iter().filter(|a| a.field == field && a.kind == kind);
                sum += role.share * phase.times * here.map(|access| access.times).sum::<f64>();
            }
        }
        sum
    }
}

/// Returns the error of a file that cannot be read.
fn cannot(error: &std::io::Error) -> Error {
    Error::new(format!("cannot be read ({error})"))
}

impl Profile {
    /// Returns the line that names the first field of `of` that the type does not have, if the source has lines.
    #[must_use]
    pub fn line_of_unknown(&self, types: &Types, id: TypeId, of: &TypeProfile) -> Option<usize> {
        let unknown = of.accesses().find(|access| find(types, id, &access.field).is_none())?;
        self.lines.get(&unknown.field).copied()
    }

    /// Returns the profile as TOML, which [`Profile::open`] and [`Profile::parse`] read.
    ///
    /// All accesses of a phase to one field are written at the place of the first. The source of the profile
    /// ([`Profile::source`]) is not written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// Returns the profile of a type.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&TypeProfile> {
        self.types.iter().find(|of| of.name == name)
    }
}

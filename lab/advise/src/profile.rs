//! Who reads and writes which field of a type, how often.
//!
//! A [`Profile`] speaks of operations: whatever the program repeats (a charge, a fault, a packet). Each CPU
//! plays a [`Role`]; an operation of that role computes for a while and goes through its [`Phase`]s, each
//! so many times, and a phase touches fields. What happens in one phase happens together: a phase that comes
//! once in 64 operations touches all of its fields then.
//!
//! [`Profile::open`] tells these apart by their content:
//!
//! | what | who touches what | what it cannot say |
//! |---|---|---|
//! | TOML by hand, or of a recorder | as written | |
//! | tables of the kernel's `net_cachelines` | fields by path, transmission and reception | how often; how many objects |
//! | `perf c2c report --stdio` | addresses by CPU | operations; locked instructions |
//! | `perf mem report --stdio`, `perf mem -D report` | addresses, by CPU or thread where printed | operations |
//! | `perf.data`; `perf script` with addresses | addresses by CPU, weighed by period | operations |
//!
//! Addresses become fields by the objects in [`Known`]. Where operations are not known, one is what lies between
//! two accesses of the busiest CPU to the field that it touches most: that field is touched once, others in
//! proportion. In a table each field is touched once. None of these formats knows the other work of an operation, so
//! that is taken to be 1000 ns. Such a profile says which CPUs share which fields, and which hot fields lie side by
//! side. It says nanoseconds once somebody has corrected it ([`Profile::to_toml`] writes it down for that).
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

/// What [`Role::name`] is where all CPUs do the same and nobody named it.
pub const EVERYONE: &str = "all";
/// What [`Phase::name`] is for what happens in every operation.
pub const ALWAYS: &str = "always";

/// The time that an operation is taken to need besides its accesses where nobody knows, in nanoseconds.
const WORK_NS: f64 = 1000.0;

/// What was seen, or is believed, of a program's accesses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Where it comes from, as an error or a report names it: a file.
    pub source: String,
    /// The machine file or built-in machine on which it was taken, where it says so.
    pub machine: Option<String>,
    /// How many CPUs took part, where it says so.
    pub cpus: Option<usize>,
    /// The types it knows, in its own order.
    pub types: Vec<TypeProfile>,
    /// On which line of the source a field is first named, where people write them.
    pub lines: BTreeMap<String, usize>,
}

/// What a profile says of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeProfile {
    /// As the type is spelt in debug information.
    pub name: String,
    /// How many objects of it there are.
    pub instances: Instances,
    /// The roles that use them; their shares add up to one.
    pub roles: Vec<Role>,
}

/// How many objects of a type CPUs use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// One, by all.
    #[default]
    Shared,
    /// One a CPU, each on lines of its own.
    PerCpu,
    /// One a CPU, in a row: elements of an array, or what an allocator laid side by side. Lines may be shared by objects of
    /// CPUs that follow each other.
    Row(Row),
    /// So many, dealt out to the CPUs in turn.
    Dealt(usize),
}

/// Objects that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Bytes from the start of an object to the start of the next.
    pub stride: u64,
    /// Where in a pair of lines the first begins; `None` where its alignment alone is known.
    pub begins: Option<u64>,
}

impl Row {
    /// What the stride is a multiple of, up to a pair of lines. All objects begin at multiples of that if the first does.
    #[must_use]
    pub fn base(self) -> u64 {
        (1 << self.stride.trailing_zeros().min(63)).min(PAIR)
    }

    /// The row when the type has `size` bytes aligned to `align` and not `today` bytes. What an allocator, or a record around
    /// it, has between objects is there still.
    #[must_use]
    pub fn of_size(self, today: u64, size: u64, align: u64) -> Row {
        let align = align.max(1);
        let between = self.stride.saturating_sub(today);
        let stride = size.saturating_add(between).next_multiple_of(align);
        Row { stride, begins: self.begins.filter(|begins| begins.is_multiple_of(align.min(PAIR))) }
    }
}

impl Instances {
    /// The row in which objects lie, if they do.
    #[must_use]
    pub fn row(self) -> Option<Row> {
        match self {
            Instances::Row(row) => Some(row),
            _ => None,
        }
    }
}

/// What a part of the CPUs does over and over.
#[derive(Clone, Debug, PartialEq)]
pub struct Role<A = Access> {
    /// What people call it.
    pub name: String,
    /// Which part of the CPUs, from 0 to 1.
    pub share: f64,
    /// The time of an operation besides these accesses, in nanoseconds.
    pub work_ns: f64,
    /// How that is known.
    pub basis: WorkBasis,
    /// What it touches.
    pub phases: Vec<Phase<A>>,
}

impl Role {
    /// One that touches fields in every operation, of whose work nothing is known.
    fn supposed(name: &str, share: f64, accesses: Vec<Access>) -> Role {
        let phases = vec![Phase { name: ALWAYS.to_owned(), times: 1.0, accesses }];
        let basis = WorkBasis::Stated;
        Role { name: name.to_owned(), share, work_ns: WORK_NS, basis, phases }
    }
}

/// How the work of an operation is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WorkBasis {
    /// It is stated.
    #[default]
    Stated,
    /// It is somewhere between two figures, in nanoseconds.
    Within {
        /// At least.
        low: f64,
        /// At most.
        high: f64,
    },
    /// An operation was timed as a whole, waits included: the work is to be found
    /// ([`settle`](crate::cost::settle)).
    Takes {
        /// What it took on today's layout, in nanoseconds.
        ns: f64,
        /// Which part of that recording took.
        recording_ns: f64,
    },
    /// An operation was timed where its thread ran alone: the work is to be found from that.
    Alone {
        /// What it took alone, in nanoseconds.
        ns: f64,
        /// What it took on today's layout with all others, in nanoseconds, if that was timed as well.
        takes_ns: Option<f64>,
    },
}

/// What is touched together.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase<A = Access> {
    /// What people call it.
    pub name: String,
    /// How many times an operation, on average; less than one for what is rare.
    pub times: f64,
    /// In order.
    pub accesses: Vec<A>,
}

/// A field is touched.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The field's path from the type, as `layout show --expand` prints it: `memory.usage`, `stat[3]`.
    pub field: String,
    /// How.
    pub kind: Kind,
    /// How many times a phase, on average.
    pub times: f64,
}

/// How a field is touched.
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
    /// Whether it takes the line from others.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Kind::Load
    }

    /// As a profile spells it.
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
    /// All accesses, in the order of the profile.
    fn accesses(&self) -> impl Iterator<Item = &Access> {
        let phases = self.roles.iter().flat_map(|role| &role.phases);
        phases.flat_map(|phase| &phase.accesses)
    }

    /// How often an operation touches a field in a way, averaged over all CPUs.
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

/// What is said of a file that cannot be read.
fn cannot(error: &std::io::Error) -> Error {
    Error::new(format!("cannot be read ({error})"))
}

impl Profile {
    /// The line that names the first field of `of` that the type does not have, if the source has lines.
    #[must_use]
    pub fn line_of_unknown(&self, types: &Types, id: TypeId, of: &TypeProfile) -> Option<usize> {
        let unknown = of.accesses().find(|access| find(types, id, &access.field).is_none())?;
        self.lines.get(&unknown.field).copied()
    }

    /// The profile as TOML, which [`Profile::open`] and [`Profile::parse`] read.
    ///
    /// All accesses of a phase to one field are written in the place of the first. Where the profile came from
    /// ([`Profile::source`]) is not written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// What it says of a type.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&TypeProfile> {
        self.types.iter().find(|of| of.name == name)
    }
}

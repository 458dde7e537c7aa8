//! Machines as data: topology, latencies with their sources, and ranges for figures that are not published.
//!
//! A [`Machine`] holds the contents of a machine file. The simulator runs on [`Settings`], which is one choice out of
//! the machine's ranges: [`Machine::best`], or one of the points of [`Machine::design`], which fill the ranges
//! evenly.

mod file;
mod settings;
mod topology;
mod write;

pub use file::{Figure, Range};
pub use settings::Settings;
pub use topology::{Distance, Topology};

use crate::text_file::BadFile;
use serde::Deserialize;

/// A machine as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The machine's name.
    pub name: String,
    /// The clock, in billions of cycles a second.
    pub clock_ghz: Figure,
    /// The sockets, complexes and cores that its CPUs belong to.
    pub topology: Topology,
    /// The source of the topology.
    pub topology_source: String,
    /// Latencies that a published source states, in nanoseconds.
    pub latency: Latencies,
    /// Figures that no source states, each with its plausible range.
    pub nuisance: Nuisance,
}

/// A field of one of a machine file's tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<V> {
    /// Its name in the file.
    pub name: &'static str,
    /// Its meaning, in a few words.
    pub says: &'static str,
    /// Its value in the file.
    pub value: V,
    /// The smallest and the largest permitted value.
    pub within: (f64, f64),
}

/// A table of a machine file. Each field is described once: its meaning in a few words, and the smallest and the
/// largest permitted value.
macro_rules! table {
    ($(#[$table:meta])* $name:ident of $value:ident, $all:ident, $all_mut:ident {
        $($(#[$meta:meta])* $field:ident: $says:literal, $within:expr;)*
    }) => {
        $(#[$table])*
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$meta])* pub $field: $value,)*
        }

        impl $name {
            /// Returns all fields, in the order of the file.
            #[must_use]
            pub fn $all(&self) -> Vec<Entry<&$value>> {
                vec![$(table!($field, $says, $within, &self.$field)),*]
            }

            /// Returns all fields for changing, in the order of the file.
            pub fn $all_mut(&mut self) -> Vec<Entry<&mut $value>> {
                vec![$(table!($field, $says, $within, &mut self.$field)),*]
            }
        }
    };
    ($field:ident, $says:literal, $within:expr, $value:expr) => {
        Entry { name: stringify!($field), says: $says, value: $value, within: $within }
    };
}

/// The limits of a latency, of a share, and of a time in nanoseconds.
const LATENCY: (f64, f64) = (0.001, 1e6);
const SHARE: (f64, f64) = (0.0, 1.0);
const NS: (f64, f64) = (0.0, 10_000.0);

table! {
    /// The time in which an idle machine brings a line, in nanoseconds.
    Latencies of Figure, figures, figures_mut {
        /// A load that depends on another, from the CPU's first cache.
        first_cache: "first cache", LATENCY;
        /// The same from the core's second cache.
        second_cache: "second cache", LATENCY;
        /// From the other hardware thread of the core.
        #[serde(default = "Figure::unsaid")]
        sibling: "sibling thread", LATENCY;
        /// Within a complex (cores that share a last cache), a line that no CPU has changed.
        near_clean: "near, clean", LATENCY;
        /// Within a complex, a line that its owner has changed.
        near_modified: "near, modified", LATENCY;
        /// From another complex of the same socket, clean.
        #[serde(default = "Figure::unsaid")]
        socket_clean: "same socket, clean", LATENCY;
        /// From another complex of the same socket, changed.
        #[serde(default = "Figure::unsaid")]
        socket_modified: "same socket, modified", LATENCY;
        /// From another socket, when the line's memory belongs to the socket that has it.
        #[serde(default = "Figure::unsaid")]
        remote_homed_at_owner: "other socket, homed at owner", LATENCY;
        /// From another socket, when the line's memory belongs to the socket that asks.
        #[serde(default = "Figure::unsaid")]
        remote_homed_at_reader: "other socket, homed at reader", LATENCY;
        /// From a socket two hops away.
        #[serde(default = "Figure::unsaid")]
        far: "two links away", LATENCY;
        /// From memory of the socket that asks.
        memory_local: "memory, local", LATENCY;
        /// From memory of another socket.
        #[serde(default = "Figure::unsaid")]
        memory_remote: "memory, remote", LATENCY;
        /// The time of an atomic read-modify-write beyond that of a load, once the line has arrived.
        atomic: "atomic, beyond the load", LATENCY;
        /// The time of an atomic beyond that of a load if the line comes from another core. It equals `atomic` if a
        /// file does not state it.
        #[serde(default = "Figure::unsaid")]
        atomic_moved: "atomic on a line from another core, beyond the load", LATENCY;
    }
}

table! {
    /// Figures that decide contended costs and stand in no published table. The crate's README explains each.
    Nuisance of Range, ranges, ranges_mut {
        /// Share of a transfer's latency during which the line can serve no other CPU, 0 to 1.
        handover: "share of a transfer during which a line serves no CPU", (0.01, 1.0);
        /// Factor on all transfers of the latency table, since they were measured on sister parts.
        latency_scale: "factor on all transfers", (0.1, 10.0);
        /// Nanoseconds between two readers of a line without an owner.
        read_service_ns: "ns between two readers (fitted)", NS;
        /// Nanoseconds for which an owner keeps a line that has arrived.
        keep_ns: "ns that an owner keeps a line", NS;
        /// Probability that a line's neighbour in its 128-byte pair is fetched along with it.
        pair: "probability that the neighbour is fetched too", SHARE;
        /// Share of a load's wait that independent work hides, 0 to 1, where the program allows it.
        overlap: "share of a load's wait that is hidden", SHARE;
        /// Stores that may wait for their lines before the CPU has to wait.
        store_buffer: "stores that may wait", (1.0, 1024.0);
        /// Share of a transfer's latency that passes before the request reaches the line, 0 to 1. Until then the CPU
        /// that holds the line goes on using it. Zero if a file does not state it.
        #[serde(default = "Range::zero")]
        request: "share of a transfer that is the request's way to the line", SHARE;
        /// Whether a read of a line that another CPU has changed takes it away from there, so that the reader may
        /// write it: 0 or 1, or the belief in it. Zero if a file does not state it.
        #[serde(default = "Range::zero")]
        migratory: "whether a line that was changed moves as a whole to who reads it", SHARE;
        /// Relative variation of an owner's hold time, evenly to both sides, 0 to 1. Zero if a file does not state
        /// it.
        #[serde(default = "Range::zero")]
        keep_spread: "share by which stays differ", SHARE;
        /// Fraction of the hold time after an upgrade: the CPU already had a copy, so it waited for no data. 0 to 1.
        /// One if a file does not state it.
        #[serde(default = "Range::one")]
        upgrade_keep: "share of a stay with a line of which there was a copy", SHARE;
        /// Whether an atomic requests its line while earlier stores of its CPU, which it may not overtake, are still
        /// on their way: 0 or 1, or the belief in it. Zero if a file does not state it.
        #[serde(default = "Range::zero")]
        early_request: "whether atomics ask for lines while stores are on their way", SHARE;
        /// Nanoseconds for which an atomic needs its line. If another CPU's request is granted sooner than that, the
        /// atomic does not begin, and fetches the line again. Zero if a file does not state it.
        #[serde(default = "Range::zero")]
        closing_ns: "for how long an atomic needs its line (ns)", NS;
        /// Nanoseconds of work that a CPU does while it waits, if the work does not need the awaited line. Zero if a
        /// file does not state it.
        #[serde(default = "Range::zero")]
        window_ns: "work that goes on while a CPU waits (ns)", NS;
        /// Nanoseconds after the arrival of its line during which an atomic is not final: a load of the line behind
        /// it is repeated if another CPU's request comes to the line in that time. It does not apply to programs that
        /// know their places in advance. Zero if a file does not state it.
        #[serde(default = "Range::zero")]
        behind_ns: "until when a load behind an atomic may be lost (ns)", NS;
        /// Share of an atomic hit that its CPU does not wait for: the value is known and later work goes on, except
        /// another atomic. 0 to 1. Zero if a file does not state it.
        #[serde(default = "Range::zero")]
        atomic_ahead: "share of an atomic that its CPU does not wait for", SHARE;
        /// Nanoseconds before its turn at which a CPU requests the line of an access whose place it knows. It
        /// requests the line again each time it loses it before that turn. Zero if a file does not state it.
        #[serde(default = "Range::zero")]
        lead_ns: "how long before its turn a line is asked for (ns)", NS;
        /// Nanoseconds to restart behind a load that was done before its turn, if its line was taken meanwhile. Zero
        /// if a file does not state it.
        #[serde(default = "Range::zero")]
        flush_ns: "what it takes to begin anew behind a load (ns)", NS;
    }
}

/// The machine files that come with the crate, each with its name and its text.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("haswell-ep-2699v3", include_str!("../../machines/haswell-ep-2699v3.toml")),
    ("broadwell-2x22", include_str!("../../machines/broadwell-2x22.toml")),
    ("four-socket-144", include_str!("../../machines/four-socket-144.toml")),
    ("skylake-sp-8180", include_str!("../../machines/skylake-sp-8180.toml")),
    ("epyc-milan", include_str!("../../machines/epyc-milan.toml")),
    ("zen4-2vcpu", include_str!("../../machines/zen4-2vcpu.toml")),
];

impl Machine {
    /// Returns the built-in machine of a name in [`BUILT_IN`].
    ///
    /// ```
    /// use ledgerline_coherence::machine::Machine;
    /// let machine = Machine::built_in("broadwell-2x22").unwrap();
    /// assert_eq!(machine.topology.cpus(), 88);
    /// assert!(Machine::built_in("abacus").is_none());
    /// ```
    #[must_use]
    pub fn built_in(name: &str) -> Option<Machine> {
        let (name, text) = file::FILES.built_in(name)?;
        Some(Machine::parse(name, text).expect("a test reads every built-in machine"))
    }

    /// Reads a machine file; errors call it `name`.
    ///
    /// # Errors
    /// An error of one line names the file, the line, what is wrong and what is expected.
    pub fn parse(name: &str, text: &str) -> Result<Machine, BadFile> {
        file::parse(name, text)
    }

    /// Opens the built-in machine of a name, or the machine file at a path.
    ///
    /// A built-in name means the built-in machine; write `./name` for a file of the same name.
    ///
    /// ```
    /// use ledgerline_coherence::machine::Machine;
    /// assert_eq!(Machine::open("epyc-milan").unwrap().topology.cpus(), 192);
    /// let error = Machine::open("epyc-tokyo").unwrap_err().to_string();
    /// assert!(error.starts_with("epyc-tokyo: no such file, and no machine comes with this name: haswell"));
    /// ```
    ///
    /// # Errors
    /// An error of one line: the file cannot be read, or [`Machine::parse`] refuses it.
    pub fn open(name_or_path: &str) -> Result<Machine, BadFile> {
        match Machine::built_in(name_or_path) {
            Some(machine) => Ok(machine),
            None => Machine::parse(name_or_path, &file::FILES.read(name_or_path)?),
        }
    }

    /// Returns the machine as a file that [`Machine::parse`] reads back. It leaves out distances that the topology
    /// does not have, and shares that the machine's file did not state.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::text(self)
    }

    /// Returns the settings with the best guess of every range.
    #[must_use]
    pub fn best(&self) -> Settings {
        Settings::of(self, |_, range| range.best)
    }

    /// Returns `points` choices that fill the ranges evenly: a Halton sequence, and multiples of irrational numbers
    /// for the ranges that came last. A Halton sequence of a large base would take only the lower ends of those. The
    /// points are the same every time.
    ///
    /// Half of each range lies below its best guess and half above, whatever their widths. A median over the points
    /// is therefore a median over the belief.
    #[must_use]
    pub fn design(&self, points: usize) -> Vec<Settings> {
        const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
        const STEPS: [f64; 6] = [SQRT_19, SQRT_23, SQRT_29, SQRT_31, SQRT_13, SQRT_17];
        let point = |point: u64| {
            let halton = BASES.iter().map(|&base| radical_inverse(point, base));
            let multiples = STEPS.iter().map(|step| (point as f64 * step).fract());
            let even: Vec<f64> = halton.chain(multiples).collect();
            Settings::of(self, |dimension, range| range.at(even[dimension]))
        };
        (1..=points as u64).map(point).collect()
    }
}

const SQRT_13: f64 = 3.605_551_275_463_989;
const SQRT_17: f64 = 4.123_105_625_617_661;
const SQRT_19: f64 = 4.358_898_943_540_674;
const SQRT_23: f64 = 4.795_831_523_312_72;
const SQRT_29: f64 = 5.385_164_807_134_504;
const SQRT_31: f64 = 5.567_764_362_830_022;

/// Returns the digits of `n` in a base, mirrored behind the point.
fn radical_inverse(mut n: u64, base: u64) -> f64 {
    let (mut digit, mut sum) = (1.0, 0.0);
    while n > 0 {
        digit /= base as f64;
        sum += digit * (n % base) as f64;
        n /= base;
    }
    sum
}

#[cfg(test)]
mod tests;

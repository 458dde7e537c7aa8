//! Machines as data: topology, latencies with their sources, and ranges for what nobody published.
//!
//! A [`Machine`] is what a file says. The simulator runs on [`Settings`], which is one choice out of the
//! machine's ranges: [`Machine::best`], or one of the points of [`Machine::design`], which fill the ranges evenly.

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
    /// Which sockets, complexes and cores its CPUs belong to.
    pub topology: Topology,
    /// The source of the topology.
    pub topology_source: String,
    /// Latencies that a published source states, in nanoseconds.
    pub latency: Latencies,
    /// Figures that no source states, each with its plausible range.
    pub nuisance: Nuisance,
}

/// How long an idle machine takes to bring a line, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// A load that depends on another, from the CPU's first cache.
    pub first_cache: Figure,
    /// The same from the core's second cache.
    pub second_cache: Figure,
    /// From the other hardware thread of the core.
    #[serde(default = "Figure::unsaid")]
    pub sibling: Figure,
    /// Within a complex (cores that share a last cache), a line that nobody has changed.
    pub near_clean: Figure,
    /// Within a complex, a line that its owner has changed.
    pub near_modified: Figure,
    /// From another complex of the same socket, clean.
    #[serde(default = "Figure::unsaid")]
    pub socket_clean: Figure,
    /// From another complex of the same socket, changed.
    #[serde(default = "Figure::unsaid")]
    pub socket_modified: Figure,
    /// From another socket, when the line's memory belongs to the socket that has it.
    #[serde(default = "Figure::unsaid")]
    pub remote_homed_at_owner: Figure,
    /// From another socket, when the line's memory belongs to the socket that asks.
    #[serde(default = "Figure::unsaid")]
    pub remote_homed_at_reader: Figure,
    /// From a socket two hops away.
    #[serde(default = "Figure::unsaid")]
    pub far: Figure,
    /// From memory of the socket that asks.
    pub memory_local: Figure,
    /// From memory of another socket.
    #[serde(default = "Figure::unsaid")]
    pub memory_remote: Figure,
    /// How much longer an atomic read-modify-write takes than a load, once the line has arrived.
    pub atomic: Figure,
    /// How much longer an atomic takes than a load where the line comes from another core. It equals `atomic` where a
    /// file does not state it.
    #[serde(default = "Figure::unsaid")]
    pub atomic_moved: Figure,
}

/// Figures that decide contended costs and stand in no published table. The crate's README explains each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nuisance {
    /// Share of a transfer's latency during which the line can serve no other CPU, 0 to 1.
    pub handover: Range,
    /// Factor on all transfers of the latency table, since they were measured on sister parts.
    pub latency_scale: Range,
    /// Nanoseconds between two readers of a line that nobody owns.
    pub read_service_ns: Range,
    /// Nanoseconds for which an owner keeps a line that has arrived.
    pub keep_ns: Range,
    /// Probability that a line's neighbour in its 128-byte pair is fetched along with it.
    pub pair: Range,
    /// Share of a load's wait that independent work hides, 0 to 1, where the program allows it.
    pub overlap: Range,
    /// Stores that may wait for their lines before the CPU must.
    pub store_buffer: Range,
    /// Share of a transfer's latency that passes before the request reaches the line, 0 to 1. Until then the CPU that
    /// holds the line goes on using it. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub request: Range,
    /// Whether reading a line that another CPU has changed takes it away from there, so that the reader may write it:
    /// 0 or 1, or the belief in it. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub migratory: Range,
    /// Share by which an owner's stays differ, evenly to both sides, 0 to 1. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub keep_spread: Range,
    /// Share of a stay for which a CPU keeps a line of which it had a copy already, so that it waited for no data,
    /// 0 to 1. One where a file does not state it.
    #[serde(default = "Range::one")]
    pub upgrade_keep: Range,
    /// Whether an atomic requests its line while earlier stores of its CPU, which it may not overtake, are still on
    /// their way: 0 or 1, or the belief in it. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub early_request: Range,
    /// Nanoseconds for which an atomic needs its line: one that finds another CPU's request about to be granted sooner
    /// does not begin, and fetches the line again. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub closing_ns: Range,
    /// Nanoseconds of work that a CPU does while it waits, where the work does not need what it waits for. Zero where a
    /// file does not state it.
    #[serde(default = "Range::zero")]
    pub window_ns: Range,
    /// Nanoseconds before its turn at which a CPU asks for the line of an access whose place it knows, and goes on asking
    /// as often as it loses the line before that turn. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub lead_ns: Range,
    /// Nanoseconds that it takes to begin anew behind a load that was done before its turn, where its line was taken
    /// meanwhile. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub flush_ns: Range,
    /// Nanoseconds after its line has come until which an atomic is not final: a load of the line behind
    /// it is done again if another CPU's request comes to the line in that time. It says nothing of programs that know
    /// their places before. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub behind_ns: Range,
    /// Share of an atomic that finds its line there for which its CPU does not wait: its value is known and what comes
    /// behind goes on, but for another atomic, 0 to 1. Zero where a file does not state it.
    #[serde(default = "Range::zero")]
    pub atomic_ahead: Range,
}

impl Latencies {
    /// Each figure with its name in a machine file.
    #[must_use]
    pub fn figures(&self) -> [(&'static str, &Figure); 14] {
        [
            ("first_cache", &self.first_cache),
            ("second_cache", &self.second_cache),
            ("sibling", &self.sibling),
            ("near_clean", &self.near_clean),
            ("near_modified", &self.near_modified),
            ("socket_clean", &self.socket_clean),
            ("socket_modified", &self.socket_modified),
            ("remote_homed_at_owner", &self.remote_homed_at_owner),
            ("remote_homed_at_reader", &self.remote_homed_at_reader),
            ("far", &self.far),
            ("memory_local", &self.memory_local),
            ("memory_remote", &self.memory_remote),
            ("atomic", &self.atomic),
            ("atomic_moved", &self.atomic_moved),
        ]
    }
}

/// The ranges of a [`Nuisance`], to look at or to change, each with its name in a machine file, and the least and the most
/// that it may hold.
macro_rules! ranges {
    ($nuisance:ident $(, $mutable:tt)?) => {
        [
            ("handover", &$($mutable)? $nuisance.handover, (0.01, 1.0)),
            ("latency_scale", &$($mutable)? $nuisance.latency_scale, (0.1, 10.0)),
            ("read_service_ns", &$($mutable)? $nuisance.read_service_ns, NS),
            ("keep_ns", &$($mutable)? $nuisance.keep_ns, NS),
            ("pair", &$($mutable)? $nuisance.pair, SHARE),
            ("overlap", &$($mutable)? $nuisance.overlap, SHARE),
            ("store_buffer", &$($mutable)? $nuisance.store_buffer, (1.0, 1024.0)),
            ("request", &$($mutable)? $nuisance.request, SHARE),
            ("migratory", &$($mutable)? $nuisance.migratory, SHARE),
            ("keep_spread", &$($mutable)? $nuisance.keep_spread, SHARE),
            ("upgrade_keep", &$($mutable)? $nuisance.upgrade_keep, SHARE),
            ("early_request", &$($mutable)? $nuisance.early_request, SHARE),
            ("closing_ns", &$($mutable)? $nuisance.closing_ns, NS),
            ("window_ns", &$($mutable)? $nuisance.window_ns, NS),
            ("behind_ns", &$($mutable)? $nuisance.behind_ns, NS),
            ("atomic_ahead", &$($mutable)? $nuisance.atomic_ahead, SHARE),
            ("lead_ns", &$($mutable)? $nuisance.lead_ns, NS),
            ("flush_ns", &$($mutable)? $nuisance.flush_ns, NS),
        ]
    };
}

/// What a share lies within, and a time in nanoseconds.
const SHARE: (f64, f64) = (0.0, 1.0);
const NS: (f64, f64) = (0.0, 10_000.0);

impl Nuisance {
    /// Each range with its name in a machine file, and the least and the most that it may hold.
    #[must_use]
    pub fn ranges(&self) -> [(&'static str, &Range, (f64, f64)); 18] {
        ranges!(self)
    }

    /// The same, to change the ranges.
    pub(crate) fn ranges_mut(&mut self) -> [(&'static str, &mut Range, (f64, f64)); 18] {
        ranges!(self, mut)
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
    /// The machine that comes with the crate under a name of [`BUILT_IN`].
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

    /// Reads a machine file; `name` is what an error calls it.
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

    /// The machine as a file that [`Machine::parse`] reads back. It leaves out distances that the topology does not
    /// have, and shares that nobody stated.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::text(self)
    }

    /// The settings with the best guess of every range.
    #[must_use]
    pub fn best(&self) -> Settings {
        Settings::of(self, |_, range| range.best)
    }

    /// `points` choices that fill the ranges evenly: a Halton sequence, and multiples of irrational numbers for the
    /// ranges that came last, of which a large base would take the lower ends alone. The points are the same every time.
    ///
    /// Half of each range lies below its best guess and half above, whatever their widths, so that a
    /// median over the points is a median over what is believed.
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

/// The digits of `n` in a base, mirrored behind the point.
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

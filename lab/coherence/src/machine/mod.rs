//! Machines as data: topology, latencies with their sources, and what nobody published, as ranges.
//!
//! A [`Machine`] is what a file says. The simulator runs on [`Settings`], one choice out of the
//! machine's ranges: [`Machine::best`], or the points of [`Machine::design`] that fill the ranges evenly.

mod file;
mod settings;
mod topology;
mod write;

pub use file::{BadMachine, Figure, Range};
pub use settings::Settings;
pub use topology::{Distance, Topology};

/// A machine as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// What people call it.
    pub name: String,
    /// Billions of cycles a second.
    pub clock_ghz: Figure,
    /// Where its CPUs sit.
    pub topology: Topology,
    /// From where that is known.
    pub topology_source: String,
    /// What a published source says, in nanoseconds.
    pub latency: Latencies,
    /// What no source says, each with its plausible range.
    pub nuisance: Nuisance,
}

/// How long an idle machine takes to bring a line, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// A load that depends on another, from the CPU's first cache.
    pub first_cache: Figure,
    /// The same from the core's second cache.
    pub second_cache: Figure,
    /// From the other hardware thread of the core.
    pub sibling: Figure,
    /// Within a complex (cores that share a last cache), a line that nobody has changed.
    pub near_clean: Figure,
    /// Within a complex, a line that its owner has changed.
    pub near_modified: Figure,
    /// From another complex of the same socket, clean.
    pub socket_clean: Figure,
    /// From another complex of the same socket, changed.
    pub socket_modified: Figure,
    /// From another socket, when the line's memory belongs to the socket that has it.
    pub remote_homed_at_owner: Figure,
    /// From another socket, when the line's memory belongs to the socket that asks.
    pub remote_homed_at_reader: Figure,
    /// From a socket two hops away.
    pub far: Figure,
    /// From memory of the socket that asks.
    pub memory_local: Figure,
    /// From memory of another socket.
    pub memory_remote: Figure,
    /// What an atomic read-modify-write takes beyond a load, once the line is there.
    pub atomic: Figure,
    /// What an atomic on a line that comes from another core takes beyond a load of it; as much as
    /// `atomic` where a file does not say.
    pub atomic_moved: Figure,
}

/// What decides contended costs and stands in no table. See the crate's README for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Nuisance {
    /// Share of a transfer's latency during which the line can serve nobody else, 0 to 1.
    pub handover: Range,
    /// What the transfers of the latency table are multiplied by: they come from sister parts.
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
    /// Share of a transfer's latency that passes before the request reaches the line, 0 to 1: so long its
    /// holder goes on. Zero where a file does not say.
    pub request: Range,
    /// Whether reading a line that another CPU has changed takes it away from there, for the reader to
    /// write: 0 or 1, or the belief in it. Zero where a file does not say.
    pub migratory: Range,
    /// Share by which an owner's stays differ, evenly to both sides, 0 to 1. Zero where a file does not say.
    pub keep_spread: Range,
    /// Share of a stay for which a CPU keeps a line of which it had a copy, and waited for no data, 0 to 1. One
    /// where a file does not say.
    pub upgrade_keep: Range,
    /// Whether an atomic asks for its line while earlier stores of its CPU are on their way, which it may not
    /// overtake: 0 or 1, or the belief in it. Zero where a file does not say.
    pub early_request: Range,
}

/// The machine files that come with the crate: name and text.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("haswell-ep-2699v3", include_str!("../../machines/haswell-ep-2699v3.toml")),
    ("broadwell-2x22", include_str!("../../machines/broadwell-2x22.toml")),
    ("four-socket-144", include_str!("../../machines/four-socket-144.toml")),
    ("skylake-sp-8180", include_str!("../../machines/skylake-sp-8180.toml")),
    ("epyc-milan", include_str!("../../machines/epyc-milan.toml")),
    ("zen4-2vcpu", include_str!("../../machines/zen4-2vcpu.toml")),
];

impl Machine {
    /// A machine that comes with the crate, by the name it has in [`BUILT_IN`].
    ///
    /// ```
    /// use ledgerline_coherence::machine::Machine;
    /// let machine = Machine::built_in("broadwell-2x22").unwrap();
    /// assert_eq!(machine.topology.cpus(), 88);
    /// assert!(Machine::built_in("abacus").is_none());
    /// ```
    #[must_use]
    pub fn built_in(name: &str) -> Option<Machine> {
        let (name, text) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name)?;
        Some(Machine::parse(name, text).expect("a test reads every built-in machine"))
    }

    /// Reads a machine file; `name` is what an error calls it.
    ///
    /// # Errors
    /// One line: file, line, what is wrong, what is expected.
    pub fn parse(name: &str, text: &str) -> Result<Machine, BadMachine> {
        file::parse(name, text)
    }

    /// A machine by the name of a built-in one, or by the path of a machine file.
    ///
    /// A built-in name means the built-in machine; write `./name` for a file that is called the same.
    ///
    /// ```
    /// use ledgerline_coherence::machine::Machine;
    /// assert_eq!(Machine::open("epyc-milan").unwrap().topology.cpus(), 192);
    /// let error = Machine::open("epyc-tokyo").unwrap_err().to_string();
    /// assert!(error.starts_with("epyc-tokyo: no such file, and no machine comes with this name: haswell"));
    /// ```
    ///
    /// # Errors
    /// One line: a file that cannot be read, or what [`Machine::parse`] complains about.
    pub fn open(name_or_path: &str) -> Result<Machine, BadMachine> {
        match Machine::built_in(name_or_path) {
            Some(machine) => Ok(machine),
            None => file::open(name_or_path),
        }
    }

    /// The machine as a file that [`Machine::parse`] reads back: what the topology has no use for, and shares
    /// that nobody stated, are left out.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::text(self)
    }

    /// How many picoseconds a cycle takes.
    #[must_use]
    pub fn cycle_ps(&self) -> f64 {
        1000.0 / self.clock_ghz.value
    }

    /// The best guess at every range.
    #[must_use]
    pub fn best(&self) -> Settings {
        Settings::of(self, |range| range.best)
    }

    /// `points` choices that fill the ranges evenly (a Halton sequence: the same points every time).
    ///
    /// Half of each range lies below its best guess and half above, whatever their widths, so that a
    /// median over the points is a median over what is believed.
    #[must_use]
    pub fn design(&self, points: usize) -> Vec<Settings> {
        const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
        (1..=points as u64)
            .map(|point| {
                let mut bases = BASES.iter();
                Settings::of(self, |range| {
                    let base = *bases.next().expect("twelve ranges");
                    range.at(radical_inverse(point, base))
                })
            })
            .collect()
    }
}

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

//! Runs programs on a machine, event by event, and reports their cost and its causes.
//!
//! A simulation is deterministic: the same [`Setup`] gives the same [`Outcome`], bit for bit. The crate's README has
//! the rules. `engine` implements them for speed. `oracle`, in the tests, implements them plainly. Both agree
//! exactly.

mod ahead;
mod cpu;
mod engine;
mod lines;
#[cfg(test)]
mod oracle;
mod outcome;
mod schedule;
#[cfg(test)]
mod tests;

pub use outcome::{Blame, LineCost, Outcome};

use crate::code::{self, BadProgram, Code};
use crate::layout::{Layout, Placement};
use crate::machine::Settings;
use crate::program::Program;
use std::fmt;

/// The most CPUs a simulation may have.
pub const MOST_CPUS: usize = 8192;

/// The most fields that a simulated layout may have, since blame is kept for each pair of fields.
pub const MOST_FIELDS: usize = 4096;

/// The input of a simulation: a machine, data, and each CPU's program on them.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The machine, with one value chosen from every range.
    pub settings: Settings,
    /// The lines that the fields lie on.
    pub layout: Layout,
    /// The programs that CPUs run.
    pub programs: Vec<Program>,
    /// For each CPU in use, the index of its program.
    pub cpus: Vec<usize>,
    /// The stretch of simulated time that counts.
    pub window: Window,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The stretch of simulated time that counts, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The start of the window. Nothing counts before, while lines find their places.
    pub from_ns: f64,
    /// The end of the window and of the simulation.
    pub to_ns: f64,
}

impl Setup {
    /// Returns a setup of `cpus` CPUs that all run one program. Its window is 20 microseconds long and begins after
    /// 5.
    #[must_use]
    pub fn uniform(settings: Settings, layout: Layout, program: Program, cpus: usize) -> Setup {
        let window = Window { from_ns: 5_000.0, to_ns: 25_000.0 };
        Setup { settings, layout, programs: vec![program], cpus: vec![0; cpus], window, seed: 1 }
    }

    /// Returns the same setup with another window.
    #[must_use]
    pub fn during(mut self, from_ns: f64, to_ns: f64) -> Setup {
        self.window = Window { from_ns, to_ns };
        self
    }

    /// Simulates the setup.
    ///
    /// The time is proportional to the accesses in the window, at some 30 million a second. The memory is
    /// proportional to the lines times the CPUs, a bit for each.
    ///
    /// # Errors
    /// When the setup makes no sense, or when all CPUs end up waiting for each other.
    pub fn run(&self) -> Result<Outcome, Error> {
        engine::run(&Prepared::new(self)?)
    }
}

/// The reason why a [`Setup`] cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A program makes no sense.
    Program(BadProgram),
    /// The rest of the setup makes no sense, for this reason.
    Setup(String),
    /// From this simulated nanosecond on every CPU waits for another.
    Stuck {
        /// The time since the start.
        nanosecond: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Program(bad) => bad.fmt(f),
            Error::Setup(reason) => f.write_str(reason),
            Error::Stuck { nanosecond } => write!(
                f,
                "from nanosecond {nanosecond} on every CPU waits for another; does a program acquire a \
                 lock that it never releases?"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// A setup that has been checked, compiled and laid out.
pub(crate) struct Prepared<'a> {
    setup: &'a Setup,
    codes: Vec<Code>,
    placement: Placement,
    /// For each line, the only CPU that ever touches it or its neighbour, if there is just one.
    private: Vec<Option<u32>>,
    from: u64,
    to: u64,
}

impl<'a> Prepared<'a> {
    fn new(setup: &'a Setup) -> Result<Prepared<'a>, Error> {
        let topology = &setup.settings.topology;
        let refuse = |reason: String| Err(Error::Setup(reason));
        let cpus = setup.cpus.len();
        if cpus == 0 || cpus > topology.cpus().min(MOST_CPUS) {
            let most = topology.cpus().min(MOST_CPUS);
            return refuse(format!("{cpus} CPUs are asked for; the machine has 1 to {most}"));
        }
        if setup.layout.len() > MOST_FIELDS {
            let fields = setup.layout.len();
            return refuse(format!("{fields} fields; give the {MOST_FIELDS} that matter most"));
        }
        if let Some(missing) = setup.cpus.iter().find(|&&program| program >= setup.programs.len()) {
            return refuse(format!("a CPU runs program {missing}, which is not there"));
        }
        let settings = &setup.settings;
        let least = [settings.cycle, settings.first_cache, settings.second_cache];
        if !least.iter().chain(settings.transfer.iter().flatten()).all(|&time| time > 0) {
            let reason = "a cycle, a hit or a transfer takes less than a picosecond; operations that take no \
                          time never end";
            return refuse(reason.to_owned());
        }
        let Window { from_ns, to_ns } = setup.window;
        if !(0.0 <= from_ns && from_ns < to_ns && to_ns <= 1e9) {
            return refuse(format!(
                "a window of {from_ns} to {to_ns} ns; it begins at 0 or later and ends within a second"
            ));
        }
        let compiled = |program| code::compile(program, &setup.layout).map_err(Error::Program);
        let codes = setup.programs.iter().map(compiled).collect::<Result<Vec<_>, _>>()?;
        let placement = Placement::new(&setup.layout, topology, cpus);
        let private = private_lines(&setup.layout, &codes, &placement);
        let picoseconds = |ns: f64| (ns * 1000.0) as u64;
        let (from, to) = (picoseconds(from_ns), picoseconds(to_ns));
        Ok(Prepared { setup, codes, placement, private, from, to })
    }

    /// Returns whether a CPU knows in advance the places that it touches.
    fn knows_places(&self, cpu: usize) -> bool {
        self.setup.programs[self.setup.cpus[cpu]].knows_places
    }

    fn in_window(&self, time: u64) -> bool {
        (self.from..self.to).contains(&time)
    }
}

/// Returns each line's private CPU, if it has one. A CPU's own line is private unless some program names another
/// CPU's instance of its object.
fn private_lines(layout: &Layout, codes: &[Code], placement: &Placement) -> Vec<Option<u32>> {
    let visited: Vec<_> = codes
        .iter()
        .flat_map(|code| &code.instructions)
        .filter_map(|instruction| match instruction {
            code::Instruction::Access(access) if access.of.is_some() => Some(access.field),
            _ => None,
        })
        .map(|field| layout.line_key(field).0)
        .collect();
    let lines = placement.lines.iter();
    lines
        .map(|line| line.cpu.filter(|_| !visited.contains(&layout.line_key(line.field).0)))
        .collect()
}

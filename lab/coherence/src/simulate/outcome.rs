//! The results of a simulation.

use super::Prepared;
use crate::layout::FieldId;

/// The counts of the window. Sums are exact and in picoseconds, so that outcomes can be compared bit for bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The number of CPUs that ran.
    pub cpus: usize,
    /// The length of the window.
    pub picoseconds: u64,
    /// For each program, the number of operations that ended in the window.
    pub operations: Vec<u64>,
    /// For each program, the number of CPUs that ran it.
    pub cpus_of: Vec<usize>,
    /// Loads, stores and atomics of those operations.
    pub accesses: u64,
    /// The time that CPUs stood waiting for lines.
    pub stalled: u64,
    /// Lines that moved, dearest first.
    pub lines: Vec<LineCost>,
    /// Pairs of a written field and a field whose access waited for it, dearest first.
    pub blame: Vec<Blame>,
    clock_ghz: f64,
}

/// A line's part in the cost.
#[derive(Clone, Debug, PartialEq)]
pub struct LineCost {
    /// A field on it.
    pub field: FieldId,
    /// The first CPU that uses this instance of it.
    pub cpu: usize,
    /// Copies that were brought to a CPU.
    pub transfers: u64,
    /// Copies that writers took away.
    pub invalidations: u64,
    /// The time from request to arrival, summed over the transfers, stores included.
    pub waited: u64,
}

/// A pair of fields and its cost: a write to `writer` took the line or its neighbour away from `victim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The field whose write took the copies away.
    pub writer: FieldId,
    /// The field whose access had to wait.
    pub victim: FieldId,
    /// The time that CPUs stood waiting for it.
    pub stalled: u64,
}

impl Outcome {
    /// Returns the number of operations of all programs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// Returns the nanoseconds of a CPU for an operation.
    #[must_use]
    pub fn nanoseconds(&self) -> f64 {
        self.cpus as f64 * self.picoseconds as f64 / 1000.0 / self.total() as f64
    }

    /// Returns the nanoseconds of a CPU for an operation of one program.
    #[must_use]
    pub fn nanoseconds_of(&self, program: usize) -> f64 {
        self.cpus_of[program] as f64 * self.picoseconds as f64
            / 1000.0
            / self.operations[program] as f64
    }

    /// Returns the cycles of a CPU for an operation.
    #[must_use]
    pub fn cycles(&self) -> f64 {
        self.nanoseconds() * self.clock_ghz
    }
}

/// The sums during the simulation.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub operations: Vec<u64>,
    pub accesses: u64,
    pub stalled: u64,
    /// For each line: its transfers, its invalidations and the time waited.
    pub lines: Vec<[u64; 3]>,
    fields: usize,
    blame: Vec<u64>,
}

impl Tally {
    pub(super) fn new(prepared: &Prepared<'_>) -> Tally {
        let fields = prepared.setup.layout.len();
        Tally {
            operations: vec![0; prepared.codes.len()],
            lines: vec![[0; 3]; prepared.placement.lines.len()],
            fields,
            blame: vec![0; fields * fields],
            ..Tally::default()
        }
    }

    pub(super) fn stall(&mut self, writer: Option<FieldId>, victim: FieldId, time: u64) {
        self.stalled += time;
        if let Some(writer) = writer {
            self.blame[writer.index() * self.fields + victim.index()] += time;
        }
    }

    pub(super) fn outcome(self, prepared: &Prepared<'_>) -> Outcome {
        let placed = &prepared.placement.lines;
        let cpus = prepared.setup.cpus.len();
        let user = |line: usize| {
            (0..cpus as u32)
                .find(|&cpu| prepared.placement.line(placed[line].field, cpu) == line)
                .expect("a line was placed for some CPU") as usize
        };
        let mut lines: Vec<LineCost> = (0..placed.len())
            .filter(|&line| self.lines[line] != [0; 3])
            .map(|line| {
                let [transfers, invalidations, waited] = self.lines[line];
                let field = placed[line].field;
                LineCost { field, cpu: user(line), transfers, invalidations, waited }
            })
            .collect();
        lines.sort_by_key(|line| (std::cmp::Reverse(line.waited), line.field, line.cpu));
        let pairs = self.blame.iter().enumerate().filter(|&(_, &stalled)| stalled > 0);
        let mut blame: Vec<Blame> = pairs
            .map(|(pair, &stalled)| Blame {
                writer: FieldId::from_index(pair / self.fields),
                victim: FieldId::from_index(pair % self.fields),
                stalled,
            })
            .collect();
        blame.sort_by_key(|blame| (std::cmp::Reverse(blame.stalled), blame.writer, blame.victim));
        let mut cpus_of = vec![0; prepared.codes.len()];
        prepared.setup.cpus.iter().for_each(|&program| cpus_of[program] += 1);
        Outcome {
            cpus,
            picoseconds: prepared.to - prepared.from,
            operations: self.operations,
            cpus_of,
            accesses: self.accesses,
            stalled: self.stalled,
            lines,
            blame,
            clock_ghz: prepared.setup.settings.clock_ghz,
        }
    }
}

//! Runs a CPU ahead of simulated time through reads that hit, and takes it back when a writer comes between.
//!
//! A read that hits changes nothing that other CPUs can notice, so a CPU need not wait for its turn to do it. The
//! read only holds if no other CPU takes the line away before it. So a CPU leaves a mark at the first such read of a
//! run. A CPU that takes a line sends back to their marks the CPUs that read it later than that. From there they run
//! again, up to the moment at which the line was taken.

use super::cpu::Cpu;

/// The most reads of one run. Longer runs save no more time, and are lost as a whole when a writer comes.
const MOST: u32 = 32;

/// The most counters that a CPU may have to run ahead, since a mark holds them all.
const MOST_COUNTERS: usize = 64;

/// A CPU as it was at the first read of its run.
#[derive(Clone, Debug)]
struct Mark {
    clock: u64,
    cpu: Cpu,
    /// The time of the last read of the run.
    last: u64,
    /// The lines that the run reads, as bits by their numbers modulo 64.
    lines: u64,
    /// The limit of reads in the next run; zero if lines are taken as fast as they are read.
    reach: u32,
    /// The upper bound of `reach`.
    most: u32,
}

/// The CPUs that have run ahead, with their runs.
#[derive(Debug)]
pub(super) struct Ahead {
    marks: Vec<Mark>,
    /// A bit for each CPU whose last run may not be over.
    running: Vec<u64>,
}

impl Ahead {
    pub(super) fn new(cpus: &[Cpu]) -> Ahead {
        let mark = |cpu: &Cpu| {
            let most = if cpu.counters() > MOST_COUNTERS { 0 } else { MOST };
            Mark { clock: 0, cpu: cpu.clone(), last: 0, lines: 0, reach: most.min(1), most }
        };
        Ahead { marks: cpus.iter().map(mark).collect(), running: vec![0; cpus.len().div_ceil(64)] }
    }

    /// Returns the limit of reads in a CPU's run.
    #[inline]
    pub(super) fn reach(&self, cpu: usize) -> u32 {
        self.marks[cpu].reach
    }

    /// Begins a run with a read of `cpu` at `clock`.
    #[inline]
    pub(super) fn begin(&mut self, index: usize, cpu: &Cpu, clock: u64) {
        let mark = &mut self.marks[index];
        mark.clock = clock;
        mark.cpu.follow(cpu);
        mark.lines = 0;
        self.running[index / 64] |= 1 << (index % 64);
    }

    /// Notes that a run reads a line at `clock`.
    #[inline]
    pub(super) fn read(&mut self, index: usize, line: usize, clock: u64) {
        let mark = &mut self.marks[index];
        mark.last = clock;
        mark.lines |= 1 << (line % 64);
    }

    /// Notes that a run came to its end undisturbed, so that the next may be longer.
    #[inline]
    pub(super) fn reached(&mut self, index: usize) {
        let mark = &mut self.marks[index];
        mark.reach = (2 * mark.reach).min(mark.most);
    }

    /// Notes that a read happened in its turn, so that the next may again run ahead.
    #[inline]
    pub(super) fn hit(&mut self, index: usize) {
        let mark = &mut self.marks[index];
        mark.reach = mark.reach.max(1).min(mark.most);
    }

    /// Returns those CPUs in a word of `copies` that run ahead.
    #[inline]
    pub(super) fn running(&self, word: usize, copies: u64) -> u64 {
        self.running[word] & copies
    }

    /// Returns whether a run has read a line at `end` or later. Forgets the run if it is over by then.
    #[inline]
    pub(super) fn reads_from(&mut self, index: usize, line: usize, end: u64) -> bool {
        let mark = &self.marks[index];
        if mark.last < end {
            self.running[index / 64] &= !(1 << (index % 64));
            return false;
        }
        mark.lines >> (line % 64) & 1 == 1
    }

    /// Takes a CPU back to its mark, and returns the time of the mark.
    pub(super) fn back(&mut self, index: usize, cpu: &mut Cpu) -> u64 {
        let mark = &self.marks[index];
        cpu.follow(&mark.cpu);
        self.running[index / 64] &= !(1 << (index % 64));
        mark.clock
    }

    /// Notes that `passed` reads of a run happened before it was taken back.
    pub(super) fn cut(&mut self, index: usize, passed: u32) {
        self.marks[index].reach = passed;
    }
}

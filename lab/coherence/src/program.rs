//! Programs: the steps that a CPU repeats. It computes, touches fields and takes locks.
//!
//! ```
//! use ledgerline_coherence::layout::{Layout, Scope};
//! use ledgerline_coherence::program::{Program, Step};
//! let mut layout = Layout::new();
//! let object = layout.object("object", Scope::Machine);
//! let limit = layout.field(object, "limit", 0);
//! let usage = layout.field(object, "usage", 64);
//! // Every operation reads the limit, every 64th adds to the usage.
//! let program = Program::new("charge", [
//!     Step::compute(300.0),
//!     Step::load(limit),
//!     Step::every(64, [Step::rmw(usage)]),
//! ]);
//! # drop(program);
//! ```

use crate::layout::FieldId;

/// The variation of the length of a computation from one time to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// It does not vary.
    Fixed,
    /// It varies evenly, by up to this share up and down.
    Uniform(f64),
    /// Like `Uniform`, for work that does not need the lines of accesses. It goes on while the CPU waits for them, as
    /// far as the machine's `window_ns` permits.
    Beside(f64),
    /// It varies exponentially, as the wait for a rare event does. This serves comparison with queueing formulas.
    Exponential,
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Computes, and touches no simulated field.
    Compute {
        /// The length on average.
        cycles: f64,
        /// The variation of the length.
        spread: Spread,
    },
    /// Reads a field.
    Load {
        /// The field that is read.
        field: FieldId,
        /// Whether other work can go on while the load waits.
        overlapping: bool,
    },
    /// Writes a field; the CPU goes on while the line is on its way.
    Store(FieldId),
    /// Changes a field atomically; the CPU waits for the line.
    Rmw(FieldId),
    /// Does its steps only in some passes.
    Sometimes {
        /// The passes in which it does them.
        when: When,
        /// The steps that it does.
        steps: Vec<Step>,
    },
    /// Waits for a lock and takes it.
    Acquire(Lock),
    /// Releases a lock.
    Release(Lock),
    /// Reads, adds one, and swaps if no other CPU wrote meanwhile; repeats until it succeeds.
    CompareSwap {
        /// The field that is changed.
        field: FieldId,
        /// Work between the load and the swap, in cycles.
        cycles: f64,
    },
    /// Reads under a sequence lock: repeats the steps until no writer came between.
    ReadSequence {
        /// The sequence number.
        sequence: FieldId,
        /// The steps that read.
        steps: Vec<Step>,
    },
    /// Writes under a sequence lock; a lock around it keeps other writers out.
    WriteSequence {
        /// The sequence number.
        sequence: FieldId,
        /// The steps that write.
        steps: Vec<Step>,
    },
}

/// The passes in which [`Step::Sometimes`] does its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// It does them at random, with this probability.
    Chance(f64),
    /// It does them once in this number of times, like a counter with a batch. Each CPU starts at random.
    Every(u32),
}

/// A lock and the fields that it consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Each CPU draws a number and waits until it is served. The lock is fair, and all waiting CPUs read one line.
    Ticket {
        /// The next number to draw.
        next: FieldId,
        /// The number whose turn it is.
        serving: FieldId,
    },
    /// Each CPU reads until the lock is free, and then tries to take it. The lock is unfair.
    TestAndSet {
        /// Zero when free.
        word: FieldId,
    },
    /// Each CPU waits on a line of its own, and its predecessor notifies it (Mellor-Crummey and Scott).
    Queue {
        /// The last CPU in the queue; of scope [`crate::layout::Scope::Machine`], or one for each lock.
        tail: FieldId,
        /// The CPU that comes after; of scope [`crate::layout::Scope::Cpu`].
        next: FieldId,
        /// Not zero while this CPU waits; of scope [`crate::layout::Scope::Cpu`].
        waiting: FieldId,
    },
}

/// The steps that a CPU repeats; each pass is an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The name in errors.
    pub name: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Whether an operation touches so many lines that they have left the first cache when the next operation begins.
    /// Then the first touch of each line in an operation costs the second cache's latency.
    pub outgrows_first_cache: bool,
    /// Whether the places that an operation touches are known in advance. Then the CPU requests the lines of the
    /// loads that follow work, and of an atomic behind them, while it does that work, as early as the machine's lead
    /// allows.
    pub knows_places: bool,
}

impl Program {
    /// Returns a program whose lines stay in the first cache.
    #[must_use]
    pub fn new(name: &str, steps: impl IntoIterator<Item = Step>) -> Program {
        Program {
            name: name.to_owned(),
            steps: steps.into_iter().collect(),
            outgrows_first_cache: false,
            knows_places: false,
        }
    }

    /// Returns the same program, with operations that outgrow the first cache.
    #[must_use]
    pub fn outgrowing_first_cache(mut self) -> Program {
        self.outgrows_first_cache = true;
        self
    }
}

/// Returns the program of each CPU, given the programs' shares. Counts of CPUs are as near to the shares as whole
/// CPUs permit, and each program's CPUs are spread evenly.
#[must_use]
pub fn deal(shares: &[f64], cpus: usize) -> Vec<usize> {
    let mut counts = vec![0usize; shares.len()];
    let next = |turn: usize| {
        let owed = |which: usize| shares[which] * turn as f64 - counts[which] as f64;
        let most = |&a: &usize, &b: &usize| owed(a).total_cmp(&owed(b)).then(b.cmp(&a));
        let next = (0..shares.len()).max_by(most)?;
        counts[next] += 1;
        Some(next)
    };
    (1..=cpus).map_while(next).collect()
}

impl Step {
    /// Computes for `cycles` cycles, give or take ten per cent: no real loop keeps perfect step with another.
    #[must_use]
    pub fn compute(cycles: f64) -> Step {
        Step::Compute { cycles, spread: Spread::Uniform(0.1) }
    }

    /// Works for `cycles` cycles, give or take ten per cent, without the lines of accesses.
    #[must_use]
    pub fn work(cycles: f64) -> Step {
        Step::Compute { cycles, spread: Spread::Beside(0.1) }
    }

    /// Loads a value that the next step depends on.
    #[must_use]
    pub fn load(field: FieldId) -> Step {
        Step::Load { field, overlapping: false }
    }

    /// Loads while other work goes on.
    #[must_use]
    pub fn load_overlapping(field: FieldId) -> Step {
        Step::Load { field, overlapping: true }
    }

    /// Writes.
    #[must_use]
    pub fn store(field: FieldId) -> Step {
        Step::Store(field)
    }

    /// Adds atomically.
    #[must_use]
    pub fn rmw(field: FieldId) -> Step {
        Step::Rmw(field)
    }

    /// Does the steps once in `times` times.
    #[must_use]
    pub fn every(times: u32, steps: impl IntoIterator<Item = Step>) -> Step {
        Step::Sometimes { when: When::Every(times), steps: steps.into_iter().collect() }
    }

    /// Does the steps with a probability.
    #[must_use]
    pub fn chance(probability: f64, steps: impl IntoIterator<Item = Step>) -> Step {
        Step::Sometimes { when: When::Chance(probability), steps: steps.into_iter().collect() }
    }
}

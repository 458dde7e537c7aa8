//! What a CPU does over and over: compute, touch fields, take locks.
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

/// How a stretch of computing varies from one time to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// It does not.
    Fixed,
    /// Evenly, by up to this share up and down.
    Uniform(f64),
    /// As waiting for a rare event does; for comparison with queueing formulas.
    Exponential,
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Computes, and touches nothing that is simulated.
    Compute {
        /// How long on average.
        cycles: f64,
        /// How it varies.
        spread: Spread,
    },
    /// Reads a field.
    Load {
        /// Which.
        field: FieldId,
        /// Whether other work can go on while it waits.
        overlapping: bool,
    },
    /// Writes a field; the CPU goes on while the line comes.
    Store(FieldId),
    /// Changes a field atomically; the CPU waits.
    Rmw(FieldId),
    /// Now and then does some steps.
    Sometimes {
        /// When.
        when: When,
        /// What.
        steps: Vec<Step>,
    },
    /// Waits for a lock and takes it.
    Acquire(Lock),
    /// Gives a lock back.
    Release(Lock),
    /// Reads, adds one, and swaps if nobody came between; again until it succeeds.
    CompareSwap {
        /// What.
        field: FieldId,
        /// Work between the load and the swap, in cycles.
        cycles: f64,
    },
    /// A sequence lock's reader: does the steps again until no writer came between.
    ReadSequence {
        /// The sequence number.
        sequence: FieldId,
        /// What is read.
        steps: Vec<Step>,
    },
    /// A sequence lock's writer, who is alone (by some lock around it).
    WriteSequence {
        /// The sequence number.
        sequence: FieldId,
        /// What is written.
        steps: Vec<Step>,
    },
}

/// When [`Step::Sometimes`] does its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// At random, with this probability.
    Chance(f64),
    /// Every so many times, each CPU from a random start, as a batch counter does.
    Every(u32),
}

/// A lock, by the fields that it consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Draw a number, wait until it is served: fair, and all who wait read one line.
    Ticket {
        /// The next number to draw.
        next: FieldId,
        /// The number whose turn it is.
        serving: FieldId,
    },
    /// Read until it is free, then try: unfair.
    TestAndSet {
        /// Zero when free.
        word: FieldId,
    },
    /// Each waits on a line of its own, and is told by the one before (Mellor-Crummey and Scott).
    Queue {
        /// The last in the queue; of scope [`crate::layout::Scope::Machine`], or one a lock.
        tail: FieldId,
        /// Who comes after; of scope [`crate::layout::Scope::Cpu`].
        next: FieldId,
        /// Not zero while this CPU waits; of scope [`crate::layout::Scope::Cpu`].
        waiting: FieldId,
    },
}

/// What a CPU repeats; one pass is an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// What people call it.
    pub name: String,
    /// In order.
    pub steps: Vec<Step>,
    /// Whether an operation touches so much that its lines have left the first cache when the next one
    /// comes: then the first touch of each line in an operation costs the second cache's latency.
    pub outgrows_first_cache: bool,
}

impl Program {
    /// A program whose lines stay in the first cache.
    #[must_use]
    pub fn new(name: &str, steps: impl IntoIterator<Item = Step>) -> Program {
        Program {
            name: name.to_owned(),
            steps: steps.into_iter().collect(),
            outgrows_first_cache: false,
        }
    }

    /// The same with an operation that outgrows the first cache.
    #[must_use]
    pub fn outgrowing_first_cache(mut self) -> Program {
        self.outgrows_first_cache = true;
        self
    }
}

impl Step {
    /// Computes for so many cycles, within ten per cent: no real loop keeps perfect step with its neighbours.
    #[must_use]
    pub fn compute(cycles: f64) -> Step {
        Step::Compute { cycles, spread: Spread::Uniform(0.1) }
    }

    /// Loads what the next step depends on.
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

    /// Does the steps every `times` times.
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

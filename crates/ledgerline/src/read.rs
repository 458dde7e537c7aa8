//! Reading a group: fast with a stated bound, or exactly.

use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock::{self, GATE};
use crate::path::RowPath;
use crate::percpu::word;
use crate::sync::{Ordering, fence};

/// A reading that took no care: two loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Units granted, of which some may lie idle in cells.
    pub value: u64,
    /// How many of them at most: the true value is at least `value - bound` and at most `value`
    /// (units that a walk holds in its hand meanwhile count as charged). The bound does not depend
    /// on the number of threads or of groups; below a limit it is a sixteenth of the headroom.
    pub bound: u64,
}

/// Tries at an undisturbed reading before the writers are held up for one.
const TRIES: usize = 32;

impl Group<'_> {
    /// The usage within a stated bound: two loads, whatever the size of the tree.
    pub fn approximate(self) -> Estimate {
        let counter = &self.ledger().row(self.id().index()).counter;
        let bound = counter.track.prepaid.load(Ordering::Acquire);
        let value = counter.usage();
        Estimate { value, bound: bound.min(value) }
    }

    /// The usage without idle stock. Exact when writers are still; otherwise a value that was true
    /// at some moment of the call. In a file that other processes charge, units on their way in
    /// those processes count as charged.
    ///
    /// Reads the total and every stocked cell of the subtree until nothing moved between two
    /// looks; after 32 tries it holds the writers up for the few microseconds of a drain. Not
    /// async-signal-safe.
    pub fn precise(self) -> u64 {
        let ledger = self.ledger();
        let index = self.id().index();
        for _ in 0..TRIES {
            if let Some(usage) = ledger.undisturbed(index) {
                return usage;
            }
            std::hint::spin_loop();
        }
        let me = lock::thread();
        let closed = GATE.close(me);
        // With the gate closed nobody fetches or gives back, and after the drain every charge
        // would have to: the total is what is charged.
        ledger.drain(index);
        let usage = ledger.row(index).counter.usage().saturating_sub(ledger.idle(index).0);
        if closed {
            GATE.open();
        }
        usage
    }
}

impl Ledger {
    /// One look at a subtree: its usage without idle stock, if nothing moved meanwhile.
    fn undisturbed(&self, top: u32) -> Option<u64> {
        let counter = &self.row(top).counter;
        let quiet = GATE.quiet()?;
        let (idle, trace) = self.idle(top);
        let usage = counter.usage();
        // Orders the two rounds of loads.
        fence(Ordering::SeqCst);
        let (again, trace_again) = self.idle(top);
        let still = counter.usage() == usage
            && counter.in_flight() == 0
            && (again, trace_again) == (idle, trace)
            && GATE.quiet() == Some(quiet);
        still.then(|| usage.saturating_sub(idle))
    }

    /// Idle units in the cells of a subtree, and a trace of the words they were read from: the
    /// words count charges, so two equal traces mean that no cell changed in between.
    pub(crate) fn idle(&self, top: u32) -> (u64, u64) {
        let mut idle = 0;
        let mut trace = 0xcbf2_9ce4_8422_2325u64;
        for column in 0..self.columns.count() {
            for row in self.stocked(column).iter() {
                let below =
                    top == 0 || RowPath::new(self, row).is_some_and(|path| path.leads_through(top));
                if below {
                    let word = self.columns.cell(column, row).word.load(Ordering::Acquire);
                    idle += word::stock(word);
                    trace = (trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
                }
            }
        }
        (idle, trace)
    }

    /// Charges and uncharges of one row, its destroyed children's included.
    pub(crate) fn own_counts(&self, index: u32) -> (u64, u64) {
        let row = self.row(index);
        let generation = row.generation();
        let mut sums = (0u64, 0u64);
        for column in row.noted_columns(self.columns.count()) {
            let counts = self.counts(column, index);
            let word = self.columns.cell(column, index).word.load(Ordering::Acquire);
            let (mut charges, mut uncharges) = (0, 0);
            if word::generation(word) == generation {
                (charges, uncharges) = (word::charges(word), word::uncharges(word));
            }
            sums.0 += charges + counts.charges.load(Ordering::Relaxed);
            sums.1 += uncharges + counts.uncharges.load(Ordering::Relaxed);
        }
        sums
    }
}

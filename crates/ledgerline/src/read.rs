//! Reading a group: fast with a stated bound, or exactly.

use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock::{self, GATE};
use crate::path::RowPath;
use crate::percpu::word;
use crate::sync::{AtomicU64, Ordering, fence};

/// A reading that took no care: a few loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Units granted, of which some may lie idle in cells.
    pub value: u64,
    /// How many of them at most: the true value is at least `value - bound` and at most `value`.
    /// The bound does not depend on the number of threads or of groups; below a limit it is a
    /// sixteenth of the headroom (and what walks have in their hand at that moment).
    pub bound: u64,
}

/// Tries at an undisturbed reading before the writers are held up for one.
const TRIES: usize = 32;
/// How often that is tried: several readers and a fork may all want it at a time.
const ROUNDS: usize = 16;

impl Group<'_> {
    /// The usage within a stated bound: a few loads, whatever the size of the tree.
    pub fn approximate(self) -> Estimate {
        let counter = &self.row().counter;
        // Units between a cell and the counter are in neither's number: they are in the hand of a
        // walk. Looked up before the usage and after it, since caps come and go.
        let idle = || {
            let track = &counter.track;
            track.prepaid.load(Ordering::SeqCst).wrapping_add(track.in_hand.load(Ordering::SeqCst))
        };
        let mut before = idle();
        let mut tries = 0;
        loop {
            let value = counter.usage();
            let after = idle();
            if after == before || tries == TRIES {
                return Estimate { value, bound: before.max(after).min(value) };
            }
            before = after;
            tries += 1;
        }
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
        if index >= ledger.capacity() {
            return 0;
        }
        for _ in 0..ROUNDS {
            for _ in 0..TRIES {
                if let Some(usage) = ledger.undisturbed(index) {
                    return usage;
                }
                std::hint::spin_loop();
            }
            if GATE.close(lock::thread()) {
                // With the gate closed nobody fetches or gives back, and after the drain every
                // charge would have to: the total is what is charged.
                // (Inside itself, so that no other reader takes the drain for a quiet moment.)
                let inside = lock::pass();
                ledger.drain(index);
                let usage = ledger.at_once(index, 0);
                drop(inside);
                GATE.open();
                return usage;
            }
        }
        ledger.at_once(index, ledger.in_hand(index))
    }
}

impl Ledger {
    /// The usage without what is idle in the cells and in hands, whoever disturbs.
    fn at_once(&self, top: u32, in_hand: u64) -> u64 {
        let usage = self.row(top).counter.usage();
        usage.saturating_sub(in_hand.saturating_add(self.idle(top).0))
    }

    fn in_hand(&self, top: u32) -> u64 {
        self.row(top).counter.track.in_hand.load(Ordering::Acquire)
    }

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
        for column in 0..self.columns().count() {
            for row in self.stocked(column).iter() {
                let below =
                    top == 0 || RowPath::new(self, row).is_some_and(|path| path.leads_through(top));
                if below {
                    let word = self.columns().cell(column, row).word.load(Ordering::Acquire);
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
        let generation = self.cell_generation(row);
        let mut sums = (0u64, 0u64);
        for column in row.noted_columns(self.columns().count()) {
            let counts = self.counts(column, index);
            let word = self.columns().cell(column, index).word.load(Ordering::Acquire);
            let (mut charges, mut uncharges) = (0, 0);
            if word::generation(word) == generation {
                (charges, uncharges) = (word::charges(word), word::uncharges(word));
            }
            // Wrapping: in a file, another process may have written nonsense.
            let add = |sum: u64, counted: &AtomicU64, word: u64| {
                sum.wrapping_add(counted.load(Ordering::Relaxed)).wrapping_add(word)
            };
            sums.0 = add(sums.0, &counts.charges, charges);
            sums.1 = add(sums.1, &counts.uncharges, uncharges);
        }
        sums
    }
}

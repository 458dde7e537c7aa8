//! Reading a group: fast with a stated bound, or exactly.

use crate::counter::PageCounter;
use crate::gate::lock::{self, GATE};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::percpu::word;
use crate::size;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::table::path::RowPath;
use crate::table::row::GroupId;

/// A reading that took no care (a few loads), and how far off it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// Units granted, of which some may lie idle in cells.
    pub value: u64,
    /// How many of them at most: the true value is at least `value - bound` and at most `value`.
    ///
    /// The bound does not depend on the number of threads or of groups. It is a quarter of the true value
    /// and the ledger's slack at most, which is 64 [batches](crate::LedgerBuilder::batch) or 16 Mi units,
    /// whichever is less; below a limit it is a sixteenth of the headroom at most. What walks have in
    /// their hands at that moment is in it, too. While an uncharge is under way its units count as true
    /// ones.
    ///
    /// In a ledger that processes share, each takes back its own idle units alone. So at a group that
    /// several of them charge the slack may be as many times as much.
    pub bound: u64,
}

impl std::fmt::Display for Estimate {
    /// Between what and what, as people read sizes: `300.0M to 300.3M`, or one of them where both read
    /// alike.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [least, most] = [self.value.saturating_sub(self.bound), self.value].map(size::format);
        if least == most { f.pad(&most) } else { f.pad(&format!("{least} to {most}")) }
    }
}

impl Estimate {
    /// Of what is at least the first and at most the second.
    pub(crate) fn between((least, most): (u64, u64)) -> Estimate {
        Estimate { value: most, bound: most - least }
    }
}

/// Tries at an undisturbed reading before the writers are held up for one.
const TRIES: usize = 32;
/// How often that is tried: several readers and a fork may all want it at a time.
const ROUNDS: usize = 16;

impl Group<'_> {
    /// The usage within a stated bound: a few loads, whatever the size of the tree. Nothing of a group that
    /// is gone.
    pub fn approximate(self) -> Estimate {
        self.read(|row| estimate(&row.counter)).unwrap_or_default()
    }

    /// The usage without idle stock. Exact when writers are still; otherwise a value that was true
    /// at some moment of the call. In a file that other processes charge, units on their way in
    /// those processes count as charged. Zero of a group that is gone: what was charged to it and is not
    /// returned yet counts in its ancestors ([`Ledger::leaks`] tells of it).
    ///
    /// Reads the total and every stocked cell of the subtree until nothing moved between two
    /// looks; after 32 tries it holds the writers up for the few microseconds of a drain. Not
    /// async-signal-safe.
    pub fn precise(self) -> u64 {
        self.read(|_| self.ledger().exactly(self.id().index())).unwrap_or(0)
    }
}

/// What [`Group::approximate`] says of a counter.
fn estimate(counter: &PageCounter) -> Estimate {
    for _ in 0..TRIES {
        if let Some((value, idle)) = counter.look() {
            return Estimate { value, bound: idle.min(value) };
        }
    }
    // Idle units come and go all the time: the most that was seen.
    let before = counter.idle_at_most();
    let value = counter.usage();
    Estimate { value, bound: before.max(counter.idle_at_most()).min(value) }
}

impl Ledger {
    /// As [`Group::precise`], of a group that may have been destroyed and still holds something.
    pub(crate) fn held_by(&self, id: GroupId) -> u64 {
        self.read_held(id, |_| self.exactly(id.index())).unwrap_or(0)
    }

    /// What [`Group::precise`] says of a row, whoever's it is.
    fn exactly(&self, index: u32) -> u64 {
        let counter = &self.row(index).counter;
        let seen = counter.least();
        let (usage, sure) = self.usage_without_idle(index);
        if sure {
            counter.raise_least(seen, usage);
        }
        usage
    }

    /// The usage, and whether it is sure. (What other processes have in their hands is not.)
    fn usage_without_idle(&self, index: u32) -> (u64, bool) {
        let sure = !self.is_shared();
        for _ in 0..ROUNDS {
            for _ in 0..TRIES {
                if let Some(usage) = self.undisturbed(index) {
                    return (usage, sure);
                }
                std::hint::spin_loop();
            }
            if GATE.close(lock::thread()) {
                // With the gate closed nobody fetches or gives back, and after the drain every
                // charge would have to: the total is what is charged.
                // (Inside itself, so that no other reader takes the drain for a quiet moment.)
                let inside = lock::pass();
                self.drain(index);
                let usage = self.at_once(index, 0);
                drop(inside);
                GATE.open();
                return (usage, sure);
            }
        }
        (self.at_once(index, self.in_hand(index)), false)
    }

    /// The usage without what is idle in the cells and in hands, whoever disturbs.
    fn at_once(&self, top: u32, in_hand: u64) -> u64 {
        let usage = self.row(top).counter.usage();
        usage.saturating_sub(in_hand.saturating_add(self.idle(top).0))
    }

    fn in_hand(&self, top: u32) -> u64 {
        self.row(top).counter.track.in_hand.units()
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

//! Reads a group: fast and with a stated bound, or exactly.

use crate::counter::PageCounter;
use crate::group::Group;
use crate::size;
use crate::stock::precise;

/// How often a quick reading is retried while writers disturb it.
const TRIES: usize = 32;

/// A quick reading of a few loads, and the bound of its error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Estimate {
    /// Units granted, of which some may lie idle in cells.
    pub value: u64,
    /// The most units that may lie idle: the true value is at least `value - bound` and at most `value`.
    ///
    /// The bound does not depend on the number of threads or of groups. It is at most a quarter of the true value plus the
    /// ledger's slack, which is 64 [batches](crate::LedgerBuilder::batch) or 16 Mi units, whichever is less. Below a limit
    /// it is at most a sixteenth of the headroom. It also includes the units that walks have in flight at that moment. The
    /// units of an uncharge that is under way count as true ones.
    ///
    /// In a ledger that processes share, each process takes back only its own idle units. So at a group that several
    /// processes charge, the slack counts once for each of them.
    pub bound: u64,
}

impl std::fmt::Display for Estimate {
    /// The range as rounded sizes: `300.0M to 300.3M`, or one size if both print alike.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [least, most] = [self.value.saturating_sub(self.bound), self.value].map(size::format);
        if least == most { f.pad(&most) } else { f.pad(&format!("{least} to {most}")) }
    }
}

impl Estimate {
    /// Returns the estimate of a value between the first and the second.
    pub(crate) fn between((least, most): (u64, u64)) -> Estimate {
        Estimate { value: most, bound: most - least }
    }
}

impl Group<'_> {
    /// Returns the usage within a stated bound. Costs a few loads, whatever the size of the tree. Zero for a group that is
    /// gone.
    pub fn approximate(self) -> Estimate {
        self.read(|row| estimate(&row.counter)).unwrap_or_default()
    }

    /// Returns the usage without idle stock. It is exact when writers are still; otherwise it was true at some moment of the
    /// call. In a file that other processes charge, their units in flight count as charged. It is zero for a group that is
    /// gone: its units that are not returned yet count in its ancestors ([`Ledger::leaks`](crate::Ledger::leaks) lists it).
    ///
    /// Reads the total and every stocked cell of the subtree until nothing moved between two looks; after 32 tries it holds
    /// up the writers for the few microseconds of a drain. A group without children costs a fraction of a microsecond.
    /// Otherwise it examines all stocked rows of the ledger to find those below, for 15 to 60 ns each, so half a
    /// millisecond among ten thousand. Not async-signal-safe.
    pub fn precise(self) -> u64 {
        self.read(|_| precise::exactly(self.table(), self.id().index())).unwrap_or(0)
    }

    /// Returns the highest usage since the group was created or the peak was reset. Only granted charges count, never a
    /// refused one. The true peak was at least `value - bound`, and at most `value`, which includes the units that lay idle
    /// then.
    ///
    /// The bound is the most that could lie idle when the group reached that usage (at most [`Estimate::bound`] at that
    /// time), and a thirty-second. It is larger if other threads disturbed the looks of the charges that reached it. For a
    /// group on up to four CPUs, whose units up to sixteen threads carry, the cells and thread caches are read, so the bound of a
    /// small group is small. This costs a few loads, and a store if the group holds more now than was known.
    pub fn peak(self) -> Estimate {
        self.read(|row| Estimate::between(row.counter.peak())).unwrap_or_default()
    }
}

/// Returns the estimate of [`Group::approximate`] for a counter.
fn estimate(counter: &PageCounter) -> Estimate {
    for _ in 0..TRIES {
        if let Some((value, idle)) = counter.look() {
            return Estimate { value, bound: idle.min(value) };
        }
    }
    // Idle units come and go all the time, so this takes the larger of two readings.
    let before = counter.idle_at_most();
    let value = counter.usage();
    Estimate { value, bound: before.max(counter.idle_at_most()).min(value) }
}

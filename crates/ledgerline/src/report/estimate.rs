//! Reading a group: fast with a stated bound, or exactly.

use crate::counter::PageCounter;
use crate::group::Group;
use crate::size;
use crate::stock::precise;

/// Tries at a quick reading that nothing disturbs.
const TRIES: usize = 32;

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

impl Group<'_> {
    /// The usage within a stated bound: a few loads, whatever the size of the tree. Nothing of a group that
    /// is gone.
    pub fn approximate(self) -> Estimate {
        self.read(|row| estimate(&row.counter)).unwrap_or_default()
    }

    /// The usage without idle stock. Exact when writers are still; otherwise a value that was true
    /// at some moment of the call. In a file that other processes charge, units on their way in
    /// those processes count as charged. Zero of a group that is gone: what was charged to it and is not
    /// returned yet counts in its ancestors ([`Ledger::leaks`](crate::Ledger::leaks) tells of it).
    ///
    /// Reads the total and every stocked cell of the subtree until nothing moved between two
    /// looks; after 32 tries it holds the writers up for the few microseconds of a drain. Not
    /// async-signal-safe.
    pub fn precise(self) -> u64 {
        self.read(|_| precise::exactly(self.table(), self.id().index())).unwrap_or(0)
    }

    /// The highest usage since the group was created or the peak was reset: of granted charges alone,
    /// never of one that was refused. It was at least `value - bound`, and at most `value`, which
    /// includes what lay idle then.
    ///
    /// The bound is what could lie idle when the group was granted that much, at most
    /// [`Estimate::bound`] of then, and a thirty-second; more where other threads disturbed the looks of
    /// those who were granted it. The cells of a group on up to four CPUs are looked at, so that of a
    /// small one the bound is small. A few loads, and a store if the group holds more now than was known.
    pub fn peak(self) -> Estimate {
        self.read(|row| Estimate::between(row.counter.peak())).unwrap_or_default()
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

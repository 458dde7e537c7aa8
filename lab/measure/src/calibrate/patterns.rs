//! The effects of two CPUs or more on each other, as programs for both worlds.

use super::world::{Field, World};
use serde::Serialize;
use std::ops::Range;

/// A pattern of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All add to one word.
    Shared,
    /// Each adds to a word of its own, two lines from the next.
    Padded,
    /// Each reads and writes a word of its own, on one line.
    FalseShared,
    /// One writes a word and reads nothing, the others read the word beside it.
    StoredBeside,
    /// One adds to a word, the others read the word beside it.
    AddedBeside,
    /// One writes under a sequence lock, the others read.
    SequenceLock,
    /// All change a word under a ticket lock.
    TicketLock,
    /// Like `TicketLock`, but the processor may overlap accesses that the program does not chain.
    OverlappedTicketLock,
}

/// CPUs that do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    All,
    First,
    Others,
}

impl Part {
    pub(super) fn is_all(&self) -> bool {
        *self == Part::All
    }

    /// Returns the suffix of the pattern's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Part::All => "",
            Part::First => ", first",
            Part::Others => ", others",
        }
    }

    /// Returns which of `cpus` CPUs play it.
    pub(super) fn of(self, cpus: usize) -> Range<usize> {
        match self {
            Part::All => 0..cpus,
            Part::First => 0..1,
            Part::Others => 1..cpus,
        }
    }
}

impl Pattern {
    /// All, with their names, in the order of the variants.
    pub(super) const ALL: [(Pattern, &'static str); 8] = [
        (Pattern::Shared, "shared"),
        (Pattern::Padded, "padded"),
        (Pattern::FalseShared, "false-shared"),
        (Pattern::StoredBeside, "stored-beside"),
        (Pattern::AddedBeside, "added-beside"),
        (Pattern::SequenceLock, "seqlock"),
        (Pattern::TicketLock, "ticket-lock"),
        (Pattern::OverlappedTicketLock, "ticket-lock-overlapped"),
    ];

    pub(super) fn name(self) -> &'static str {
        Pattern::ALL[self as usize].1
    }

    /// Returns whether the model claims to know the pattern. It does not model a processor that waits for several
    /// lines at once.
    pub(super) fn claimed(self) -> bool {
        self != Pattern::OverlappedTicketLock
    }

    /// Returns the parts that CPUs play in it.
    pub(super) fn parts(self) -> &'static [Part] {
        match self {
            Pattern::StoredBeside | Pattern::AddedBeside => &[Part::First, Part::Others],
            _ => &[Part::All],
        }
    }

    /// Returns the number of pairs of lines that the pattern needs.
    pub(super) fn pairs(self, cpus: usize) -> usize {
        match self {
            Pattern::Shared
            | Pattern::StoredBeside
            | Pattern::AddedBeside
            | Pattern::SequenceLock => 1,
            Pattern::Padded => cpus,
            // Eight words lie on a line; further CPUs come on further lines.
            Pattern::FalseShared => cpus.div_ceil(8),
            Pattern::TicketLock | Pattern::OverlappedTicketLock => 3,
        }
    }

    /// Does the operation that a CPU repeats.
    #[inline(always)]
    pub(super) fn operation<W: World>(self, world: &mut W) {
        let cpu = world.cpu();
        match self {
            Pattern::Shared => world.add(Field::first_of(0)),
            Pattern::Padded => world.add(Field::first_of(cpu)),
            Pattern::FalseShared => {
                let own = Field { pair: cpu / 8, offset: 8 * (cpu % 8) };
                world.load(own);
                world.store(own);
            }
            Pattern::StoredBeside | Pattern::AddedBeside if cpu != 0 => {
                world.load(Field { pair: 0, offset: 8 });
            }
            Pattern::StoredBeside => world.store(Field::first_of(0)),
            Pattern::AddedBeside => world.add(Field::first_of(0)),
            Pattern::SequenceLock => {
                let sequence = Field::first_of(0);
                let value = Field { pair: 0, offset: 8 };
                if cpu == 0 {
                    world.load(value);
                    world.write_sequence(sequence, |world| world.store(value));
                } else {
                    world.read_sequence(sequence, |world| world.load(value));
                }
            }
            Pattern::TicketLock | Pattern::OverlappedTicketLock => {
                let (next, serving) = (Field::first_of(0), Field::first_of(1));
                let guarded = Field::first_of(2);
                world.lock(next, serving);
                world.load(guarded);
                world.store(guarded);
                world.unlock(next, serving);
            }
        }
        world.work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_has_the_name_that_stands_beside_it() {
        for (pattern, name) in Pattern::ALL {
            assert_eq!(pattern.name(), name);
        }
    }
}

//! What a run counts of its rows in the items of its ledger, and which rows make no sense.
//!
//! The account of `ledgerline run` and the looks of those who watch it are made by these rules, so that they agree.

mod damaged;

pub use damaged::{MOST, MOST_PROCESSES, is_damaged};

use ledgerline_protocol::Item;
use ledgerline_protocol::blind::Blind;

/// What a run counts of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// What it and those below it mapped.
    pub mapped: Mapped,
    /// Bytes that they mapped and that are charged to nobody: more mappings than the library has room to follow.
    pub forgotten: u64,
    /// How many charges of it and of those below it a limit refused; what the reserve granted is not among them.
    pub refused: u64,
    /// How many of those the limit for blocks alone refused.
    pub refused_heap: u64,
    /// What the row itself was refused.
    pub most_refused: Option<Refusals>,
    /// Whether its process had more names than rows.
    pub folded: bool,
    /// How many processes that ended the row stands for.
    pub processes: u64,
    /// Requests that the reserve served.
    pub spared: u64,
    /// The most bytes that the kernel saw resident in its process.
    pub resident: u64,
    /// The limit for blocks alone.
    pub max_heap: Option<u64>,
    /// What of the row's max is kept as the reserve: the user's max is the row's and this.
    pub reserve: u64,
    /// Why the row's process is not accounted.
    pub blind: Option<Blind>,
    /// Of the root: how many processes found no row left.
    pub left_out: u64,
    /// The identity of its process.
    pub origin: Origin,
    /// Whether a sum is more than anybody counts.
    pub absurd: bool,
}

/// What a row itself asked for and was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// Bytes of the first request.
    pub first: u64,
    /// When that was: milliseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Bytes of the largest request.
    pub largest: u64,
    /// Bytes that were in use below the limit when the first request was refused.
    pub usage: u64,
}

/// The identity of a row's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id of the process that started it, in its own namespace; 0 where that is not known.
    pub parent: u64,
    /// When it began to be accounted: milliseconds of `CLOCK_MONOTONIC`; 0 where that is not known.
    pub started: u64,
    /// Whether it has executed another program, which has a row of its own.
    pub executed: bool,
}

/// What processes mapped by themselves, by kind; of a process that ended, at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Private and writable: a part of what the row holds.
    pub private: u64,
    /// Shared memory.
    pub shared: u64,
    /// Files that are mapped to be read.
    pub file: u64,
}

/// Where the lines that say this stand among a ledger's statistics.
#[derive(Clone, Debug)]
pub struct Rules {
    lines: usize,
    /// The library's own line.
    refused: Option<usize>,
    /// Where the lines of all [`Item`]s begin; `None` in a ledger that is no run's.
    items: Option<usize>,
}

impl Rules {
    /// The rules for a ledger whose statistics have these names ([`ledgerline::MemoryStat`],
    /// [`ledgerline::Statistics::names`]). A ledger that has other items than a run's is none: what its items are called
    /// means nothing here.
    pub fn new<'n>(names: impl Iterator<Item = &'n str>) -> Rules {
        let names: Vec<&str> = names.collect();
        let items = names.ends_with(&Item::NAMES).then(|| names.len() - Item::NAMES.len());
        let refused = names.iter().position(|&name| name == "refused");
        Rules { lines: names.len(), refused, items }
    }

    /// Whether the ledger is that of a `ledgerline run`.
    pub fn is_run(&self) -> bool {
        self.items.is_some()
    }

    /// What a row says whose lines have these numbers: of the row itself, and with those below it.
    pub fn count(&self, own: impl Fn(usize) -> i64, subtree: impl Fn(usize) -> i64) -> Counted {
        let line = |item: Item| Some(self.items? + item as usize);
        let positive = |number: i64| number.max(0).cast_unsigned();
        let item = |item| line(item).map_or(0, |line| positive(subtree(line)));
        let alone = |item| line(item).map_or(0, |line| positive(own(line)));
        let [private, shared, file] = [Item::Private, Item::Shared, Item::File].map(item);
        let [first, time, largest, usage] = Item::REFUSED.map(alone);
        let [parent, started, executed] = Item::ORIGIN.map(alone);
        let no_sums = [&Item::REFUSED[..], &Item::ORIGIN].concat();
        let no_sums: Vec<Option<usize>> = no_sums.into_iter().map(line).collect();
        let sums = (0..self.lines).filter(|&line| !no_sums.contains(&Some(line)));
        Counted {
            mapped: Mapped { private, shared, file },
            forgotten: item(Item::Forgotten),
            refused: self
                .refused
                .map_or(0, |line| positive(subtree(line)))
                .saturating_sub(item(Item::Spared))
                .saturating_add(item(Item::RefusedHeap)),
            refused_heap: item(Item::RefusedHeap),
            most_refused: (first > 0).then_some(Refusals { first, time, largest, usage }),
            folded: alone(Item::Folded) > 0,
            processes: alone(Item::Ended),
            spared: item(Item::Spared).saturating_add(item(Item::SparedHeap)),
            resident: alone(Item::Resident),
            max_heap: alone(Item::MaxHeap).checked_sub(1),
            reserve: alone(Item::Reserved),
            blind: Blind::from_number(alone(Item::Blind).cast_signed()),
            left_out: alone(Item::LeftOut),
            origin: Origin { parent, started: started.saturating_sub(1), executed: executed > 0 },
            absurd: sums
                .flat_map(|line| [own(line), subtree(line)])
                .any(|sum| sum.unsigned_abs() > MOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(names: &[&str], sums: &[(&str, i64)]) -> Counted {
        let sum = |line: usize| {
            sums.iter().find(|(name, _)| *name == names[line]).map_or(0, |&(_, sum)| sum)
        };
        Rules::new(names.iter().copied()).count(sum, sum)
    }

    fn of_run() -> Vec<&'static str> {
        ["blocks_live", "refused"].into_iter().chain(Item::NAMES).collect()
    }

    #[test]
    fn what_the_reserve_granted_is_not_refused_and_its_size_is_a_part_of_the_max() {
        let [spared, heap, reserved] =
            [Item::Spared, Item::RefusedHeap, Item::Reserved].map(Item::name);
        let sums = [("refused", 10), (spared, 4), (heap, 3), (reserved, 4096)];
        let counted = count(&of_run(), &sums);
        assert_eq!((counted.refused, counted.spared, counted.refused_heap), (9, 4, 3));
        assert_eq!((counted.reserve, counted.absurd), (4096, false));
    }

    #[test]
    fn a_sum_that_nobody_counts_is_absurd_but_a_request_may_have_any_size() {
        assert!(count(&of_run(), &[(Item::Private.name(), 1 << 57)]).absurd);
        assert!(count(&of_run(), &[("blocks_live", -1 << 57)]).absurd);
        assert!(
            !count(
                &of_run(),
                &[(Item::RefusedFirst.name(), 1 << 57), (Item::RefusedLargest.name(), 1 << 57)]
            )
            .absurd
        );
    }

    #[test]
    fn a_program_may_call_its_own_items_as_a_run_does() {
        let [reserved, spared, ended] = [Item::Reserved, Item::Spared, Item::Ended].map(Item::name);
        let names = ["refused", reserved, spared, ended];
        let counted = count(&names, &[("refused", 10), (reserved, 7), (spared, 4), (ended, 1)]);
        assert_eq!(counted, Counted { refused: 10, ..Counted::default() });
        assert!(!Rules::new(names.into_iter()).is_run());
        assert!(Rules::new(of_run().into_iter()).is_run());
    }
}

//! The counts of a run's rows in the items of its ledger, and the detection of damaged rows.
//!
//! The account of `ledgerline run` and the looks of observers both follow these rules, so that they agree.

mod damaged;

pub use damaged::{MOST, MOST_PROCESSES, is_damaged};

use ledgerline_protocol::Item;
use ledgerline_protocol::blind::Blind;

/// The counts of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The memory that the row's process and those below it mapped.
    pub mapped: Mapped,
    /// Mapped bytes that are not charged, because the library has no room to follow more mappings.
    pub forgotten: u64,
    /// The number of charges of it and of those below it that a limit refused, without those that the reserve granted.
    pub refused: u64,
    /// The number of those that the limit for blocks alone refused.
    pub refused_heap: u64,
    /// The refusals of the row itself.
    pub most_refused: Option<Refusals>,
    /// Whether its process had more names than rows.
    pub folded: bool,
    /// The number of ended processes that the row stands for.
    pub processes: u64,
    /// Requests that the reserve served.
    pub spared: u64,
    /// The peak of resident bytes that the kernel saw in its process.
    pub resident: u64,
    /// The limit for blocks alone.
    pub max_heap: Option<u64>,
    /// The part of the user's max that is kept as the reserve: the user's max is the row's plus this.
    pub reserve: u64,
    /// Of the root, the limit of resident memory ([`of_root`](Self::of_root)). The root's own max is then a mark that
    /// opens and closes it.
    pub resident_max: Option<u64>,
    /// Why the row's process is not accounted.
    pub blind: Option<Blind>,
    /// Of the root: the number of processes that found no row left.
    pub left_out: u64,
    /// The identity of its process.
    pub origin: Origin,
    /// Whether a sum is larger than any real count.
    pub absurd: bool,
}

impl Counted {
    /// Reads the item that has another meaning for the root.
    #[must_use]
    pub fn of_root(self) -> Counted {
        const _: () = assert!(matches!(Item::RESIDENT_MAX, Item::Parent));
        let origin = Origin { parent: 0, ..self.origin };
        Counted { resident_max: self.origin.parent.checked_sub(1), origin, ..self }
    }
}

/// The refused requests of a row itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// Bytes of the first request.
    pub first: u64,
    /// The time of that request, in milliseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Bytes of the largest request.
    pub largest: u64,
    /// Bytes that were in use below the limit at that time.
    pub usage: u64,
}

/// The identity of a row's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id of the process that started it, in its own namespace; 0 if it is not known.
    pub parent: u64,
    /// The time at which it began to be accounted, in milliseconds of `CLOCK_MONOTONIC`; 0 if it is not known.
    pub started: u64,
    /// Whether it has executed another program, which has a row of its own.
    pub executed: bool,
}

/// Memory that processes mapped by themselves, by kind; of an ended process, at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Private and writable: a part of the row's holding.
    pub private: u64,
    /// Shared memory.
    pub shared: u64,
    /// Files that are mapped for reading.
    pub file: u64,
}

/// The positions of these counts among the lines of a ledger's statistics.
#[derive(Clone, Debug)]
pub struct Rules {
    lines: usize,
    /// The library's own line.
    refused: Option<usize>,
    /// The first line of the [`Item`]s; `None` in a ledger that is not a run's.
    items: Option<usize>,
}

impl Rules {
    /// Returns the rules for a ledger whose statistics have these names ([`ledgerline::MemoryStat`],
    /// [`ledgerline::Statistics::names`]). A ledger with other items than a run's counts as no run's: the names of its
    /// items have no meaning here.
    pub fn new<'n>(names: impl Iterator<Item = &'n str>) -> Rules {
        let names: Vec<&str> = names.collect();
        let items = names.ends_with(&Item::NAMES).then(|| names.len() - Item::NAMES.len());
        let refused = names.iter().position(|&name| name == "refused");
        Rules { lines: names.len(), refused, items }
    }

    /// Returns whether the ledger is that of a `ledgerline run`.
    pub fn is_run(&self) -> bool {
        self.items.is_some()
    }

    /// Returns the counts of a row from the numbers of its lines: of the row itself, and with those below it.
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
            resident_max: None,
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
    fn the_root_has_no_parent_but_may_have_a_limit_of_resident_memory() {
        let counted = count(&of_run(), &[(Item::RESIDENT_MAX.name(), 4097)]);
        assert_eq!((counted.origin.parent, counted.resident_max), (4097, None));
        let root = counted.of_root();
        assert_eq!((root.origin.parent, root.resident_max), (0, Some(4096)));
        assert_eq!(count(&of_run(), &[]).of_root().resident_max, None);
    }

    #[test]
    fn a_sum_beyond_any_count_is_absurd_but_a_request_may_have_any_size() {
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

//! Who was refused, when, by which budget: the last ones. They stay when their node leaves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{MAX_UNITS, Refusal, Sync};

use super::Book;
use super::rows::Hold;

/// Charges of one group that a budget refused on a node for one reason, within a while: those of which each came at most
/// [`Book::EPISODE`] after the one before. (A limit and a lease are one reason: there was no room.)
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Refused {
    /// When the first was refused, by the store's clock: milliseconds since 1970.
    pub since: u64,
    /// When the last was.
    pub at: u64,
    /// On which node.
    pub node: String,
    /// On which start of it.
    pub incarnation: u64,
    /// Which budget was full there.
    pub budget: String,
    /// The path of the group that asked.
    pub group: String,
    /// What stood in the way of the last one.
    pub full: Full,
    /// What the largest asked for.
    pub units: u64,
    /// How many were refused.
    pub count: u64,
}

/// What stands in the way of a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Full {
    /// The budget's limit: others hold the rest.
    #[default]
    Limit,
    /// The node's lease alone. When the book heard of it, there was room for the charge.
    Lease,
    /// The budget is deleted.
    Deleted,
    /// An operator drains the node.
    Drained,
}

impl Full {
    /// Whether both are told as one: a limit and a lease are met in turns while a budget is full.
    fn is_like(self, other: Self) -> bool {
        let of_room = |full| matches!(full, Self::Limit | Self::Lease);
        self == other || (of_room(self) && of_room(other))
    }
}

/// A row of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Noted {
    /// The number of the last that was noted here. A node that tells it again is not counted again: not after its leases ended
    /// and all else of it was forgotten, either.
    number: u64,
    pub refused: Refused,
}

impl Book {
    /// How many refusals a book keeps.
    pub const REFUSALS: usize = 64;

    /// Refusals of the same group, budget and node that follow each other within so many milliseconds are kept as one.
    pub const EPISODE: u64 = 60_000;

    /// Takes note of the refusals that this start of the node has not told before.
    /// `grows` is false of a node that is drained.
    pub(super) fn note(
        &mut self,
        now: u64,
        message: &Sync,
        holds: &BTreeMap<String, Hold>,
        grows: bool,
    ) {
        let mine = |row: &&Noted| row.refused.is_of(message);
        let told = self.refusals.iter().filter(mine).map(|row| row.number).max().unwrap_or(0);
        for said in message.refusals.iter().filter(|said| said.number > told) {
            let idle = holds.get(&said.budget).map_or(0, Hold::idle);
            let full = self.stands_in_the_way(said, idle, grows);
            self.fold(now.saturating_sub(said.age), message, full, said);
        }
    }

    /// What stands in the way of a charge now. `idle` is what its node has idle.
    fn stands_in_the_way(&self, said: &Refusal, idle: u64, grows: bool) -> Full {
        let there = self.budgets.get(&said.budget);
        let Some(budget) = there.filter(|budget| !budget.closing) else { return Full::Deleted };
        // (No sum here exceeds what a double holds: the store's function computes the same.)
        let left = budget.limit.saturating_sub(budget.held());
        match said.units.saturating_sub(idle) {
            _ if !grows => Full::Drained,
            more if more <= left => Full::Lease,
            _ => Full::Limit,
        }
    }

    fn fold(&mut self, at: u64, message: &Sync, full: Full, said: &Refusal) {
        let Refusal { number, ref budget, ref group, units, count, .. } = *said;
        let follows = |Noted { refused, .. }: &Noted| {
            refused.is_of(message)
                && (&refused.budget, &refused.group) == (budget, group)
                && refused.full.is_like(full)
                && at <= refused.at + Self::EPISODE
        };
        let before = self.refusals.iter().rposition(follows);
        let row = match before.and_then(|place| self.refusals.remove(place)) {
            Some(row) => row.refused,
            None => {
                if self.refusals.len() == Self::REFUSALS {
                    self.refusals.pop_front();
                }
                let Sync { node, incarnation, .. } = message;
                let (node, incarnation) = (node.clone(), *incarnation);
                let (budget, group) = (budget.clone(), group.clone());
                Refused { since: at, at, node, incarnation, budget, group, ..Refused::default() }
            }
        };
        let refused = Refused {
            since: row.since.min(at),
            at: row.at.max(at),
            full,
            units: row.units.max(units),
            count: (row.count + count).min(MAX_UNITS),
            ..row
        };
        self.refusals.push_back(Noted { number, refused });
    }
}

impl Refused {
    fn is_of(&self, message: &Sync) -> bool {
        (&self.node, self.incarnation) == (&message.node, message.incarnation)
    }
}

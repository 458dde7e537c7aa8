//! The last refusals: node, time and budget. They stay when their node leaves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{MAX_UNITS, Refusal, Sync};

use super::Book;
use super::rows::Hold;

/// Charges of one group that a budget refused on one node for one reason, within one episode: each came at most [`Book::EPISODE`]
/// after the one before. A limit and a lease count as one reason: there was no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Refused {
    /// Time of the first refusal, by the store's clock: milliseconds since 1970.
    pub since: u64,
    /// Time of the last refusal.
    pub at: u64,
    /// The node.
    pub node: String,
    /// The incarnation of the node.
    pub incarnation: u64,
    /// The budget that was full there.
    pub budget: String,
    /// The path of the group that made the charge.
    pub group: String,
    /// The obstacle of the last charge.
    pub full: Full,
    /// Size of the largest charge.
    pub units: u64,
    /// Number of refused charges.
    pub count: u64,
}

/// The obstacle of a refused charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Full {
    /// The budget's limit: others hold the rest.
    #[default]
    Limit,
    /// The node's lease alone. There was room for the charge when the book received the refusal.
    Lease,
    /// The budget is deleted.
    Deleted,
    /// An operator is draining the node.
    Drained,
}

impl Full {
    /// Returns whether both belong in one episode: charges meet a limit and a lease alternately while a budget is full.
    fn is_like(self, other: Self) -> bool {
        let of_room = |full| matches!(full, Self::Limit | Self::Lease);
        self == other || (of_room(self) && of_room(other))
    }
}

/// A row of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Noted {
    /// Number of the last refusal noted here. A refusal that a node sends again counts once, even after the node's leases have
    /// ended and its other rows are gone.
    number: u64,
    pub refused: Refused,
}

impl Book {
    /// Number of refusals that a book keeps.
    pub const REFUSALS: usize = 64;

    /// The longest gap, in milliseconds, between refusals of the same group, budget and node that are kept as one.
    pub const EPISODE: u64 = 60_000;

    /// Notes the refusals that this incarnation has not reported before. `grows` is false if the node is drained.
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

    /// Returns the present obstacle of a charge. `idle` is the number of units that its node has idle.
    fn stands_in_the_way(&self, said: &Refusal, idle: u64, grows: bool) -> Full {
        let there = self.budgets.get(&said.budget);
        let Some(budget) = there.filter(|budget| !budget.closing) else { return Full::Deleted };
        // No sum here exceeds the exact range of a double: the store's function computes the same.
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

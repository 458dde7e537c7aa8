//! The book of one organisation: budgets, nodes, leases, and how units are shared. It has no clock and does no input or output.
//!
//! ```text
//! apply(now, sync):
//!   the book's time goes on; it never goes back, whatever the store's clock does
//!   expire: each incarnation whose lease and grace have ended gives all back
//!   a newer incarnation takes the node's name           the older one is fenced, its leases count until they end
//!   a passed sequence number is late; the last one is answered again and changes nothing
//!   for each line, root first:
//!     lease := what the node says it holds, at most what the book has    (more only if the book lost writes: adopted)
//!     lease := want, if that is less                                     (given back)
//!     if not over, and what nodes hold is known:  lease += part of what is left, at most up to the lease above
//!   for each line, the lowest first:
//!     lease := at most what the level needs itself and what those below it can use now
//!   for each refusal that was not noted before: note it
//! ```
//!
//! A sync takes time for its lines and for the leases that ended. The store's function does the same in Lua, row by row.

mod apply;
mod change;
mod ends;
mod look;
mod refusals;
mod repair;
mod rows;
mod share;
mod time;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::message::{LONGEST_PROMISE, Malformed, Nudge};

pub use change::{Change, Rejected};
pub use refusals::{Full, Refused};
pub use view::{BudgetView, Event, HoldView, IncarnationView, Moved, NodeView, View, What};

use refusals::Noted;
use rows::{Budget, Node};
use time::Time;

/// The state of one organisation in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Book {
    terms: Terms,
    time: Time,
    /// When the book began, in its own time.
    born: Option<u64>,
    /// End of the learning phase. Until then the book grants nothing, and takes over the leases that nodes report.
    learning: u64,
    budgets: BTreeMap<String, Budget>,
    nodes: BTreeMap<String, Node>,
    /// When units are freed, with the row's node and incarnation.
    ends: BTreeSet<(u64, String, u64)>,
    events: VecDeque<Event>,
    /// Oldest first.
    refusals: VecDeque<Noted>,
    #[serde(skip)]
    nudged: BTreeSet<Nudge>,
}

/// How long leases hold, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// Time from a sync to the end of the node's leases.
    pub ttl: u64,
    /// Time from the end of a lease until its units go to others.
    pub grace: u64,
}

impl Default for Terms {
    /// Ten seconds, and five of grace.
    fn default() -> Self {
        Self { ttl: 10_000, grace: 5_000 }
    }
}

impl Terms {
    /// The maximum of each: a year.
    const LONGEST: u64 = LONGEST_PROMISE / 2;

    fn check(self) -> Result<(), Malformed> {
        let fits = (1..=Self::LONGEST).contains(&self.ttl) && self.grace <= Self::LONGEST;
        if fits { Ok(()) } else { Err(Malformed::Terms) }
    }
}

impl Book {
    /// Number of events that a book keeps.
    pub const EVENTS: usize = 64;

    /// Creates an empty book.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the nudges for nodes that listen, since the last call: units are wanted that others hold idle, were freed, or are
    /// waited for.
    pub fn nudged(&mut self) -> BTreeSet<Nudge> {
        std::mem::take(&mut self.nudged)
    }

    /// Returns the book as operators see it at `now`, in milliseconds. Leases that have ended by then are gone.
    pub fn view(&mut self, now: u64) -> View {
        let time = self.time.at(now, self.terms);
        if self.expire(now, time.now()) {
            self.time = time;
        }
        // Operators see times of the store's clock.
        let shown = |at: u64| (at + now).saturating_sub(time.now());
        let mut budgets: BTreeMap<&String, BudgetView> =
            self.budgets.iter().map(|(path, budget)| (path, budget.view(path))).collect();
        for (name, node) in &self.nodes {
            for (number, incarnation) in &node.incarnations {
                for (path, hold) in &incarnation.holds {
                    if let Some(budget) = budgets.get_mut(path) {
                        budget.holds.push(hold.view(name, *number));
                    }
                }
            }
        }
        View {
            at: now,
            ttl: self.terms.ttl,
            grace: self.terms.grace,
            learning: self.learning.saturating_sub(time.now()),
            budgets: budgets.into_values().collect(),
            nodes: self
                .nodes
                .iter()
                .map(|(name, node)| node.view(name, shown))
                .filter(NodeView::is_here)
                .collect(),
            events: self.events.iter().cloned().collect(),
            refusals: self.refusals.iter().map(|row| row.refused.clone()).collect(),
        }
    }

    fn tell(&mut self, at: u64, node: &str, what: What) {
        if self.events.len() == Self::EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event { at, node: node.to_owned(), what });
    }
}

impl Budget {
    fn view(&self, path: &str) -> BudgetView {
        BudgetView {
            path: path.to_owned(),
            limit: self.limit,
            minimum: self.minimum,
            closing: self.closing,
            leased: self.leased,
            excess: self.excess,
            over: self.over(),
            unmet: self.unmet,
            waiting: self.waiting,
            idle: self.idle,
            lacking: self.lacking,
            refused: self.refused,
            lost: false,
            holds: Vec::new(),
        }
    }
}

impl rows::Hold {
    fn view(&self, node: &str, incarnation: u64) -> HoldView {
        let Self { lease, used, want, excess, unmet, waiting, lacking, refused, .. } = *self;
        let node = node.to_owned();
        HoldView { node, incarnation, lease, used, want, excess, unmet, waiting, lacking, refused }
    }
}

impl Node {
    fn view(&self, name: &str, shown: impl Fn(u64) -> u64) -> NodeView {
        let here = self.incarnations.iter().filter(|(_, incarnation)| !incarnation.left);
        let incarnations = here.map(|(number, incarnation)| IncarnationView {
            incarnation: *number,
            fenced: *number != self.current,
            sequence: incarnation.sequence,
            ends: shown(incarnation.ends),
            freed: shown(incarnation.freed),
        });
        let incarnations = incarnations.collect();
        NodeView { name: name.to_owned(), draining: self.draining, incarnations }
    }
}

//! What operators change: budgets, terms, nodes.

use std::error::Error;
use std::fmt;

use crate::message::{MAX_UNITS, Malformed, Nudge, above, check_name, check_path, has_below};

use super::rows::Budget;
use super::{Book, Terms};

/// What an operator changes in a book.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Creates a budget, or changes one that is there; one that is closing opens again. What is `None` stays as it is.
    Set {
        /// `/acme/batch`; `/acme` must be there.
        path: String,
        /// How many units may be leased. A new budget needs one.
        limit: Option<u64>,
        /// What is kept from others for each node that uses the budget: where they have it already, it comes as they give back. 0
        /// of a new budget.
        minimum: Option<u64>,
    },
    /// Deletes a budget that has none below it. If it is leased, it grants nothing and goes with its last lease.
    Delete {
        /// `/acme/batch`.
        path: String,
    },
    /// How long leases hold, from each node's next sync on. What is `None` stays as it is.
    Terms {
        /// [`Terms::ttl`].
        ttl: Option<u64>,
        /// [`Terms::grace`].
        grace: Option<u64>,
    },
    /// Asks a node for all its leases and gives it no more; or ends that. The node may have yet to join.
    Drain {
        /// The node's name.
        node: String,
        /// Whether to drain it.
        on: bool,
    },
}

/// A book cannot be changed like this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rejected {
    /// A name, a path or a number breaks the protocol.
    Malformed(Malformed),
    /// There is no budget of this path, or of the level above a new one.
    NoBudget(String),
    /// A new budget needs a limit.
    NoLimit(String),
    /// There are budgets below the one to delete.
    HasBudgetsBelow(String),
    /// The level above is deleted.
    Closing(String),
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::NoBudget(path) => write!(f, "there is no budget {path}"),
            Self::NoLimit(path) => write!(f, "{path} is new and needs a limit"),
            Self::HasBudgetsBelow(path) => write!(f, "there are budgets below {path}"),
            Self::Closing(path) => write!(f, "{path} is deleted"),
        }
    }
}

impl Error for Rejected {}

impl From<Malformed> for Rejected {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Terms> for Change {
    /// Sets both.
    fn from(terms: Terms) -> Self {
        Self::Terms { ttl: Some(terms.ttl), grace: Some(terms.grace) }
    }
}

impl Change {
    /// Checks names and numbers, as a store does before it sends the change.
    ///
    /// # Errors
    /// What is wrong with the change.
    pub fn check(&self, organisation: &str) -> Result<(), Malformed> {
        check_name(organisation)?;
        match self {
            Self::Set { path, limit, minimum } => {
                check_path(organisation, path)?;
                match limit.iter().chain(minimum).find(|units| **units > MAX_UNITS) {
                    Some(units) => Err(Malformed::TooMany(*units)),
                    None => Ok(()),
                }
            }
            Self::Delete { path } => check_path(organisation, path),
            Self::Terms { ttl, grace } => {
                let usual = Terms::default();
                let (ttl, grace) = (ttl.unwrap_or(usual.ttl), grace.unwrap_or(usual.grace));
                Terms { ttl, grace }.check()
            }
            Self::Drain { node, .. } => check_name(node),
        }
    }
}

impl Book {
    /// Applies an operator's change at `now`, in milliseconds. Deleting looks at all budgets.
    ///
    /// # Errors
    /// Why not. The book's budgets are as they were.
    pub fn administer(&mut self, now: u64, change: &Change) -> Result<(), Rejected> {
        self.goes_on(now);
        match change {
            Change::Set { path, limit, minimum } => self.set(path, *limit, *minimum),
            Change::Delete { path } => self.delete(path),
            Change::Terms { ttl, grace } => {
                let Terms { ttl: old, grace: before } = self.terms;
                let terms = Terms { ttl: ttl.unwrap_or(old), grace: grace.unwrap_or(before) };
                terms.check()?;
                self.terms = terms;
                Ok(())
            }
            Change::Drain { node, on } => {
                check_name(node)?;
                self.drain(node, *on);
                Ok(())
            }
        }
    }

    fn set(
        &mut self,
        path: &str,
        limit: Option<u64>,
        minimum: Option<u64>,
    ) -> Result<(), Rejected> {
        if let Some(above) = above(path) {
            match self.budgets.get(above) {
                None => return Err(Rejected::NoBudget(above.to_owned())),
                Some(budget) if budget.closing => return Err(Rejected::Closing(above.to_owned())),
                Some(_) => {}
            }
        }
        if !self.budgets.contains_key(path) && limit.is_none() {
            return Err(Rejected::NoLimit(path.to_owned()));
        }
        let budget: &mut Budget = self.budgets.entry(path.to_owned()).or_default();
        budget.limit = limit.unwrap_or(budget.limit);
        budget.minimum = minimum.unwrap_or(budget.minimum);
        budget.closing = false;
        if budget.holds > 0 {
            self.nudged.insert(Nudge::Sync(path.to_owned()));
        }
        Ok(())
    }

    fn delete(&mut self, path: &str) -> Result<(), Rejected> {
        let below = has_below(&self.budgets, path);
        let Some(budget) = self.budgets.get_mut(path) else {
            return Err(Rejected::NoBudget(path.to_owned()));
        };
        if below {
            return Err(Rejected::HasBudgetsBelow(path.to_owned()));
        }
        if budget.holds == 0 {
            self.budgets.remove(path);
        } else {
            budget.closing = true;
            self.nudged.insert(Nudge::Sync(path.to_owned()));
        }
        Ok(())
    }

    fn drain(&mut self, name: &str, on: bool) {
        let node = self.nodes.entry(name.to_owned()).or_default();
        node.draining = on;
        let held = node.incarnations.values().flat_map(|incarnation| incarnation.holds.keys());
        self.nudged.extend(held.cloned().map(Nudge::Sync));
        self.forget_if_gone(name);
    }
}

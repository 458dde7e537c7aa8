//! Changes by operators: budgets, terms, nodes.

use std::error::Error;
use std::fmt;

use crate::message::{MAX_UNITS, Malformed, Nudge, above, check_name, check_path, has_below};

use super::rows::Budget;
use super::{Book, Moved, Terms, What};

/// A change of a book by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Creates or changes a budget; reopens one that is closing. A field that is `None` stays as it is.
    Set {
        /// The path, as in `/acme/batch`; `/acme` must exist.
        path: String,
        /// How many units may be leased. A new budget needs a limit.
        limit: Option<u64>,
        /// Units that are kept from others for each node that uses the budget. If others have them already, the minimum fills as
        /// they give back. 0 in a new budget.
        minimum: Option<u64>,
    },
    /// Deletes a budget that has none below it. A budget with leases grants nothing more and is removed with its last lease.
    Delete {
        /// The path, as in `/acme/batch`.
        path: String,
    },
    /// Sets how long leases hold, from each node's next sync on. A field that is `None` stays as it is.
    Terms {
        /// [`Terms::ttl`].
        ttl: Option<u64>,
        /// [`Terms::grace`].
        grace: Option<u64>,
    },
    /// Asks a node for all its leases and grants it no more, or ends that. The node need not have joined yet.
    Drain {
        /// The node's name.
        node: String,
        /// Whether to drain it.
        on: bool,
    },
    /// Recomputes all sums from the holds, and drops orphaned rows.
    Repair,
    /// A change with its author. The book records both.
    By {
        /// A name without a slash: `root@host`.
        who: String,
        /// The change.
        change: Box<Change>,
    },
}

/// The reason why a book rejects a change.
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
    /// The level above is being deleted.
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
    /// Returns a change that sets both terms.
    fn from(terms: Terms) -> Self {
        Self::Terms { ttl: Some(terms.ttl), grace: Some(terms.grace) }
    }
}

impl Change {
    /// Checks names and numbers. Stores call this before they send the change.
    ///
    /// # Errors
    /// Describes what is wrong with the change.
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
            Self::Repair => Ok(()),
            Self::By { who, change } => check_name(who).and_then(|()| change.check(organisation)),
        }
    }
}

impl Book {
    /// Applies an operator's change at `now`, in milliseconds. Deleting takes time for all budgets.
    ///
    /// # Errors
    /// Returns the reason of a rejection. The book's budgets are unchanged then.
    pub fn administer(&mut self, now: u64, change: &Change) -> Result<(), Rejected> {
        self.goes_on(now);
        self.change(now, "", change)
    }

    fn change(&mut self, now: u64, who: &str, change: &Change) -> Result<(), Rejected> {
        match change {
            Change::Set { path, limit, minimum } => {
                let what = self.set(path, *limit, *minimum)?;
                self.noted(now, who, what);
            }
            Change::Delete { path } => {
                self.delete(path)?;
                self.tell(now, who, What::Deleted { path: path.clone() });
            }
            Change::Terms { ttl, grace } => {
                let before = self.terms;
                let ttl = ttl.unwrap_or(before.ttl);
                let terms = Terms { ttl, grace: grace.unwrap_or(before.grace) };
                terms.check()?;
                self.terms = terms;
                let ttl = Moved { from: Some(before.ttl), to: terms.ttl };
                let grace = Moved { from: Some(before.grace), to: terms.grace };
                let what = What::Terms { ttl, grace };
                self.noted(now, who, (before != terms).then_some(what));
            }
            Change::Drain { node, on } => {
                check_name(node)?;
                let changes = self.drain(node, *on);
                let what = What::Drained { node: node.clone(), on: *on };
                self.noted(now, who, changes.then_some(what));
            }
            Change::Repair => {
                let budgets = self.recount();
                self.tell(now, who, What::Repaired { budgets });
            }
            Change::By { who, change } => {
                check_name(who)?;
                self.change(now, who, change)?;
            }
        }
        Ok(())
    }

    /// Records an event for a change that had an effect.
    fn noted(&mut self, now: u64, who: &str, what: Option<What>) {
        if let Some(what) = what {
            self.tell(now, who, what);
        }
    }

    fn set(
        &mut self,
        path: &str,
        limit: Option<u64>,
        minimum: Option<u64>,
    ) -> Result<Option<What>, Rejected> {
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
        let before = self.budgets.get(path).cloned();
        let budget: &mut Budget = self.budgets.entry(path.to_owned()).or_default();
        budget.limit = limit.unwrap_or(budget.limit);
        budget.minimum = minimum.unwrap_or(budget.minimum);
        budget.closing = false;
        if budget.holds > 0 {
            self.nudged.insert(Nudge::Sync(path.to_owned()));
        }
        let moved =
            |of: fn(&Budget) -> u64| Moved { from: before.as_ref().map(of), to: of(budget) };
        let [limit, minimum] = [moved(|budget| budget.limit), moved(|budget| budget.minimum)];
        let same = before.as_ref().is_some_and(|before| !before.closing)
            && [limit, minimum].iter().all(|moved| moved.from == Some(moved.to));
        Ok((!same).then(|| What::Set { path: path.to_owned(), limit, minimum }))
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

    /// Sets or clears the drain of a node. Returns whether that changed anything.
    fn drain(&mut self, name: &str, on: bool) -> bool {
        let node = self.nodes.entry(name.to_owned()).or_default();
        let changes = std::mem::replace(&mut node.draining, on) != on;
        let held = node.incarnations.values().flat_map(|incarnation| incarnation.holds.keys());
        self.nudged.extend(held.cloned().map(Nudge::Sync));
        self.forget_if_gone(name);
        changes
    }
}

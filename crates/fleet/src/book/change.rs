//! What operators change: budgets, terms, nodes.

use std::error::Error;
use std::fmt;

use crate::message::{MAX_UNITS, Malformed, Nudge, above, check_name, check_path, has_below};

use super::rows::Budget;
use super::{Book, Moved, Terms, What};

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
    /// Recomputes all sums from what nodes hold, and drops rows that belong to nothing.
    Repair,
    /// A change, and who makes it: the book notes it with what was changed.
    By {
        /// A name without a slash: `root@host`.
        who: String,
        /// The change.
        change: Box<Change>,
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
            Self::Repair => Ok(()),
            Self::By { who, change } => check_name(who).and_then(|()| change.check(organisation)),
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

    /// Tells of a change that changed something.
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

    /// Returns whether that is new.
    fn drain(&mut self, name: &str, on: bool) -> bool {
        let node = self.nodes.entry(name.to_owned()).or_default();
        let changes = std::mem::replace(&mut node.draining, on) != on;
        let held = node.incarnations.values().flat_map(|incarnation| incarnation.holds.keys());
        self.nudged.extend(held.cloned().map(Nudge::Sync));
        self.forget_if_gone(name);
        changes
    }
}

//! What follows for the caller.

use crate::message::State;

/// What the caller does at once, in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Raise a group's limit: the book has granted it.
    Raise {
        /// The budget.
        path: String,
        /// The group's `max`.
        max: u64,
    },
    /// Lower a group's limit, whatever is in use, and ask its reclaimers for what is above.
    Lower {
        /// The budget.
        path: String,
        /// The group's `max`.
        max: u64,
    },
    /// Lower a group's limit, whatever is in use, so that what is returned goes to others first.
    Hold {
        /// The budget.
        path: String,
        /// The group's `max`.
        max: u64,
    },
    /// Tell whoever listens.
    Tell(Event),
}

/// What a node's owner may have to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The leases ended before the store was reached.
    Ended,
    /// It has leases again.
    Resumed,
    /// Another process has the node's name. The leases go on until they end, and grow no more.
    Fenced,
    /// The book has applied a message of this incarnation that this process did not send: a fork, or a copied machine.
    Doubled,
    /// A budget is no longer as it was: it is over, or deleted, or grants again what is left of its limit, say.
    Budget {
        /// The budget.
        path: String,
        /// How it is now.
        state: State,
    },
}

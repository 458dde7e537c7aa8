//! What follows for the caller.

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
    /// A budget is over, and grants nothing.
    Over {
        /// The budget.
        path: String,
        /// By how much.
        by: u64,
    },
    /// A budget is deleted, and goes with its last lease.
    Closing {
        /// The budget.
        path: String,
    },
    /// An operator drains this node: it is asked for all of a budget, and granted no more.
    Drained {
        /// The budget.
        path: String,
    },
    /// The store has no such budget.
    Unknown {
        /// The budget.
        path: String,
    },
    /// A budget grants again what is left of its limit.
    Open {
        /// The budget.
        path: String,
    },
}

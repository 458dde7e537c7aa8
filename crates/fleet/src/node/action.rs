//! Actions that the caller carries out.

use crate::message::State;

/// An action that the caller carries out at once, in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Raises a group's limit: the book has granted it.
    Raise {
        /// The budget's path.
        path: String,
        /// The group's `max`.
        max: u64,
    },
    /// Lowers a group's limit, even below its usage, and asks its reclaimers for the excess.
    Lower {
        /// The budget's path.
        path: String,
        /// The group's `max`.
        max: u64,
    },
    /// Lowers a group's limit, even below its usage, so that returned units go to other nodes first.
    Hold {
        /// The budget's path.
        path: String,
        /// The group's `max`.
        max: u64,
    },
    /// Sends an event to all listeners.
    Tell(Event),
}

/// An event that a node's owner may need to know of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The leases ended before the node reached the store.
    Ended,
    /// The node has leases again.
    Resumed,
    /// Another process has the node's name. The leases last until they end, and grow no more.
    Fenced,
    /// The book has applied a message of this incarnation that this process did not send: the process was forked, or its machine
    /// copied.
    Doubled,
    /// The state of a budget changed: for example it is over, is deleted, or grants again.
    Budget {
        /// The budget's path.
        path: String,
        /// The new state.
        state: State,
    },
}

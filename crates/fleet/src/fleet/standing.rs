//! Reasons why a lease does not grow.

use std::fmt;

/// The standing of this node in a budget: [`Budget::standing`](super::Budget::standing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// The budget grants what is left of its limit.
    Open,
    /// More is leased than its limit allows. It grants nothing.
    Over {
        /// Number of units above the limit.
        by: u64,
    },
    /// It is deleted, and is removed with its last lease.
    Closing,
    /// An operator drains this node: it is granted nothing.
    Drained,
    /// The store has no such budget.
    Unknown,
    /// The store's book was emptied or damaged. It grants nothing until all nodes have reported their leases.
    Learning,
    /// The node's leases ended before it reached the store again.
    Ended,
    /// Another process has the node's name. Its leases grow no more.
    Fenced,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "the budget grants what is left of it",
            Self::Over { .. } => "more is leased than its limit allows, so it grants nothing",
            Self::Closing => "the budget is deleted, so it grants nothing",
            Self::Drained => "an operator drains this node, so it is granted nothing",
            Self::Unknown => "the store has no such budget",
            Self::Learning => "the store lost its book, and grants nothing before all nodes have said what they hold",
            Self::Ended => "this node's leases ended before it reached the store again",
            Self::Fenced => "another process has this node's name, so its leases grow no more",
        })
    }
}

//! A book as operators see it. In JSON its budgets, holds, nodes and incarnations have the names that operators know:
//! `docs/schemas/fleet.v1.json`. Its events and refusals keep their names in Rust.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Refused;

/// A whole book at one moment. Rows are sorted by path, by name and by incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// When the book was read, by the store's clock: milliseconds since 1970.
    pub at: u64,
    /// How long a lease holds, in milliseconds.
    #[serde(rename = "lease_ms")]
    pub ttl: u64,
    /// How long after a lease's end its units are kept from others, in milliseconds.
    #[serde(rename = "grace_ms")]
    pub grace: u64,
    /// The remaining milliseconds in which the book grants nothing, because it was emptied or damaged; 0 if it grants.
    #[serde(rename = "learning_ms")]
    pub learning: u64,
    /// All budgets.
    pub budgets: Vec<BudgetView>,
    /// All nodes.
    pub nodes: Vec<NodeView>,
    /// The last [`Book::EVENTS`](super::Book::EVENTS), oldest first.
    pub events: Vec<Event>,
    /// The last [`Book::REFUSALS`](super::Book::REFUSALS) refusals, oldest first.
    pub refusals: Vec<Refused>,
}

/// One budget. Its numbers are units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BudgetView {
    /// The budget's path.
    pub path: String,
    /// The limit on the sum of all leases.
    #[serde(rename = "max")]
    pub limit: u64,
    /// Units kept from others for each node that uses the budget.
    #[serde(rename = "min")]
    pub minimum: u64,
    /// The budget is deleted, and is removed with its last lease.
    #[serde(rename = "deleted")]
    pub closing: bool,
    /// The sum of all leases.
    pub leased: u64,
    /// Units that nodes use beyond their leases.
    pub excess: u64,
    /// By how much `leased` and `excess` are above the limit.
    pub over: u64,
    /// Units that nodes want and lack.
    pub unmet: u64,
    /// The part of `unmet` that charges wait for.
    pub waiting: u64,
    /// Units that are leased and not used.
    pub idle: u64,
    /// Units that nodes lack to their minimum.
    pub lacking: u64,
    /// Number of refused charges, on all nodes that ever were.
    pub refused: u64,
    /// The store lost the budget's limits and knows it from leases alone. It grants nothing until they are set again.
    pub lost: bool,
    /// The part of each node.
    #[serde(rename = "nodes")]
    pub holds: Vec<HoldView>,
}

/// The part of one incarnation of a node in one budget. Its numbers are units, except `refused`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HoldView {
    /// The node's name.
    pub node: String,
    /// The incarnation.
    #[serde(serialize_with = "digits", deserialize_with = "number")]
    pub incarnation: u64,
    /// Units that it may use.
    pub lease: u64,
    /// Units in use at the node's last sync.
    pub used: u64,
    /// The lease that it asks for.
    pub want: u64,
    /// Units in use beyond its lease.
    pub excess: u64,
    /// The part of its want that could not be granted.
    pub unmet: u64,
    /// The part of `unmet` that charges wait for.
    pub waiting: u64,
    /// Units that it lacks to the minimum.
    pub lacking: u64,
    /// Number of charges refused there.
    pub refused: u64,
}

/// A node, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeView {
    /// The node's name.
    pub name: String,
    /// The node is drained: its leases are asked back, and it gets no more.
    #[serde(rename = "drained")]
    pub draining: bool,
    /// Its incarnations whose leases still count.
    #[serde(rename = "starts")]
    pub incarnations: Vec<IncarnationView>,
}

/// One incarnation of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IncarnationView {
    /// The incarnation's number.
    #[serde(serialize_with = "digits", deserialize_with = "number")]
    pub incarnation: u64,
    /// A newer incarnation has the name.
    #[serde(rename = "replaced")]
    pub fenced: bool,
    /// The highest sequence number applied.
    #[serde(rename = "messages")]
    pub sequence: u64,
    /// When its leases end, by the store's clock, unless it syncs earlier.
    pub ends: u64,
    /// When its units go to others, unless it syncs earlier.
    pub freed: u64,
}

/// An event that an operator may need to know of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When it happened, by the store's clock: milliseconds since 1970.
    pub at: u64,
    /// The node, or the author of a change as far as known.
    pub node: String,
    /// The event.
    pub what: What,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum What {
    /// The book had lost writes and took over a lease that the node holds.
    Adopted {
        /// The budget's path.
        path: String,
        /// Number of units that the book did not know of.
        units: u64,
        /// By how much the budget has been over since then.
        over: u64,
    },
    /// Another process took the node's name. The leases of the older incarnation count until they end.
    Fenced {
        /// The older incarnation.
        incarnation: u64,
    },
    /// The node did not sync in time. Its units went to others.
    Ended {
        /// The incarnation that ended.
        incarnation: u64,
    },
    /// An operator created or changed a budget.
    Set {
        /// The budget's path.
        path: String,
        /// The budget's limit.
        limit: Moved,
        /// The budget's minimum.
        minimum: Moved,
    },
    /// An operator deleted a budget.
    Deleted {
        /// The budget's path.
        path: String,
    },
    /// An operator changed the terms of leases.
    Terms {
        /// The duration of a lease, in milliseconds.
        ttl: Moved,
        /// The grace, in milliseconds.
        grace: Moved,
    },
    /// An operator started or ended the drain of a node.
    Drained {
        /// The node's name.
        node: String,
        /// Whether the node is drained now.
        on: bool,
    },
    /// An operator had the sums recomputed.
    Repaired {
        /// Number of budgets whose sums were wrong.
        budgets: u64,
    },
    /// The store had lost some of the book's keys. Sums were recomputed, and nothing is granted for a while.
    Damaged {
        /// Number of budgets whose sums were wrong.
        budgets: u64,
    },
}

/// The old and new value of a changed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moved {
    /// The old value; `None` for a new budget.
    pub from: Option<u64>,
    /// The new value.
    pub to: u64,
}

/// Writes a number of 64 bits as text, because not all readers of JSON keep all its digits.
fn digits<S: Serializer>(incarnation: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{incarnation:016x}"))
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    u64::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
}

impl NodeView {
    /// Returns whether the node has not left, or is drained.
    pub(crate) fn is_here(&self) -> bool {
        self.draining || !self.incarnations.is_empty()
    }
}

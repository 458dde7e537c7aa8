//! A book as operators see it. As JSON its budgets, holds, nodes and starts have the names that operators know:
//! `docs/schemas/fleet.v1.json`. (Its events and refusals have those of Rust.)

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Refused;

/// A whole book at one moment. Rows are sorted by path, by name and by incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// When, by the store's clock: milliseconds since 1970.
    pub at: u64,
    /// How long a lease holds, in milliseconds.
    #[serde(rename = "lease_ms")]
    pub ttl: u64,
    /// How long after a lease's end its units are kept from others, in milliseconds.
    #[serde(rename = "grace_ms")]
    pub grace: u64,
    /// For how many milliseconds the book grants nothing yet, since it was emptied or damaged; 0 if it grants.
    #[serde(rename = "learning_ms")]
    pub learning: u64,
    /// The budgets.
    pub budgets: Vec<BudgetView>,
    /// The nodes.
    pub nodes: Vec<NodeView>,
    /// The last [`Book::EVENTS`](super::Book::EVENTS), oldest first.
    pub events: Vec<Event>,
    /// The last [`Book::REFUSALS`](super::Book::REFUSALS) that were refused, the last one last.
    pub refusals: Vec<Refused>,
}

/// One budget. Its numbers are units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BudgetView {
    /// Its path.
    pub path: String,
    /// How many units may be leased.
    #[serde(rename = "max")]
    pub limit: u64,
    /// What is kept from others for each node that uses the budget.
    #[serde(rename = "min")]
    pub minimum: u64,
    /// It is deleted, and goes with its last lease.
    #[serde(rename = "deleted")]
    pub closing: bool,
    /// The sum of all leases.
    pub leased: u64,
    /// What nodes use beyond their leases.
    pub excess: u64,
    /// By how much `leased` and `excess` are above the limit.
    pub over: u64,
    /// What nodes want and lack.
    pub unmet: u64,
    /// What of that charges wait for.
    pub waiting: u64,
    /// Leased, and used by nobody.
    pub idle: u64,
    /// What nodes lack to their minimum.
    pub lacking: u64,
    /// Charges that were refused, on all nodes that ever were.
    pub refused: u64,
    /// The store lost its limits, and knows it of leases alone: it grants nothing before they are set again.
    pub lost: bool,
    /// What each node has of it.
    #[serde(rename = "nodes")]
    pub holds: Vec<HoldView>,
}

/// What one incarnation of a node has of one budget. Its numbers are units, but for `refused`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HoldView {
    /// The node's name.
    pub node: String,
    /// Its incarnation.
    #[serde(serialize_with = "digits", deserialize_with = "number")]
    pub incarnation: u64,
    /// What it may use.
    pub lease: u64,
    /// What it used when it last spoke.
    pub used: u64,
    /// The lease it would like.
    pub want: u64,
    /// What it uses beyond its lease.
    pub excess: u64,
    /// What of its want could not be granted.
    pub unmet: u64,
    /// What of that charges wait for.
    pub waiting: u64,
    /// What it lacks to the minimum.
    pub lacking: u64,
    /// Charges that were refused there.
    pub refused: u64,
}

/// One node's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeView {
    /// The name.
    pub name: String,
    /// Its leases are asked back, and it gets no more.
    #[serde(rename = "drained")]
    pub draining: bool,
    /// Its starts whose leases still count.
    #[serde(rename = "starts")]
    pub incarnations: Vec<IncarnationView>,
}

/// One start of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IncarnationView {
    /// Its number.
    #[serde(serialize_with = "digits", deserialize_with = "number")]
    pub incarnation: u64,
    /// A newer one has the name.
    #[serde(rename = "replaced")]
    pub fenced: bool,
    /// The highest sequence number applied.
    #[serde(rename = "messages")]
    pub sequence: u64,
    /// When its leases end, by the store's clock, unless it syncs before.
    pub ends: u64,
    /// When its units go to others, unless it syncs before.
    pub freed: u64,
}

/// Something an operator may have to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When, by the store's clock: milliseconds since 1970.
    pub at: u64,
    /// Which node; or who changed something, as far as that is known.
    pub node: String,
    /// What happened.
    pub what: What,
}

/// What happened to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum What {
    /// The book had lost writes, and took over a lease that the node holds.
    Adopted {
        /// The budget.
        path: String,
        /// How many units the book did not know of.
        units: u64,
        /// By how much the budget is over since then.
        over: u64,
    },
    /// Another process took the node's name. The leases of the older one count until they end.
    Fenced {
        /// The older one.
        incarnation: u64,
    },
    /// It did not sync in time. Its units went to others.
    Ended {
        /// The incarnation that ended.
        incarnation: u64,
    },
    /// An operator made a budget, or changed it.
    Set {
        /// The budget.
        path: String,
        /// Its limit.
        limit: Moved,
        /// Its minimum.
        minimum: Moved,
    },
    /// An operator deleted a budget.
    Deleted {
        /// The budget.
        path: String,
    },
    /// An operator changed how long leases hold.
    Terms {
        /// The lease, in milliseconds.
        ttl: Moved,
        /// The grace.
        grace: Moved,
    },
    /// An operator drained a node, or ended that.
    Drained {
        /// The node.
        node: String,
        /// Whether it is drained now.
        on: bool,
    },
    /// An operator had the sums recomputed.
    Repaired {
        /// Of how many budgets they were wrong.
        budgets: u64,
    },
    /// The store had lost some of the book's keys: sums were recomputed, and nothing is granted for a while.
    Damaged {
        /// Of how many budgets the sums were wrong.
        budgets: u64,
    },
}

/// A number that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moved {
    /// What it was; `None` of a new budget.
    pub from: Option<u64>,
    /// What it is.
    pub to: u64,
}

/// (Numbers of 64 bits are not exact in all readers of JSON.)
fn digits<S: Serializer>(incarnation: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{incarnation:016x}"))
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    u64::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
}

impl NodeView {
    /// It did not leave, or an operator keeps it from coming back.
    pub(crate) fn is_here(&self) -> bool {
        self.draining || !self.incarnations.is_empty()
    }
}

//! Why a budget is not to be had, or a charge was not granted.

use std::error::Error;
use std::fmt;

use ledgerline::{CreateError, Reason, Refused, size};

use crate::message::{MAX_LINES, Malformed};
use crate::store::StoreError;

use super::Standing;

/// Why the fleet did not do as it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetError {
    /// The store gave no answer.
    Store(StoreError),
    /// There is no room: in this node's leases, after the store was asked, or in a group of the ledger below them.
    Refused(NoRoom),
    /// The store has no budget of this path.
    Unknown(String),
    /// This node uses as many budgets of the organisation as a message to the store may name
    /// ([`MAX_LINES`](crate::message::MAX_LINES)), so it cannot use this one as well.
    TooMany(String),
    /// Another process has the node's name.
    Fenced,
    /// A path is none.
    Path(Malformed),
    /// A group could not be made.
    Group(CreateError),
    /// The node left, or was to leave while so many units are charged.
    Charged(u64),
}

/// A charge that found no room, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    pub(super) refused: Refused,
    /// Of the budget whose lease is full, if a lease is.
    pub(super) standing: Option<Standing>,
    pub(super) room: Option<Room>,
}

/// What a budget has, as the store last said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub limit: u64,
    /// What other nodes have leased.
    pub others: u64,
    /// What this node has.
    pub lease: u64,
}

/// What stands in the way of a charge: [`NoRoom::obstacle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The charge is larger than the budget's limit: no waiting helps.
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// With what this node uses it would be more than the limit, whatever the others hold.
    Limit {
        /// The limit.
        limit: u64,
    },
    /// Other nodes have leased what it needs.
    Others {
        /// The limit.
        limit: u64,
        /// What they have leased.
        leased: u64,
    },
    /// The limit has room for it, and this node has not leased that.
    Lease {
        /// The limit.
        limit: u64,
    },
}

impl NoRoom {
    /// What the ledger said: which group was full, how large the charge was. Where that group is a budget's, its limit is what
    /// the node has leased.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// The limit of the budget whose lease is full, as the store last said. (The limit in [`refused`](Self::refused) is the lease.)
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.room.map(|room| room.limit)
    }

    /// What stood in the way, where a lease is full whose budget grants what is left of it.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        let room = self.room.filter(|_| self.standing == Some(Standing::Open))?;
        let (requested, usage) = (self.refused.requested, self.refused.usage);
        let Room { limit, others, .. } = room;
        let all = usage.saturating_add(requested);
        Some(match limit {
            _ if requested > limit => Obstacle::TooLarge { limit },
            _ if all > limit => Obstacle::Limit { limit },
            _ if all.saturating_add(others) > limit => Obstacle::Others { limit, leased: others },
            _ => Obstacle::Lease { limit },
        })
    }

    /// How the node stands with the budget whose lease is full. `None` where a group is full that is no budget of the fleet.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        self.standing
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(standing) = self.standing.filter(|_| self.refused.reason == Reason::Limit) else {
            return self.refused.fmt(f);
        };
        let lease = self.room.map_or(self.refused.limit, |room| room.lease);
        let [requested, usage, lease] =
            [self.refused.requested, self.refused.usage, lease].map(size::format);
        write!(f, "{requested} of {} requested, and this node ", self.refused.group)?;
        write!(f, "uses {usage} of its lease of {lease}; ")?;
        match self.obstacle().filter(|_| standing == Standing::Open) {
            Some(Obstacle::TooLarge { limit }) => {
                write!(f, "that is more than the budget's limit of {}", size::format(limit))
            }
            Some(Obstacle::Limit { limit }) => {
                write!(f, "both are more than the budget's limit of {}", size::format(limit))
            }
            Some(Obstacle::Others { limit, leased }) => write!(
                f,
                "other nodes have leased {} of the budget's limit of {}",
                size::format(leased),
                size::format(limit)
            ),
            Some(Obstacle::Lease { limit }) => write!(
                f,
                "the budget's limit of {} has room, and the store has not granted it yet",
                size::format(limit)
            ),
            None if standing == Standing::Open => {
                f.write_str("the store granted no more of the budget")
            }
            None => standing.fmt(f),
        }
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => {
                write!(f, "{error}; leases go on until they end, and none grows")
            }
            Self::Refused(no_room) => no_room.fmt(f),
            Self::Unknown(path) => {
                write!(f, "the store has no budget {path}; an operator sets its limit")
            }
            Self::TooMany(path) => write!(
                f,
                "{path} would be one budget more than the {MAX_LINES} that a message to the store names; drop one, or use it on \
                 another node"
            ),
            Self::Fenced => {
                f.write_str("another process has this node's name; join again under another one")
            }
            Self::Path(malformed) => malformed.fmt(f),
            Self::Group(error) => error.fmt(f),
            Self::Charged(units) => {
                write!(f, "{units} units are still charged; the leases end by themselves")
            }
        }
    }
}

impl Error for FleetError {}

impl From<StoreError> for FleetError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Refused> for FleetError {
    fn from(refused: Refused) -> Self {
        Self::Refused(NoRoom { refused, standing: None, room: None })
    }
}

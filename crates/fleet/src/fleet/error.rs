//! Errors of a fleet: why a budget is unavailable, or a charge was not granted.

use std::error::Error;
use std::fmt;

use ledgerline::{CreateError, Reason, Refused, size};

use crate::message::{MAX_LINES, Malformed};
use crate::store::StoreError;

use super::Standing;

/// An error of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetError {
    /// The store gave no answer.
    Store(StoreError),
    /// There is no room, either in this node's leases after the store was asked, or in a group of the ledger below them.
    Refused(NoRoom),
    /// The store has no budget of this path.
    Unknown(String),
    /// This node uses as many budgets of the organisation as a message to the store may name
    /// ([`MAX_LINES`](crate::message::MAX_LINES)), so it cannot use this one as well.
    TooMany(String),
    /// Another process has the node's name.
    Fenced,
    /// A path is malformed.
    Path(Malformed),
    /// A group could not be made.
    Group(CreateError),
    /// This number of units was still charged when the node left, or was to leave.
    Charged(u64),
}

/// A charge that found no room, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    pub(super) refused: Refused,
    /// The standing in the budget whose lease is full, if a lease is.
    pub(super) standing: Option<Standing>,
    pub(super) room: Option<Room>,
}

/// The figures of a budget, as the store last said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub limit: u64,
    /// The leases of other nodes.
    pub others: u64,
    /// The lease of this node.
    pub lease: u64,
}

/// The obstacle of a charge: [`NoRoom::obstacle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The charge is larger than the budget's limit, so waiting is useless.
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The charge and this node's usage together exceed the limit, whatever other nodes hold.
    Limit {
        /// The limit.
        limit: u64,
    },
    /// Other nodes have leased the units.
    Others {
        /// The limit.
        limit: u64,
        /// The sum of their leases.
        leased: u64,
    },
    /// The limit has room for the charge, but this node has not leased it.
    Lease {
        /// The limit.
        limit: u64,
    },
}

impl NoRoom {
    /// Returns the ledger's refusal: the full group and the size of the charge. If that group is a budget's, its limit is the
    /// node's lease.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Returns the limit of the budget whose lease is full, as the store last said. The limit in [`refused`](Self::refused) is
    /// the lease.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.room.map(|room| room.limit)
    }

    /// Returns the obstacle, if a lease is full whose budget still grants.
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

    /// Returns the node's standing in the budget whose lease is full. `None` if the full group is not a budget of the fleet.
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

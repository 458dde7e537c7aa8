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
}

impl NoRoom {
    /// What the ledger said: which group was full, how large the charge was. Where that group is a budget's, its limit is what
    /// the node has leased.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
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
        let [requested, usage, lease] =
            [self.refused.requested, self.refused.usage, self.refused.limit].map(size::format);
        write!(f, "{requested} of {} requested, and this node ", self.refused.group)?;
        write!(f, "uses {usage} of the {lease} it has leased; ")?;
        match standing {
            Standing::Open => f.write_str("the store granted no more of the budget"),
            other => other.fmt(f),
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
        Self::Refused(NoRoom { refused, standing: None })
    }
}

//! Why a budget is not to be had, or a charge was not granted.

use std::error::Error;
use std::fmt;

use ledgerline::{CreateError, Refused};

use crate::message::Malformed;
use crate::store::StoreError;

/// Why the fleet did not do as it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetError {
    /// The store gave no answer.
    Store(StoreError),
    /// There is no room: in this node's leases, after the store was asked, or in a group of the ledger below them.
    Refused(Refused),
    /// The store has no budget of this path.
    Unknown(String),
    /// Another process has the node's name.
    Fenced,
    /// A path is none.
    Path(Malformed),
    /// A group could not be made.
    Group(CreateError),
    /// The node left, or was to leave while so many units are charged.
    Charged(u64),
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(path) => {
                write!(f, "the store has no budget {path}; an operator sets its limit")
            }
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
        Self::Refused(refused)
    }
}

impl From<Malformed> for FleetError {
    fn from(malformed: Malformed) -> Self {
        Self::Path(malformed)
    }
}

impl From<CreateError> for FleetError {
    fn from(error: CreateError) -> Self {
        Self::Group(error)
    }
}

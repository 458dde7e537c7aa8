//! The top of a pool.

use crate::lease::Lease;
use ledgerline::OwnedGroup;

/// The top of a pool: a group; or, with the feature `fleet`, this node's part of a budget that many machines share. It
/// is made `From` either, which stays in use while the pool or a query of it lives.
#[derive(Debug)]
pub struct Top {
    pub(crate) group: OwnedGroup,
    pub(crate) lease: Option<Lease>,
}

impl From<OwnedGroup> for Top {
    fn from(group: OwnedGroup) -> Top {
        Top { group, lease: None }
    }
}

#[cfg(feature = "fleet")]
impl From<ledgerline_fleet::fleet::Budget> for Top {
    fn from(budget: ledgerline_fleet::fleet::Budget) -> Top {
        Top { group: budget.owned().clone(), lease: Some(Lease::new(budget)) }
    }
}

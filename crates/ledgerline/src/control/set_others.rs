//! Sets the limits that refuse nothing: `high`, `low` and `min`.

use crate::control::events;
use crate::counter::changes::Which;
use crate::group::Group;
use crate::size::Limit;

impl Group<'_> {
    /// Sets the soft limit above which charges count `high` events. A [`try_charge`](Self::try_charge) or
    /// [`request`](Self::request) that asks the counters and ends above it, by more than what may lie idle
    /// ([`Estimate::bound`](crate::Estimate)), asks the reclaimers below for the excess
    /// ([`add_reclaimer`](Self::add_reclaimer)). A reclaimer that gave nothing is left alone for
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time). No charge is refused for it.
    ///
    /// In a ledger that lets only its maker set limits, other processes change nothing by this
    /// ([`LedgerBuilder::steerable`](crate::LedgerBuilder::steerable)).
    pub fn set_high(self, limit: Limit) {
        self.set_other(Which::High, limit);
    }

    /// Sets how much is protected from reclaim unless nothing else is left ([`Events::low`](crate::Events::low)
    /// counts how often that is so). How siblings share what their parent is granted,
    /// [`protection`](Self::protection) says.
    pub fn set_low(self, limit: Limit) {
        self.set_other(Which::Low, limit);
    }

    /// Sets how much is always protected from reclaim. A charge is refused before this is reclaimed.
    /// How siblings share what their parent is granted, [`protection`](Self::protection) says.
    pub fn set_min(self, limit: Limit) {
        self.set_other(Which::Min, limit);
    }

    /// Sets a limit, and tells of it where that changed anything.
    fn set_other(self, which: Which, limit: Limit) {
        let changed = self.ledger().is_steerable()
            && self.change(|row| row.counter.set_other(which, limit.raw())) == Some(true);
        if changed {
            events::limits_changed(self.ledger(), self.id());
        }
    }
}

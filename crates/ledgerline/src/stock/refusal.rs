//! Who says no to a charge: the lowest level that is full; and the counting of it.
//!
//! A charge can be refused by several levels at a time. The one that is named, reclaimed from and searched
//! for victims is the nearest to the group that was charged: as long as that is full, whatever anybody outside
//! of it gives up is given up in vain. And where some level can never fit the request, nobody is asked to give
//! up anything for it at all.
//!
//! A charge may be tried several times (after reclaim, while it waits), but it is refused once. So a try
//! counts nothing, and whoever gives the final answer does ([`count_refusal`](Ledger::count_refusal)).

use crate::counter::walk::No;
use crate::counter::{COUNTER_MAX, PageCounter};
use crate::error::{Reason, Refusal};
use crate::gate::lock;
use crate::ledger::Ledger;
use crate::report::memory_stat::Sum;
use crate::table::path::RowPath;
use crate::table::row::GroupId;

impl Ledger {
    /// What a walk's no says to whoever asked.
    pub(crate) fn refusal(
        &self,
        path: &RowPath<'_>,
        charged: GroupId,
        requested: u64,
        no: No,
    ) -> Refusal {
        let (level, reason) = match no {
            No::Full { level } => (level, Reason::Limit),
            // The row may be another group's by now.
            No::Closed { level: 0 } => return Refusal::gone(charged, requested),
            No::Closed { level } => (level, Reason::Gone),
        };
        let index = path.row(level);
        let counter = path.counters()[level];
        Refusal {
            group: GroupId::from_parts(index, self.row(index).generation()),
            charged,
            limit: counter.max(),
            usage: counter.usage(),
            requested,
            reason,
        }
    }

    /// Counts a charge that a limit refused for good: at the group whose limit said no, and for the group
    /// that was charged. Async-signal-safe.
    #[cold]
    pub(crate) fn count_refusal(&self, refusal: &Refusal) {
        // (What no group can hold is no limit's doing.)
        if refusal.reason != Reason::Limit || refusal.requested > COUNTER_MAX {
            return;
        }
        self.note_sum(refusal.charged, Sum::Refused, 1);
        let _pass = lock::pass();
        // (A group that is gone by now has no account any more.)
        if let Some(path) = self.path(refusal.group) {
            path.counters()[0].count_refusal();
            self.announce(&path, 1);
        }
    }

    /// The lowest group on the way that has no room for so much more; what may lie idle counts as room,
    /// since it is drained when a charge is tried.
    pub(crate) fn lowest_full(&self, id: GroupId, units: u64) -> Option<GroupId> {
        let path = self.path(id)?;
        let full = |counter: &&PageCounter| {
            let usage = counter.usage().saturating_sub(counter.idle_at_most());
            units > 0 && usage.saturating_add(units) > counter.max()
        };
        let level = path.counters().iter().position(full)?;
        let row = path.row(level);
        Some(GroupId::from_parts(row, self.row(row).generation()))
    }

    /// Whether every limit on the way would allow so much, if nothing else were in use.
    pub(crate) fn can_ever_fit(&self, id: GroupId, units: u64) -> bool {
        self.path(id).is_none_or(|path| path.counters().iter().all(|it| it.max() >= units))
    }
}

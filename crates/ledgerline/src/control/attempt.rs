//! Makes one attempt at a charge, and counts a charge that was refused for good.

use super::audit::By;
use super::events;
use crate::counter::COUNTER_MAX;
use crate::counter::walk::Levels;
use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::refusal::{Reason, Refusal};
use crate::stock::{self, AtLimit};
use crate::table::path::RowPath;
use crate::table::row::flag;
use crate::table::sums::{self, Sum};

/// A charge that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    Counted,
    /// The group is not accounted (`control/mode.rs`).
    Uncounted,
}

/// Returns whether a charge with a guard is exempt from counting.
pub(crate) fn is_off(group: Group<'_>, units: u64) -> bool {
    group.row().has(flag::OFF) && units <= COUNTER_MAX && group.exists()
}

/// Asks the stock and the counters once, for a charge that the running CPU's cell could not serve. Notifies the
/// watchers of the levels at which its walk met a limit, and returns those levels. A refusal is not counted yet:
/// another attempt may follow.
#[inline(never)]
pub(crate) fn once(group: Group<'_>, units: u64, at: AtLimit, by: By) -> Result<Levels, Refusal> {
    let (ledger, table, id) = (group.ledger(), group.table(), group.id());
    let met = stock::charge(table, id, units, at)?;
    if met != 0 {
        events::announce_from(ledger, id, met);
    }
    sums::note_flow(table, id, Sum::Charged, units);
    if let Some(audit) = ledger.audit() {
        audit.charged(ledger, id, units, by);
    }
    Ok(met)
}

/// Counts a charge that a limit refused for good: at the group whose limit refused it, and for the group that was
/// charged. Records it if the program asked for notes. Async-signal-safe.
#[cold]
pub(crate) fn count_refusal(ledger: &Ledger, refusal: &Refusal) {
    // A charge beyond the counter's range is refused, but by no limit.
    if matches!(refusal.reason, Reason::Limit | Reason::Queued) && refusal.requested <= COUNTER_MAX
    {
        sums::note(ledger.table(), refusal.charged, Sum::Refused, 1);
        count_at_limit(ledger, refusal);
        if let Some(notes) = ledger.control().refusals.get() {
            notes.note(ledger.table(), refusal);
        }
    }
}

/// Counts a refusal at the group whose limit refused the charge, and notifies its watchers.
pub(crate) fn count_at_limit(ledger: &Ledger, refusal: &Refusal) {
    let _pass = lock::pass();
    // A group that is gone by now no longer has an account.
    if let Some(path) = RowPath::of(ledger.table(), refusal.group) {
        path.counters()[0].count_refusal();
        events::announce(ledger, &path, 1);
    }
}

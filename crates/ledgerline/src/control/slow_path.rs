//! The slow path of a charge and of an uncharge, taken if the running CPU's cell cannot serve them.
//!
//! ```text
//! charge(group, n)                                    uncharge(group, n)
//!   fold the cell's count, take again: done             fold the cell's count, put again: done
//!   the group is off: granted, and not counted          the audit finds it wrong: nothing
//!   the stock and the counters, once: done              count the flow
//!   a limit refuses: ask the reclaimers below           the stock, or the counters
//!     it, try again, as long as that is of use
//!   it ended above a high: ask the reclaimers there
//!   refused: count it, tell the watchers
//! ```

use super::attempt::{self, Grant};
use super::audit::{By, Site};
use super::{events, reclaim, wait_queue};
use crate::group::Group;
use crate::stock::refusal::{Reason, Refusal};
use crate::stock::{self, AtLimit, cell, transfer};
use crate::table::sums::{self, Sum};

/// Charges units without a guard. Asks no reclaimer, does not wait, allocates nothing.
#[cold]
#[inline(never)]
pub(crate) fn charge_units(
    group: Group<'_>,
    units: u64,
    at: AtLimit,
    site: Site,
) -> Result<(), Refusal> {
    if cell::fold_and_take(group.table(), group.id(), units) {
        return Ok(());
    }
    if at == AtLimit::Refuse {
        finally(group, wait_queue::pass(group, units))?;
    }
    finally(group, attempt::once(group, units, at, By::Hand(site))).map(|_met| ())
}

/// Charges units for an allocation. Does not count a refusal: the allocator decides what follows.
pub(crate) fn ask_units(
    group: Group<'_>,
    units: u64,
    at: AtLimit,
    site: Site,
) -> Result<(), Refusal> {
    if group.take_at_hand(units) || cell::fold_and_take(group.table(), group.id(), units) {
        return Ok(());
    }
    attempt::once(group, units, at, By::Hand(site)).map(|_met| ())
}

/// Charges units for a guard, over the limits if necessary. Asks no reclaimer.
pub(crate) fn charge(group: Group<'_>, units: u64, site: Site) -> Result<Grant, Refusal> {
    if cell::fold_and_take(group.table(), group.id(), units) {
        return Ok(Grant::Counted);
    }
    if attempt::is_off(group, units) {
        return Ok(Grant::Uncounted);
    }
    finally(group, attempt::once(group, units, AtLimit::Overrun, By::Maker(site)))
        .map(|_met| Grant::Counted)
}

/// Charges units for a guard. Asks reclaimers if a limit refuses.
#[inline(never)]
pub(crate) fn try_charge(group: Group<'_>, units: u64, site: Site) -> Result<Grant, Refusal> {
    if cell::fold_and_take(group.table(), group.id(), units) {
        return Ok(Grant::Counted);
    }
    let charged =
        wait_queue::pass(group, units).and_then(|()| charge_with_help(group, units, site));
    finally(group, charged)
}

/// Like [`try_charge`], but does not count a refusal: the caller may try again.
pub(crate) fn try_again(group: Group<'_>, units: u64, site: Site) -> Result<Grant, Refusal> {
    if group.take_prepaid(units) {
        return Ok(Grant::Counted);
    }
    charge_with_help(group, units, site)
}

/// Asks the reclaimers if a limit refuses, and if the charge ends above a high. A refusal is not counted.
fn charge_with_help(group: Group<'_>, units: u64, site: Site) -> Result<Grant, Refusal> {
    if attempt::is_off(group, units) {
        return Ok(Grant::Uncounted);
    }
    let by = By::Maker(site);
    let met = attempt::once(group, units, AtLimit::Refuse, by)
        .or_else(|refusal| reclaim::and_charge(group, units, refusal, by))?;
    if met != 0 {
        reclaim::high(group, met);
    }
    Ok(Grant::Counted)
}

/// Counts the refusal, if any, as the final answer.
fn finally<T>(group: Group<'_>, result: Result<T, Refusal>) -> Result<T, Refusal> {
    result.inspect_err(|refusal| attempt::count_refusal(group.ledger(), refusal))
}

/// Returns units that were charged without a guard. Returns `false` if that was found to be a mistake.
#[cold]
#[inline(never)]
pub(crate) fn uncharge_units(group: Group<'_>, units: u64, site: Site) -> bool {
    uncharge(group, units, By::Hand(site))
}

/// Returns units for which the running CPU's cell has no room. Returns `false` and changes nothing if that was found
/// to be a mistake.
pub(crate) fn uncharge(group: Group<'_>, units: u64, by: By) -> bool {
    let (ledger, id) = (group.ledger(), group.id());
    let table = ledger.table();
    if cell::fold_and_put(table, id, units) {
        return true;
    }
    if let Some(audit) = ledger.audit()
        && !audit.allows(ledger, id, units, by)
    {
        return false;
    }
    // Counted before the units go, since they keep the row.
    sums::note_flow(table, id, Sum::Freed, units);
    let returned = stock::uncharge(table, id, units);
    if !returned {
        sums::note_flow(table, id, Sum::Freed, units.wrapping_neg());
    }
    returned
}

/// Moves granted units, of a guard or of a charge without one, to another group of the ledger.
pub(crate) fn transfer(
    from: Group<'_>,
    to: Group<'_>,
    units: u64,
    at: AtLimit,
    guard: bool,
) -> Result<(), Refusal> {
    let (ledger, from, to) = (from.ledger(), from.id(), to.id());
    let met = transfer::units(ledger.table(), from, to, units, at).inspect_err(|refusal| {
        if refusal.reason == Reason::Limit && at == AtLimit::Refuse {
            attempt::count_at_limit(ledger, refusal);
        }
    })?;
    if met != 0 {
        events::announce_from(ledger, to, met);
    }
    if let Some(audit) = ledger.audit() {
        audit.exchange(ledger, &[(from, units)], &[(to, units)], guard);
    }
    Ok(())
}

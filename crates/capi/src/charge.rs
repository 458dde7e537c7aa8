//! Charges by units, without guards: the caller returns its charges.

use crate::border::{self, Named, Outcome, fail, named, run};
use crate::registry;
use crate::types::ledgerline_code_t::{self, *};
use crate::types::ledgerline_group_t;
use ledgerline::Charge;
use std::time::Duration;

/// For ledgerline_try_charge_wait: if a limit is met and nothing can be reclaimed, cancels a victim
/// (ledgerline_add_victim) and waits for the units that it returns.
pub const LEDGERLINE_OOM: u32 = 1;
/// For ledgerline_try_charge_wait: sleeps for usage above high before it returns.
pub const LEDGERLINE_THROTTLED: u32 = 2;

/// The fast half of a charge: takes prepaid units of the running CPU. Follows no handle, counts nothing.
#[inline(always)]
fn take(group: ledgerline_group_t, units: u64) -> bool {
    registry::lease_of(group.ledger).take(group.ledger, group.id, units)
}

/// The slow half of a charge or an uncharge.
#[cold]
#[inline(never)]
fn slowly<T>(
    group: ledgerline_group_t,
    units: u64,
    walk: impl FnOnce(&Named, u64) -> Outcome<T>,
) -> ledgerline_code_t {
    run(|| {
        let (named, units) = (named(group)?, border::units(units)?);
        walk(&named, units).map(drop)
    })
}

/// Charges a group and all its ancestors, or refuses. Before it refuses, it asks the reclaimers below the full group
/// (ledgerline_add_reclaimer), which run in this thread. The caller returns the units by ledgerline_uncharge.
///
/// Costs one to three nanoseconds if the running CPU has prepaid units, otherwise a walk to the root (a quarter of a
/// microsecond). Zero units are granted as long as the group exists.
///
/// Errors: LEDGERLINE_ERROR_LIMIT (the last error names the full group), _GONE, _HANDLE, _DAMAGED; _RANGE beyond 2^62
/// units, and if a group without a limit would hold more than that. Threads: any. Signals: not async-signal-safe;
/// ledgerline_try_charge_units is.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_try_charge(
    group: ledgerline_group_t,
    units: u64,
) -> ledgerline_code_t {
    if take(group, units) {
        return LEDGERLINE_OK;
    }
    slowly(group, units, |named, units| Ok(named.group().try_charge(units)?.into_units()))
}

/// Like ledgerline_try_charge, for allocators and signal handlers: it asks no reclaimer, does not wait and allocates
/// nothing.
///
/// Errors: as ledgerline_try_charge. Threads: any. Signals: async-signal-safe. In a program that loads the library by
/// dlopen, this holds only if the thread had an error before, since the text of an error is a thread-local variable.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_try_charge_units(
    group: ledgerline_group_t,
    units: u64,
) -> ledgerline_code_t {
    if take(group, units) {
        return LEDGERLINE_OK;
    }
    slowly(group, units, |named, units| {
        let charged = named.group().try_charge_units(units);
        charged.map_err(|refusal| border::refused(named.visit.number, refusal))
    })
}

/// Charges even over the limits, for charges that must not fail. Each group that this takes over its limit counts a
/// `max` event. It asks no reclaimer and allocates nothing.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _DAMAGED; _RANGE beyond 2^62 units, and if a group, limited or not, would
/// hold more than that. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_charge(group: ledgerline_group_t, units: u64) -> ledgerline_code_t {
    if take(group, units) {
        return LEDGERLINE_OK;
    }
    slowly(group, units, |named, units| {
        let charged = named.group().charge_units(units);
        charged.map_err(|refusal| border::refused_over(named.visit.number, refusal))
    })
}

/// Returns units that were charged to the group, from any thread, in one part or in several. This is also possible
/// after the group was destroyed, as long as its charges hold units: they then go back to its ancestors.
///
/// A ledger counts units and does not know which charge they belong to. So a mistake (units that are returned twice)
/// shows only if the group's counter would fall below zero. While the group holds units of other charges, the second
/// return takes those. Units that fit into the running CPU's stock of the group (32 KiB, a sixteenth of its usage,
/// or 32 of its large charges, whichever is most) become idle there without a check: until the stock is drained, the
/// groups above read lower by as much. LEDGERLINE_AUDIT finds all such mistakes.
///
/// Errors: LEDGERLINE_ERROR_MISTAKE if more was returned than that, also for a destroyed group that holds nothing any
/// more (nothing was changed, and the mistake was counted: ledgerline_mistakes); _HANDLE; _GONE for a number that no
/// group can have; _RANGE. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_uncharge(group: ledgerline_group_t, units: u64) -> ledgerline_code_t {
    if registry::lease_of(group.ledger).put(group.ledger, group.id, units) {
        return LEDGERLINE_OK;
    }
    slowly(group, units, |named, units| {
        if named.group().try_uncharge_units(units) {
            return Ok(());
        }
        let id = named.group().id();
        let why = format_args!("group {id} does not hold {units} units; nothing was returned");
        Err(fail(LEDGERLINE_ERROR_MISTAKE, why))
    })
}

/// Like ledgerline_try_charge, but waits up to `milliseconds` for room (UINT64_MAX: without a time limit). Waiters at
/// one full group are served in order of arrival. `flags` is 0, or LEDGERLINE_OOM and LEDGERLINE_THROTTLED in any
/// combination. A charge that a limit can never allow is refused at once.
///
/// A ledger that is freed meanwhile stays until this returns, and this continues to wait.
///
/// Errors: LEDGERLINE_ERROR_LIMIT when the time is up, _CANCELLED if the group was cancelled meanwhile; _ARGUMENT for an
/// unknown flag; _GONE, _HANDLE, _RANGE, _DAMAGED. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_try_charge_wait(
    group: ledgerline_group_t,
    units: u64,
    milliseconds: u64,
    flags: u32,
) -> ledgerline_code_t {
    run(|| {
        if flags & !(LEDGERLINE_OOM | LEDGERLINE_THROTTLED) != 0 {
            return Err(fail(LEDGERLINE_ERROR_ARGUMENT, format_args!("unknown flags {flags:#x}")));
        }
        let (named, units) = (named(group)?, border::units(units)?);
        let mut request = named.group().request(units).wait(Duration::from_millis(milliseconds));
        if flags & LEDGERLINE_OOM != 0 {
            request = request.oom();
        }
        if flags & LEDGERLINE_THROTTLED != 0 {
            request = request.throttled();
        }
        request.charge()?.into_units();
        Ok(())
    })
}

/// Moves units that are charged to one group to another group of the same ledger. Only limits below their first
/// common ancestor apply. The new group is charged before the old one is uncharged, and a snapshot shows the units in
/// one of the two.
///
/// Errors: LEDGERLINE_ERROR_LIMIT, and the units stay where they were; _MISTAKE if the old group does not hold as
/// many; _ARGUMENT for groups of two ledgers; _GONE, _HANDLE, _RANGE, _DAMAGED. Threads: any. Signals: not
/// async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_transfer(
    from: ledgerline_group_t,
    to: ledgerline_group_t,
    units: u64,
) -> ledgerline_code_t {
    run(|| {
        if from.ledger != to.ledger {
            return Err(fail(LEDGERLINE_ERROR_ARGUMENT, "the groups are of two ledgers"));
        }
        let (from, units) = (named(from)?, border::units(units)?);
        let to = border::existing(to)?;
        // More than it holds cannot be moved. If another thread returns units meanwhile, that is a mistake of the
        // caller's, which is then counted.
        let held = from.group().precise();
        if from.group().exists() && held < units {
            let why = format_args!("the group holds {held} units, not {units}");
            return Err(fail(LEDGERLINE_ERROR_MISTAKE, why));
        }
        let charge = Charge::from_units(from.group(), units);
        if !charge.is_counted() {
            // It holds nothing, so nothing is returned when it drops.
            let why = "the audit knows no charge of so many units in that group";
            return Err(fail(LEDGERLINE_ERROR_MISTAKE, why));
        }
        match charge.transfer(to.group()) {
            Ok(moved) => {
                moved.into_units();
                Ok(())
            }
            Err((stays, refused)) => {
                stays.into_units();
                Err(refused.into())
            }
        }
    })
}

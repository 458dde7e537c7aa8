//! Limits and modes.

use crate::border::{Outcome, UNITS_MAX, existing, fail, named, reading, run, set_if_asked};
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{ledgerline_group_t, ledgerline_limits_t};
use ledgerline::{ControlMode, Group, Limit};

/// The value for no limit.
pub const LEDGERLINE_NO_LIMIT: u64 = u64::MAX;
/// Limits hold. The initial mode of every group.
pub const LEDGERLINE_ENFORCE: u32 = 0;
/// Charges are counted. One that would have been refused counts a `max` event.
pub const LEDGERLINE_MEASURE: u32 = 1;
/// Nothing is refused, and guards are not counted. Charges by units are counted, so that they can be returned later,
/// with `max` events as in LEDGERLINE_MEASURE.
pub const LEDGERLINE_OFF: u32 = 2;

fn limit(units: u64) -> Outcome<Limit> {
    match units {
        LEDGERLINE_NO_LIMIT => Ok(Limit::MAX),
        0..UNITS_MAX => Ok(Limit::units(units)),
        _ => {
            let why =
                format_args!("a limit of {units}: it is below {UNITS_MAX}, or LEDGERLINE_NO_LIMIT");
            Err(fail(LEDGERLINE_ERROR_RANGE, why))
        }
    }
}

fn units(limit: Limit) -> u64 {
    limit.get().unwrap_or(LEDGERLINE_NO_LIMIT)
}

pub(crate) fn limits([max, high, low, min]: [Limit; 4]) -> ledgerline_limits_t {
    ledgerline_limits_t { max: units(max), high: units(high), low: units(low), min: units(min) }
}

/// Sets a limit that never fails on an existing group.
fn set(group: ledgerline_group_t, to: u64, set: impl Fn(Group<'_>, Limit)) -> ledgerline_code_t {
    run(|| {
        let (named, limit) = (named(group)?, limit(to)?);
        set(named.group(), limit);
        named.exists()
    })
}

/// Sets the hard limit, or LEDGERLINE_NO_LIMIT. If usage is above it, idle units are returned and the reclaimers
/// below are asked first. No charge ever sees a limit that does not hold.
///
/// Errors: LEDGERLINE_ERROR_BUSY if usage is still above it (the limit stays as it was); _RANGE for 2^62 and more;
/// _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units, as long as the ledger has no reclaimers and
/// the call succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_set_max(
    group: ledgerline_group_t,
    max: u64,
) -> ledgerline_code_t {
    run(|| {
        let (named, limit) = (named(group)?, limit(max)?);
        Ok(named.group().set_max(limit)?)
    })
}

/// Sets the hard limit regardless of usage, for a runaway group: from then on charges are refused until usage has
/// come down. The excess of usage over the limit is stored in `above`, which may be NULL.
///
/// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_set_max_now(
    group: ledgerline_group_t,
    max: u64,
    above: *mut u64,
) -> ledgerline_code_t {
    run(|| {
        let (named, limit) = (named(group)?, limit(max)?);
        let left = named.group().set_max_now(limit)?;
        // SAFETY: as the header asks of the caller.
        unsafe { set_if_asked(above, || left) }
    })
}

/// Sets the soft limit above which reclaimers are asked and a charge with LEDGERLINE_THROTTLED is slowed down.
///
/// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_set_high(
    group: ledgerline_group_t,
    high: u64,
) -> ledgerline_code_t {
    set(group, high, |group, limit| group.set_high(limit))
}

/// Sets how much is protected from reclaim unless nothing else is left.
///
/// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_set_low(
    group: ledgerline_group_t,
    low: u64,
) -> ledgerline_code_t {
    set(group, low, |group, limit| group.set_low(limit))
}

/// Sets how much is always protected from reclaim.
///
/// Errors: LEDGERLINE_ERROR_RANGE, _GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_set_min(
    group: ledgerline_group_t,
    min: u64,
) -> ledgerline_code_t {
    set(group, min, |group, limit| group.set_min(limit))
}

/// Returns the limits of a group.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_limits(
    group: ledgerline_group_t,
    limits: *mut ledgerline_limits_t,
) -> ledgerline_code_t {
    let read =
        |group: Group<'_>| self::limits([group.max(), group.high(), group.low(), group.min()]);
    // SAFETY: as the header asks of the caller.
    unsafe { reading(group, limits, "the place for limits", read) }
}

/// Sets the mode of a group and all below it, present and future: LEDGERLINE_ENFORCE, LEDGERLINE_MEASURE or
/// LEDGERLINE_OFF.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT for another number, _GONE, _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_set_mode(
    group: ledgerline_group_t,
    mode: u32,
) -> ledgerline_code_t {
    run(|| {
        let mode = match mode {
            LEDGERLINE_ENFORCE => ControlMode::Enforce,
            LEDGERLINE_MEASURE => ControlMode::Measure,
            LEDGERLINE_OFF => ControlMode::Off,
            _ => {
                return Err(fail(LEDGERLINE_ERROR_ARGUMENT, format_args!("{mode} is no mode")));
            }
        };
        let named = existing(group)?;
        named.group().set_mode(mode);
        named.exists()
    })
}

/// Returns the mode of a group.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_mode(
    group: ledgerline_group_t,
    mode: *mut u32,
) -> ledgerline_code_t {
    let read = |group: Group<'_>| match group.mode() {
        ControlMode::Enforce => LEDGERLINE_ENFORCE,
        ControlMode::Measure => LEDGERLINE_MEASURE,
        ControlMode::Off => LEDGERLINE_OFF,
    };
    // SAFETY: as the header asks of the caller.
    unsafe { reading(group, mode, "the mode", read) }
}

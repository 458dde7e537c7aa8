//! Readings: usage, peaks, events, statistics, snapshots, diagnoses.

use crate::border::{self, c_string, existing, hand_out, named, reading, run, text};
use crate::group::estimate;
use crate::ledger::no_item;
use crate::limit::limits;
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{
    ledgerline_estimate_t, ledgerline_events_t, ledgerline_group_snapshot_t, ledgerline_group_t,
    ledgerline_ledger_t, ledgerline_visit_t,
};
use ledgerline::{Events, GroupState};
use std::ffi::{c_char, c_void};

/// The group accepts charges, or its process ended and has not been settled yet.
pub const LEDGERLINE_STATE_LIVE: u32 = 0;
/// Its process ended, and was settled (ledgerline_settle_dead). It is kept for its counts.
pub const LEDGERLINE_STATE_EXITED: u32 = 1;
/// Another program overwrote it; its numbers are meaningless.
pub const LEDGERLINE_STATE_DAMAGED: u32 = 2;

/// The name of the place for most readings in a sentence.
const PLACE: &str = "the place for the reading";

/// Returns the units that are charged to a group and all below it, exactly: true at a moment of the call. Costs a
/// look at every cell in use.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_usage(
    group: ledgerline_group_t,
    usage: *mut u64,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    unsafe { reading(group, usage, PLACE, |group| group.precise()) }
}

/// Returns the usage within a stated bound, in a few loads.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_estimate(
    group: ledgerline_group_t,
    usage: *mut ledgerline_estimate_t,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    unsafe { reading(group, usage, PLACE, |group| estimate(group.approximate())) }
}

/// Returns the highest usage since the group was created or its peak was reset, within a bound.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_peak(
    group: ledgerline_group_t,
    peak: *mut ledgerline_estimate_t,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    unsafe { reading(group, peak, PLACE, |group| estimate(group.peak())) }
}

/// Resets the peak to the present usage.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_reset_peak(group: ledgerline_group_t) -> ledgerline_code_t {
    run(|| named(group)?.read(|group| group.reset_peak()))
}

fn events(events: Events) -> ledgerline_events_t {
    ledgerline_events_t {
        low: events.low,
        high: events.high,
        max: events.max,
        oom: events.oom,
        oom_kill: events.oom_kill,
        oom_group_kill: events.oom_group_kill,
    }
}

/// Returns the counts of met limits in a group and below it.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_events(
    group: ledgerline_group_t,
    events: *mut ledgerline_events_t,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    unsafe { reading(group, events, PLACE, |group| self::events(group.events())) }
}

/// Returns the counts of met limits of this very group.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_local_events(
    group: ledgerline_group_t,
    events: *mut ledgerline_events_t,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    unsafe { reading(group, events, PLACE, |group| self::events(group.local_events())) }
}

/// Adds to one of the ledger's own items (ledgerline_ledger_item).
///
/// Errors: LEDGERLINE_ERROR_NOT_FOUND for an unknown item number, _GONE, _HANDLE. Threads: any. Signals: as
/// ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_add_stat(
    group: ledgerline_group_t,
    item: u32,
    n: i64,
) -> ledgerline_code_t {
    run(|| {
        let named = existing(group)?;
        let mut items = named.group().ledger().items();
        let item = items.nth(item as usize).ok_or_else(no_item)?;
        named.group().add_stat(item, n);
        Ok(())
    })
}

/// Returns the counts of an item in a group (`own`) and in its subtree. The item is one of the ledger's own, or
/// "blocks_live", "blocks_total", "refused", "reclaimed", "throttled", "throttled_usec", and with LEDGERLINE_FLOWS
/// "charged" and "freed". Either place may be NULL.
///
/// Errors: LEDGERLINE_ERROR_NOT_FOUND, _NAME, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_stat(
    group: ledgerline_group_t,
    name: *const c_char,
    length: usize,
    own: *mut i64,
    subtree: *mut i64,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let name = unsafe { text(name, length)? };
        let stat = named(group)?.read(|group| group.stat())?;
        let line = stat.get(name).ok_or_else(no_item)?;
        // SAFETY: as above.
        unsafe {
            border::set_if_asked(own, || line.own)?;
            border::set_if_asked(subtree, || line.subtree)
        }
    })
}

/// Writes the counts of a group's subtree as the lines of memory.stat. The buffer is filled as by
/// ledgerline_last_error.
///
/// Errors: LEDGERLINE_ERROR_BUFFER, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_stat_text(
    group: ledgerline_group_t,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> ledgerline_code_t {
    let said = || named(group)?.read(|group| group.stat().to_string());
    // SAFETY: as the header asks of the caller.
    unsafe { hand_out(buffer, size, needed, said) }
}

/// Writes the usage of the groups from this one to the root, and of the largest consumers below the fullest of them:
/// a table for a terminal or a log. The buffer is filled as by ledgerline_last_error.
///
/// Errors: LEDGERLINE_ERROR_BUFFER, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_diagnose(
    group: ledgerline_group_t,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> ledgerline_code_t {
    let said = || named(group)?.read(|group| group.diagnose().to_string());
    // SAFETY: as the header asks of the caller.
    unsafe { hand_out(buffer, size, needed, said) }
}

/// Takes a snapshot of the whole tree, and calls `visit` for each group: the root first, each followed by those below
/// it. The snapshot is complete before the first call, so `visit` may call anything, and free the ledger, too.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT for a NULL function, _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_ledger_snapshot(
    ledger: ledgerline_ledger_t,
    visit: ledgerline_visit_t,
    data: *mut c_void,
) -> ledgerline_code_t {
    run(|| {
        let no_function = || border::fail(LEDGERLINE_ERROR_ARGUMENT, "the function is NULL");
        let visit = visit.ok_or_else(no_function)?;
        let snapshot = border::ledger(ledger)?.ledger().snapshot();
        for group in &snapshot.groups {
            let path = c_string(&group.path);
            let shown = ledgerline_group_snapshot_t {
                group: ledgerline_group_t { ledger: ledger.number, id: group.id.to_bits() },
                path: path.as_ptr(),
                path_length: path.as_bytes().len(),
                depth: group.depth,
                state: match group.state {
                    GroupState::Live => LEDGERLINE_STATE_LIVE,
                    GroupState::Exited => LEDGERLINE_STATE_EXITED,
                    GroupState::Damaged => LEDGERLINE_STATE_DAMAGED,
                },
                usage: group.current,
                peak: estimate(group.peak),
                limits: limits([group.max, group.high, group.low, group.min]),
                charges: group.charges,
                uncharges: group.uncharges,
                refused: group.refused,
                max_events: group.max_events,
                high_events: group.high_events,
            };
            // SAFETY: the caller's function with its data, and a group that lives until it returns.
            if unsafe { visit(data, &raw const shown) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

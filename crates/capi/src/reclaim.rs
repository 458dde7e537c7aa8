//! Reclaimers: functions of C that give memory back before a charge is refused.

use crate::border::{Outcome, fail, out, register, run};
use crate::callback::Callback;
use crate::registrations::{self, Registered};
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{
    ledgerline_group_t, ledgerline_reclaim_report_t, ledgerline_reclaim_t, ledgerline_reclaimer_t,
    ledgerline_release_t,
};
use ledgerline::{Kept, Reclaimer};
use std::ffi::c_void;
use std::sync::Arc;

type Added = Kept<Reclaimer<'static>>;

impl Registered for Added {
    const WHAT: &'static str = "reclaimer";
}

/// Adds a function that gives back memory of a group. Before a charge below a full group (this one or an ancestor) is
/// refused, the function is called with the needed units; lower priorities first. Only ledgerline_try_charge,
/// ledgerline_try_charge_wait and the calls that lower a limit ask it, in their thread and one at a time.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT for a NULL function, _GONE, _HANDLE. Threads: any; the function may be called in
/// any thread that charges. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_add_reclaimer(
    group: ledgerline_group_t,
    priority: i32,
    reclaim: ledgerline_reclaim_t,
    data: *mut c_void,
    reclaimer: *mut ledgerline_reclaimer_t,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    run(|| unsafe { add(group, priority, reclaim, Callback::new(data, None), reclaimer) })
}

/// Like ledgerline_add_reclaimer, but the library owns the data from this call on, also if it fails. `release`, which
/// may be NULL, is called with the data once, when no thread is inside the function or will be: before this returns
/// an error, or in ledgerline_remove_reclaimer or ledgerline_ledger_free. If those do not wait, the thread that
/// leaves the function last calls it. So data may be freed that way even if the reclaimer is taken out inside a
/// callback. A forked child that does not have the thread that was inside frees nothing.
///
/// Errors: as ledgerline_add_reclaimer. Threads: any; `release` is called in any thread, without a lock held.
/// Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_add_reclaimer_owning(
    group: ledgerline_group_t,
    priority: i32,
    reclaim: ledgerline_reclaim_t,
    data: *mut c_void,
    release: ledgerline_release_t,
    reclaimer: *mut ledgerline_reclaimer_t,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    run(|| unsafe { add(group, priority, reclaim, Callback::new(data, release), reclaimer) })
}

/// # Safety
/// As the header requires of the caller that adds a reclaimer.
unsafe fn add(
    group: ledgerline_group_t,
    priority: i32,
    reclaim: ledgerline_reclaim_t,
    callback: Callback,
    reclaimer: *mut ledgerline_reclaimer_t,
) -> Outcome {
    // SAFETY: as the caller says.
    let into = unsafe { out(reclaimer, "the reclaimer")? };
    let no_function = || fail(LEDGERLINE_ERROR_ARGUMENT, "the function is NULL");
    let reclaim = reclaim.ok_or_else(no_function)?;
    let number = register(group, |owned| {
        let callback = Arc::new(callback);
        let called = callback.clone();
        let added = owned.add_reclaimer(priority, move |need| {
            // SAFETY: the caller's function with its data, which lives until it was taken out.
            called.call(|data| unsafe { reclaim(data, need) }).unwrap_or(0)
        });
        Ok((added, move || callback.close()))
    })?;
    into.set(ledgerline_reclaimer_t { number })
}

/// Takes a reclaimer out. When this returns, no other thread is inside the function or will be, so the data may be
/// freed. Do not call it under a lock that the function takes. Inside a reclaimer or another callback it does not
/// wait for other threads: one may still be inside. For data that must be freed in that case, use
/// ledgerline_add_reclaimer_owning.
///
/// Errors: LEDGERLINE_ERROR_HANDLE if it was taken out before, also by ledgerline_ledger_free. Threads: any. Signals:
/// not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_remove_reclaimer(
    reclaimer: ledgerline_reclaimer_t,
) -> ledgerline_code_t {
    run(|| registrations::take_out::<Added>(reclaimer.number))
}

/// Returns the results of a reclaimer's runs so far.
///
/// Errors: LEDGERLINE_ERROR_HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_reclaimer_report(
    reclaimer: ledgerline_reclaimer_t,
    report: *mut ledgerline_reclaim_report_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(report, "the place for the report")? };
        let report = registrations::get::<Added>(reclaimer.number)?.report();
        into.set(ledgerline_reclaim_report_t {
            runs: report.runs,
            claimed: report.claimed,
            freed: report.freed,
            short_runs: report.short,
        })
    })
}

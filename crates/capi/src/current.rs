//! The current group of a thread.

use crate::border::{Outcome, fail, named, out, run, set_if_asked};
use crate::registry;
use crate::types::ledgerline_code_t::{self, *};
use crate::types::ledgerline_group_t;
use ledgerline::current::{self, Current};

/// The handle for no group: two zeros.
const NOBODY: ledgerline_group_t = ledgerline_group_t { ledger: 0, id: 0 };

fn handle_of(current: Current) -> Outcome<ledgerline_group_t> {
    let Some(group) = current.group() else { return Ok(NOBODY) };
    let rusts = || fail(LEDGERLINE_ERROR_HANDLE, "the current group's ledger was made in Rust");
    registry::handle_of(group).ok_or_else(rusts)
}

/// Returns the calling thread's current group, as ledgerline_current_swap set it; zeros for none.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT; _HANDLE if code in Rust made a group of a ledger of its own the current one.
/// Threads: any; each has its own. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_current_get(
    group: *mut ledgerline_group_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(group, "the group")? };
        into.set(handle_of(current::get())?)
    })
}

/// Makes a group the calling thread's current one (zeros for none), and stores the previous one in `*before`, which
/// may be NULL. The group's ledger is kept for good (ledgerline_ledger_keep). Code that was not given a group may ask
/// for the current one and charge it. A thread inherits nothing. A runtime that switches stacks swaps when it resumes
/// a fiber, and swaps back when the fiber yields.
///
/// Errors: LEDGERLINE_ERROR_NOT_KEPT, _GONE, _HANDLE; the current group is as before. Threads: any; each has its own.
/// Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_current_swap(
    group: ledgerline_group_t,
    before: *mut ledgerline_group_t,
) -> ledgerline_code_t {
    run(|| {
        let next = next(group)?;
        let old = handle_of(current::get())?;
        current::swap(next);
        // SAFETY: as the header asks of the caller.
        unsafe { set_if_asked(before, || old) }
    })
}

/// Returns the group that becomes current. A group that is gone may be put back, so that a scope ends as it began.
fn next(group: ledgerline_group_t) -> Outcome<Current> {
    if group == NOBODY {
        return Ok(Current::NOBODY);
    }
    let named = named(group)?;
    let ledger = named.visit.kept()?;
    if current::get().group().is_none() {
        named.exists()?;
    }
    Ok(ledger.group(named.group().id()).into())
}

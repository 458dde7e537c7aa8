//! Groups: create, name, find, destroy.

use crate::border::{self, existing, hand_out, named, out, run, set_if_asked, text};
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{ledgerline_estimate_t, ledgerline_group_t, ledgerline_settled_t};
use ledgerline::{Estimate, Settled};
use std::ffi::c_char;

pub(crate) fn estimate(estimate: Estimate) -> ledgerline_estimate_t {
    ledgerline_estimate_t { value: estimate.value, bound: estimate.bound }
}

fn settled(settled: &Settled<'_>) -> ledgerline_settled_t {
    ledgerline_settled_t {
        leftover: settled.leftover,
        idle: settled.idle,
        peak: estimate(settled.peak),
        charges: settled.charges,
        uncharges: settled.uncharges,
    }
}

/// Creates a group below another. A name is UTF-8 of 1 to 56 bytes without '/', control characters, terminal control
/// sequences and invisible characters; siblings may share one. It has `length` bytes, or ends with a NUL if `length`
/// is LEDGERLINE_NUL_TERMINATED.
///
/// Errors: LEDGERLINE_ERROR_NAME, _FULL, _DEPTH, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not
/// async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_create(
    parent: ledgerline_group_t,
    name: *const c_char,
    length: usize,
    group: *mut ledgerline_group_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let (into, name) = unsafe { (out(group, "the group")?, text(name, length)?) };
        let parent = named(parent)?;
        into.set(parent.visit.handle_of(parent.group().create(name)?))
    })
}

/// Destroys a group. Units that are still charged stay counted in its ancestors until they are returned; their number
/// is stored in `settled`, which may be NULL. The group's handles are refused from then on, except by
/// ledgerline_uncharge.
///
/// Errors: LEDGERLINE_ERROR_CHILDREN, _ROOT, _GONE, _BUSY (in a signal handler), _HANDLE; the group then continues to
/// exist. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_destroy(
    group: ledgerline_group_t,
    settled: *mut ledgerline_settled_t,
) -> ledgerline_code_t {
    run(|| {
        let named = existing(group)?;
        let found = named.group().destroy()?;
        // SAFETY: as the header asks of the caller.
        unsafe { set_if_asked(settled, || self::settled(&found)) }
    })
}

/// Destroys a group and all groups below it, also those that other threads create there meanwhile. `settled`, which
/// may be NULL, receives the report for this group.
///
/// Errors: as ledgerline_group_destroy; some groups may be destroyed by then. Threads: any. Signals: not
/// async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_destroy_tree(
    group: ledgerline_group_t,
    settled: *mut ledgerline_settled_t,
) -> ledgerline_code_t {
    run(|| {
        let named = existing(group)?;
        let found = named.group().destroy_tree()?;
        let own = found.last().expect("the group's own comes last");
        // SAFETY: as the header asks of the caller.
        unsafe { set_if_asked(settled, || self::settled(own)) }
    })
}

/// Returns LEDGERLINE_OK if the group exists: it was not destroyed, and its process was not found to have ended.
/// ledgerline_settle_dead checks that; until then the group of an ended process exists.
///
/// Errors: LEDGERLINE_ERROR_GONE, _HANDLE. Threads: any. Signals: as ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_group_exists(group: ledgerline_group_t) -> ledgerline_code_t {
    run(|| existing(group).map(drop))
}

/// Writes the group's path, like a cgroup's: "/acme/q42". The buffer is filled as by ledgerline_last_error.
///
/// Errors: LEDGERLINE_ERROR_BUFFER, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_path(
    group: ledgerline_group_t,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> ledgerline_code_t {
    // SAFETY: as the header asks of the caller.
    unsafe { hand_out(buffer, size, needed, || named(group)?.read(|group| group.path())) }
}

/// Returns the group's parent.
///
/// Errors: LEDGERLINE_ERROR_ROOT for the root, _GONE, _HANDLE, _ARGUMENT. Threads: any. Signals: as
/// ledgerline_try_charge_units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_group_parent(
    group: ledgerline_group_t,
    parent: *mut ledgerline_group_t,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let into = unsafe { out(parent, "the parent")? };
        let named = named(group)?;
        let parent = named.read(|group| group.parent().map(|parent| parent.id()))?;
        let root = || border::fail(LEDGERLINE_ERROR_ROOT, "the root has no parent");
        let id = parent.ok_or_else(root)?.to_bits();
        into.set(ledgerline_group_t { id, ..group })
    })
}

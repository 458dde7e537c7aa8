//! Requests above the mark of a run whose limit counts resident memory (`cli/src/run/resident.rs`).

use crate::filter;
use crate::process;
use ledgerline::{Group, Limit};
use ledgerline_protocol::{Count, MARK_CLOSED, Which};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The longest wait for a look, in milliseconds: a busy machine may keep the supervisor from its CPU.
const PATIENCE: i64 = 300;
/// The longest further wait at a mark at which one was in vain. The supervisor may be stopped.
const IMPATIENCE: i64 = 20;

/// The mark at which a wait was in vain, plus one.
static SILENT: AtomicU64 = AtomicU64::new(0);
/// Whether the supervisor is known to have ended: nothing is waited for any more.
static GONE: AtomicBool = AtomicBool::new(false);

/// Returns whether the limit of this run counts resident memory.
pub(super) fn is_counted() -> bool {
    process::run().is_some_and(|run| run.count == Count::Resident)
}

/// Waits for the supervisor's next look at resident memory, unless the last one was above the limit; returns whether it is
/// within the limit. Without a look, the last one decides.
pub(super) fn is_open(root: Group<'_>) -> bool {
    let is_open = |mark: Limit| mark.get().is_none_or(|mark| mark & MARK_CLOSED == 0);
    let before = root.max();
    if !is_open(before) {
        return false;
    }
    // Under a filter no time passes, and nothing is waited for.
    if filter::is_on() || GONE.load(Ordering::Relaxed) {
        return true;
    }
    let silent = before.get().map_or(0, |mark| mark.wrapping_add(1));
    let is_silent = SILENT.load(Ordering::Relaxed) == silent;
    let patience = if is_silent { IMPATIENCE } else { PATIENCE };
    let begun = filter::milliseconds();
    while root.max() == before && filter::milliseconds() - begun < patience {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 500_000 };
        // SAFETY: the record is live; a signal ends the pause early.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    let after = root.max();
    if after == before {
        SILENT.store(silent, Ordering::Relaxed);
        GONE.store(has_supervisor_ended(), Ordering::Relaxed);
    }
    is_open(after)
}

/// Returns whether the path to the ledger, which leads through the supervisor, is gone. A process that keeps descriptors of
/// its own cannot tell.
fn has_supervisor_ended() -> bool {
    let path = process::path(Which::Ledger);
    path.is_some_and(|path| process::access(path, libc::F_OK).is_err())
}

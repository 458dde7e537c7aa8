//! Requests above the mark of a run whose limit counts resident memory (`cli/src/run/resident.rs`).

use crate::filter;
use crate::process;
use ledgerline::{Group, Limit};
use ledgerline_protocol::{Count, MARK_CLOSED};
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest wait for a look, in milliseconds. A supervisor that was stopped or killed looks no more.
const PATIENCE: i64 = 300;

/// The mark at which a wait was in vain, plus one. Nothing waits there again.
static SILENT: AtomicU64 = AtomicU64::new(0);

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
    let begun = filter::milliseconds();
    let silent = before.get().map_or(0, |mark| mark.wrapping_add(1));
    // Under a filter no time passes, and nothing is waited for.
    let waits = !filter::is_on() && SILENT.load(Ordering::Relaxed) != silent;
    while waits && root.max() == before && filter::milliseconds() - begun < PATIENCE {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 500_000 };
        // SAFETY: the record is live; a signal ends the pause early.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    let after = root.max();
    if waits && after == before {
        SILENT.store(silent, Ordering::Relaxed);
    }
    is_open(after)
}

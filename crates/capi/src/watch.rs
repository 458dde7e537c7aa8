//! Watches: an eventfd that is readable when there were events.

use crate::border::{fail, out, register, run};
use crate::registrations::{self, Registered};
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{ledgerline_group_t, ledgerline_watch_t};
use ledgerline::{Kept, Watch};
use std::os::fd::{AsFd, AsRawFd};

type Added = Kept<Watch<'static>>;

impl Registered for Added {
    const WHAT: &'static str = "watch";
}

/// Starts to watch the events of a group and all below it. The descriptor is a non-blocking eventfd for poll or
/// epoll. It is readable after events: read eight bytes, and call ledgerline_group_events for the counts, which
/// include those events. Close it only by ledgerline_watch_close. A group that is destroyed has no more events.
///
/// Errors: LEDGERLINE_ERROR_FULL with 256 watches of the ledger in this process, _SYSTEM without a descriptor, _GONE,
/// _HANDLE, _ARGUMENT. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_watch_open(
    group: ledgerline_group_t,
    watch: *mut ledgerline_watch_t,
    descriptor: *mut i32,
) -> ledgerline_code_t {
    run(|| {
        // SAFETY: as the header asks of the caller.
        let (into, told) =
            unsafe { (out(watch, "the watch")?, out(descriptor, "the descriptor")?) };
        let mut eventfd = -1;
        let number = register(group, |owned| {
            let added = owned.watch()?;
            eventfd = added.as_fd().as_raw_fd();
            Ok((added, || ()))
        })?;
        told.set(eventfd)?;
        into.set(ledgerline_watch_t { number })
    })
}

/// Takes the events that were not taken yet: LEDGERLINE_OK if there were any, LEDGERLINE_ERROR_NOT_FOUND if not. It
/// reads the descriptor, for callers that poll it and do not want to read it themselves.
///
/// Errors: LEDGERLINE_ERROR_NOT_FOUND, _HANDLE. Threads: any. Signals: not async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_watch_look(watch: ledgerline_watch_t) -> ledgerline_code_t {
    run(|| {
        let watch = registrations::get::<Added>(watch.number)?;
        let none = || fail(LEDGERLINE_ERROR_NOT_FOUND, "there were no events since the last look");
        watch.look().map(drop).ok_or_else(none)
    })
}

/// Ends a watch, and closes its descriptor.
///
/// Errors: LEDGERLINE_ERROR_HANDLE if it was ended before, also by ledgerline_ledger_free. Threads: any. Signals: not
/// async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_watch_close(watch: ledgerline_watch_t) -> ledgerline_code_t {
    run(|| registrations::take_out::<Added>(watch.number))
}

//! The second ledger of a run in which blocks have their own limit (`--max-heap`).
//!
//! A row of the first ledger counts blocks and mappings together, so that its peak is the peak of their sum. A limit
//! for blocks alone needs the sum of all processes' blocks. So each process also has one row in a second ledger, whose
//! root has that limit, and each block is charged in both (`charges.rs`). A run without such a limit has no second
//! ledger and no cost from this: spans have cells only if there is none (`shadow.rs`).

use super::{INHERITED, Run, STATE, as_group, number, run};
use ledgerline::{CreateError, Group};
use std::sync::atomic::Ordering;

/// Returns whether blocks have their own limit. Known before the first block is charged.
pub(crate) fn is_limited() -> bool {
    run().is_some_and(|run| run.heap.is_some())
}

/// Makes this process's row, if there is a second ledger. This comes before the row in the first one: a process with
/// that row is charged in both.
pub(super) fn attach(run: &Run, name: &str, owner: u32) -> Result<(), CreateError> {
    if let Some(ledger) = &run.heap {
        let row = ledger.attach_process(name, owner)?;
        STATE.heap.store(number(row), Ordering::Release);
    }
    Ok(())
}

/// Returns this process's row; `None` if blocks have no limit of their own, or the process is not accounted.
#[inline(always)]
pub(crate) fn group() -> Option<Group<'static>> {
    let group = STATE.heap.load(Ordering::Relaxed);
    // SAFETY: a row implies that the run was written, with a second ledger, which is never closed.
    (group != 0).then(|| unsafe {
        let run = (*INHERITED.run.get()).assume_init_ref();
        as_group(group, run.heap.as_ref().unwrap_unchecked())
    })
}

//! The second ledger of a run in which blocks have a limit of their own (`--max-heap`).
//!
//! A row of the first ledger counts blocks and mappings together, so that its peak is the peak of their sum. A limit for
//! blocks alone needs the sum of all processes' blocks alone. So each process has one row in a second ledger as well,
//! whose root has that limit, and each block is charged in both (`charges.rs`). A run without such a limit has no second
//! ledger, and nothing of this costs it anything: spans have cells only where there is none (`shadow.rs`).

use super::{STATE, number, open_file};
use ledgerline::{CreateError, Group, GroupId, Ledger};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// The second ledger. It outlives a fork, as the first one does.
struct Second {
    is_open: AtomicBool,
    ledger: UnsafeCell<MaybeUninit<Ledger>>,
}

// SAFETY: the ledger is written once, by the one thread that opens both, before `is_open`.
unsafe impl Sync for Second {}

static SECOND: Second =
    Second { is_open: AtomicBool::new(false), ledger: UnsafeCell::new(MaybeUninit::uninit()) };

/// Opens it; says why not.
///
/// # Safety
/// Only the attaching thread is here, once; a zero follows the path.
pub(super) unsafe fn open(path: &'static [u8]) -> bool {
    // SAFETY: as the caller says.
    let Some(ledger) = (unsafe { open_file(path) }) else { return false };
    // SAFETY: as the caller says, nobody else writes, and nobody reads before the store below.
    unsafe { (*SECOND.ledger.get()).write(ledger) };
    // Release, partner of the Acquire in `ledger`.
    SECOND.is_open.store(true, Ordering::Release);
    true
}

fn ledger() -> Option<&'static Ledger> {
    // SAFETY: it was written before it was said to be open, and stays open for good.
    SECOND
        .is_open
        .load(Ordering::Acquire)
        .then(|| unsafe { (*SECOND.ledger.get()).assume_init_ref() })
}

/// Whether blocks have a limit of their own. Known before the first block is charged.
pub(crate) fn is_limited() -> bool {
    SECOND.is_open.load(Ordering::Relaxed)
}

/// Makes this process's row, if there is a second ledger. It comes before the row in the first one: whoever has that is
/// charged in both.
pub(super) fn attach(name: &str, owner: u32) -> Result<(), CreateError> {
    if let Some(ledger) = ledger() {
        let row = ledger.attach_process(name, owner)?;
        STATE.heap.store(number(row), Ordering::Release);
    }
    Ok(())
}

/// This process's row; `None` where blocks have no limit of their own, or the process is not accounted.
#[inline(always)]
pub(crate) fn group() -> Option<Group<'static>> {
    let group = STATE.heap.load(Ordering::Relaxed);
    if group == 0 {
        return None;
    }
    // SAFETY: there is a row, so the ledger was written; it stays open for good.
    let ledger = unsafe { (*SECOND.ledger.get()).assume_init_ref() };
    Some(ledger.group(GroupId::from_parts(group as u32 & 0xf_ffff, (group >> 32) as u16)))
}

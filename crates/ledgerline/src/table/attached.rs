//! The number under which this process charges ledgers that it shares with others.

use crate::sync::{AtomicU32, Ordering};

/// The process's number, zero before it attaches.
///
/// It lies beside the ledgers and not in them, so that a ledger is plain read-only data to its users and
/// the compiler may keep its fields in registers across charges.
static ATTACHED: AtomicU32 = AtomicU32::new(0);

pub(crate) fn process() -> u32 {
    ATTACHED.load(Ordering::Relaxed)
}

pub(crate) fn attach(process: u32) {
    ATTACHED.store(process, Ordering::Relaxed);
}

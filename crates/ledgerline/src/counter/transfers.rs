//! Counts the transfers that began and that ended, so that a reader of several groups knows that no units
//! moved from one to another meanwhile.
//!
//! ```text
//! transfer                                  reader
//!   begun += 1                                ended == begun: none is under way
//!   grant on the levels of the new group      read the groups
//!   take from the levels of the old one       both as before: none was
//!   ended += 1
//! ```
//!
//! In between the units show twice. Transfers wait neither for each other nor for a reader; a reader that
//! met one reads again (`report/scan.rs`).

use crate::sync::{AtomicU64, Ordering};

/// See the module's documentation. It lies in the ledger's header, so that it works among processes.
#[repr(C, align(128))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Transfers {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// One transfer that is under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a Transfers);

impl Transfers {
    /// Announces a transfer, before its first unit is granted.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        // Relaxed is enough: the counters' own read-modify-writes, which follow, are Release, and a reader
        // acquires them in `PageCounter::usage`. A reader that sees a unit of this transfer sees this.
        self.begun.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// How many transfers there were, or `None` while one is under way. If two calls give the same number,
    /// what was read in between (with Acquire) shows all of each transfer or nothing of it.
    pub(crate) fn quiet(&self) -> Option<u64> {
        // First the number that ended. Acquire, partner of the Release in `drop`: all that those transfers
        // did is seen. If no more have begun by the second load, they are all.
        let ended = self.ended.load(Ordering::Acquire);
        (self.begun.load(Ordering::Relaxed) == ended).then_some(ended)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

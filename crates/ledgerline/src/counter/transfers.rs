//! Transfers, begun and ended: so that who reads several groups knows that no units were on their way
//! from one to another meanwhile.
//!
//! ```text
//! transfer                                  reading
//!   begun += 1                                ended == begun: nothing is on its way
//!   grant on the levels of the new group      read the groups
//!   take from the levels of the old one       both as before: nothing was
//!   ended += 1
//! ```
//!
//! In between the units show twice. Transfers do not wait for each other, nor for a reading; a reading
//! that met one is done again (scan.rs).

use crate::sync::{AtomicU64, Ordering};

/// See the module's documentation. Lies in the ledger's header, so that it holds among processes.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Transfers {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// One is under way; ended when dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a Transfers);

impl Transfers {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Transfers { begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// Announces a transfer, before its first unit is granted.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        // Relaxed is enough: the counters' own read-modify-writes, which follow, are Release, and a
        // reader acquires them in `PageCounter::usage`. Who sees a unit of this transfer sees this.
        self.begun.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// How many there were, if none is under way. Two equal answers: what was read in between (with
    /// Acquire) shows all of each transfer or nothing of it.
    pub(crate) fn quiet(&self) -> Option<u64> {
        // First those ended. Acquire, partner of the Release in `drop`: all that they did is seen. If
        // no more have begun by the second load, those are all.
        let ended = self.ended.load(Ordering::Acquire);
        (self.begun.load(Ordering::Relaxed) == ended).then_some(ended)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

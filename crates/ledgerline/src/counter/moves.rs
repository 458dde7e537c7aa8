//! Counts the moves that began and that ended, so that a reader of several places knows that nothing moved between them
//! meanwhile. A move is a transfer of units between groups, or a collection of statistics, from cells to totals
//! (`table/sums.rs`).
//!
//! ```text
//! move                                      reader
//!   begun += 1                                ended == begun: none is under way
//!   add to the new place                      read the places
//!   take from the old one                     both as before: none was
//!   ended += 1
//! ```
//!
//! During a move the moved amount shows twice, or not at all. Moves wait neither for each other nor for a reader; a
//! reader that met one reads again (`report/scan.rs`, `stock/totals.rs`).

use crate::sync::{AtomicU64, Ordering};

/// See the module's documentation. It lies in the ledger's header, so that it works across processes.
#[repr(C, align(128))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Moves {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A move that is under way. Dropping this ends it.
#[derive(Debug)]
#[must_use = "the move ends when this is dropped"]
pub(crate) struct UnderWay<'a>(&'a Moves);

impl Moves {
    /// Announces a move, before any part of it is done.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        // AcqRel, partner of the second Acquire in `quiet`: a reader that sees a part of this move sees this addition.
        // For a transfer Relaxed would be enough: the counters' own read-modify-writes, which follow, are Release, and
        // a reader acquires them in `PageCounter::usage`.
        self.begun.fetch_add(1, Ordering::AcqRel);
        UnderWay(self)
    }

    /// Returns how many moves there were, or `None` while one is under way. If two calls return the same number, values
    /// that were read in between (with Acquire) show all of each move or nothing of it.
    pub(crate) fn quiet(&self) -> Option<u64> {
        // The number that ended is loaded first. Acquire, partner of the Release in `drop`: everything that those moves
        // did is seen. If no more have begun by the second load, there are no others.
        let ended = self.ended.load(Ordering::Acquire);
        (self.begun.load(Ordering::Acquire) == ended).then_some(ended)
    }

    /// Returns a fingerprint of the moves that began and ended so far. It changes with each of them.
    pub(crate) fn word(&self) -> u64 {
        self.begun.load(Ordering::Relaxed).rotate_left(32) ^ self.ended.load(Ordering::Relaxed)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // Release, partner of the first Acquire in `quiet`.
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

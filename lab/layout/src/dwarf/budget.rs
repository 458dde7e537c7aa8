//! Bounds the work that a file can cause.
//!
//! Every entry has at least one byte, so the file's size bounds the reads of one pass. But all entries may refer to
//! the same names and to the same tables of abbreviations and files: a small file could request one long name a
//! million times. Real files request a few times their size.

use crate::Error;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may still be read by reference.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    /// Returns the budget of a file of `bytes` bytes.
    pub(super) fn of(bytes: u64) -> Budget {
        Budget(AtomicU64::new(bytes.saturating_mul(64).saturating_add(64 << 20)))
    }

    /// Takes bytes from the budget.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), Error> {
        // Relaxed suffices: the budget is a sum, and orders nothing.
        let spent = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        spent.map(drop).map_err(|_| {
            Error::new("its debug information refers to the same names or tables again and again, as no compiler does")
                .advise("build the program again")
        })
    }
}

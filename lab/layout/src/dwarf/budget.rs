//! How much work a file may ask for.
//!
//! Every entry costs a byte at least, so what is read in one pass is bounded by the file's size. What
//! entries refer to (names, tables of abbreviations and of files) may be referred to by all of them: a
//! small file could ask for the same long name a million times. Real files use a few times their size.

use crate::Error;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may still be read by reference.
#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    /// For a file of so many bytes.
    pub(super) fn of(bytes: u64) -> Budget {
        Budget(AtomicU64::new(bytes.saturating_mul(64).saturating_add(64 << 20)))
    }

    /// Takes from it.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), Error> {
        // Relaxed: it is a sum, and orders nothing.
        let spent = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        spent.map(drop).map_err(|_| {
            Error::new("its debug information refers to the same names or tables again and again, as no compiler does")
                .advise("build the program again")
        })
    }
}

//! The second word of one level, `usage`: what is granted, and is returned.

use super::PageCounter;
use super::limit::UNENFORCED;
use crate::sync::Ordering;

/// An uncharge of more than the counter holds; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Underflow;

impl PageCounter {
    /// Units granted, idle stock included.
    pub(crate) fn usage(&self) -> u64 {
        self.hot.usage.load(Ordering::Acquire)
    }

    /// Turns a reservation into usage; whether that is above the level's high, or above a max that is
    /// not enforced.
    pub(crate) fn commit(&self, n: u64) -> bool {
        // Release, partner of the Acquire in `usage`: who sees these units sees them reserved.
        let usage = self.hot.usage.fetch_add(n, Ordering::AcqRel) + n;
        // Read first: the watermark's line stays shared while it holds.
        if usage > self.track.watermark.load(Ordering::Relaxed) {
            self.track.watermark.fetch_max(usage, Ordering::Relaxed);
        }
        let high = usage > self.limits.high.load(Ordering::Relaxed);
        if high {
            self.track.high_events.fetch_add(1, Ordering::Relaxed);
        }
        let max = self.limits.max.load(Ordering::Relaxed);
        let measured = max & UNENFORCED != 0 && usage > max & !UNENFORCED;
        if measured {
            self.track.max_events.fetch_add(1, Ordering::Relaxed);
        }
        high || measured
    }

    /// Takes `n` from the usage, never below zero.
    pub(crate) fn ungrant(&self, n: u64) -> Result<(), Underflow> {
        let mut usage = self.hot.usage.load(Ordering::Relaxed);
        loop {
            let left = usage.checked_sub(n).ok_or(Underflow)?;
            match self.hot.usage.compare_exchange_weak(
                usage,
                left,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(seen) => usage = seen,
            }
        }
    }

    pub(crate) fn watermark(&self) -> u64 {
        self.track.watermark.load(Ordering::Relaxed)
    }

    /// Starts the watermark anew at today's usage.
    pub(crate) fn reset_watermark(&self) {
        self.track.watermark.store(self.usage(), Ordering::Relaxed);
        // A charge between the load and the store may have raised it above: raise it again.
        self.track.watermark.fetch_max(self.usage(), Ordering::Relaxed);
    }
}

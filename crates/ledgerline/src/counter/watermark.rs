//! The highest usage of one level, between two watermarks: what was granted at most, idle stock included,
//! and what was certainly not idle.
//!
//! Both follow `usage`, so a charge that was taken back raises neither (I6). The upper one is raised by
//! every grant above it. The lower one is raised by looks at what lies idle at most (`idle.rs`), of which
//! the grants of a growing group cause one whenever it has grown by a thirty-second; the cells of a small
//! group are looked at as well (`peak.rs`).
//!
//! ```text
//! raise_lower_watermark(seen, units):                        reset:
//!   seen = least, before the look                    least := 0, the other turn
//!   least := units, unless it is as much already,    watermark := usage
//!     or another turn than in `seen`                 look, and raise
//! ```
//!
//! The turn, the lowest bit, keeps what was seen before a reset from counting after it. (It would take two
//! resets during one look.)

use super::PageCounter;
use crate::sync::Ordering;

/// In `lower_watermark`: the turn. The units are above it.
const TURN: u64 = 1;

impl PageCounter {
    /// After a grant: the usage is as high as that.
    pub(super) fn raise_watermarks(&self, usage: u64) {
        // Read first: the watermark's line stays shared while it holds.
        if usage > self.track.watermark.load(Ordering::Relaxed) {
            self.track.watermark.fetch_max(usage, Ordering::Relaxed);
        }
        let seen = self.lower_watermark();
        if PageCounter::is_news(seen, usage)
            && let Some((usage, idle)) = self.look()
        {
            self.raise_lower_watermark(seen, usage.saturating_sub(idle));
        }
    }

    /// The highest usage, idle stock included.
    pub(crate) fn watermark(&self) -> u64 {
        self.track.watermark.load(Ordering::Relaxed)
    }

    /// The lower watermark's word, for [`raise_lower_watermark`](Self::raise_lower_watermark).
    pub(crate) fn lower_watermark(&self) -> u64 {
        // Acquire, partner of the Release in `reset_lower_watermark`: what is looked at next is of that turn.
        self.hot.lower_watermark.load(Ordering::Acquire)
    }

    /// Whether so much would raise the lower watermark by more than a thirty-second: what is raised for
    /// less would cost each grant of a growing group a look.
    pub(crate) fn is_news(seen: u64, usage: u64) -> bool {
        let least = seen / (TURN + 1);
        usage > least + least / 32
    }

    /// Notes that the usage without idle stock was so high at a moment after `seen` was read.
    pub(crate) fn raise_lower_watermark(&self, seen: u64, units: u64) {
        let mut word = seen;
        while (word ^ seen) & TURN == 0 && word / (TURN + 1) < units {
            let raised = units * (TURN + 1) + (seen & TURN);
            // Relaxed: it orders nothing, and only grows within a turn.
            match self.hot.lower_watermark.compare_exchange_weak(
                word,
                raised,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    /// The highest usage without idle stock lies between these two.
    pub(crate) fn peak(&self) -> (u64, u64) {
        let seen = self.lower_watermark();
        if let Some((usage, idle)) = self.look() {
            self.raise_lower_watermark(seen, usage.saturating_sub(idle));
        }
        // The lower one first: both only grow (but for a reset).
        let least = self.lower_watermark() / (TURN + 1);
        let most = self.watermark();
        (least.min(most), most)
    }

    /// Starts the watermarks anew at today's usage.
    pub(crate) fn reset_watermark(&self) {
        self.reset_lower_watermark();
        self.track.watermark.store(self.usage(), Ordering::Relaxed);
        // A charge between the load and the store may have raised it above: raise it again.
        self.track.watermark.fetch_max(self.usage(), Ordering::Relaxed);
        self.peak();
    }

    /// Nothing is known, and what was seen before counts no more.
    pub(super) fn reset_lower_watermark(&self) {
        let turn = |word: u64| Some(!word & TURN);
        let _ = self.hot.lower_watermark.fetch_update(Ordering::AcqRel, Ordering::Relaxed, turn);
    }
}

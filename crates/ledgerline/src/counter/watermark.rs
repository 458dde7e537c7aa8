//! The highest usage of one level lies between two watermarks: the highest grant, idle stock included, and the most
//! that was certainly not idle.
//!
//! Both follow `usage`, so a charge that was taken back raises neither (I6). Every grant above the upper one raises it.
//! The lower one is raised by looks, which subtract the most that may lie idle (`idle.rs`) from the usage. A grant
//! causes a look whenever the group has grown by a thirty-second. For a small group a look includes the cells
//! (`stock/peak.rs`).
//!
//! ```text
//! raise_lower_watermark(seen, units):              reset:
//!   seen = lower, before the look                    lower := 0, the other turn
//!   lower := units, unless it is as much already,    watermark := usage
//!     or has another turn than `seen`                look, and raise
//! ```
//!
//! A reader may restart the watermarks for itself (`report/peak.rs`). Their previous values are kept beside them, so
//! that the peak of the group survives a restart.
//!
//! The lowest bit is the turn. It prevents a look from before a reset from counting after it. Two resets during one
//! look would defeat it.

use super::PageCounter;
use crate::sync::Ordering;

/// In `lower_watermark`: the turn. The bits above are the units.
const TURN: u64 = 1;

impl PageCounter {
    /// Raises the watermarks after a grant that made the usage this high.
    pub(super) fn raise_watermarks(&self, usage: u64) {
        // The plain load comes first, so that the line stays shared while the watermark holds.
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

    /// Returns the highest usage, idle stock included.
    pub(crate) fn watermark(&self) -> u64 {
        // Acquire, partner of the Release in `restart_watermarks`: the words with the previous values are seen, too.
        self.track.watermark.load(Ordering::Acquire)
    }

    /// Returns the word of the lower watermark, for [`raise_lower_watermark`](Self::raise_lower_watermark).
    pub(crate) fn lower_watermark(&self) -> u64 {
        // Acquire, partner of the Release in `reset_lower_watermark`: the next look belongs to that turn.
        self.hot.lower_watermark.load(Ordering::Acquire)
    }

    /// Returns whether this usage would raise the lower watermark by more than a thirty-second. A smaller threshold
    /// would cost each grant of a growing group a look.
    pub(crate) fn is_news(seen: u64, usage: u64) -> bool {
        let least = seen / (TURN + 1);
        usage > least + least / 32
    }

    /// Raises the lower watermark: the usage without idle stock was `units` at a moment after `seen` was read.
    pub(crate) fn raise_lower_watermark(&self, seen: u64, units: u64) {
        let mut word = seen;
        while (word ^ seen) & TURN == 0 && word / (TURN + 1) < units {
            let raised = units * (TURN + 1) + (seen & TURN);
            // Relaxed: the word orders nothing, and only grows within a turn.
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

    /// Returns the lower and upper bound of the highest usage without idle stock since the last restart of the
    /// watermarks.
    pub(crate) fn peak_since(&self) -> (u64, u64) {
        let seen = self.lower_watermark();
        if let Some((usage, idle)) = self.look() {
            self.raise_lower_watermark(seen, usage.saturating_sub(idle));
        }
        // The lower one is loaded first: both only grow, except at a reset.
        let least = self.lower_watermark() / (TURN + 1);
        let most = self.watermark();
        (least.min(most), most)
    }

    /// Like [`peak_since`](Self::peak_since), but ignores restarts for one reader.
    pub(crate) fn peak(&self) -> (u64, u64) {
        let (least, most) = self.peak_since();
        // Acquire, partner of the Release in `begin_watermark_anew`. Read after the watermarks: values that a restart
        // has dropped from them are here by then.
        let most = most.max(self.track.most_before.load(Ordering::Acquire));
        (least.max(self.hot.least_before.load(Ordering::Acquire)).min(most), most)
    }

    /// Raises the watermarks to those of another counter.
    pub(crate) fn raise_to_peak_of(&self, other: &PageCounter) {
        let (least, most) = other.peak();
        self.track.watermark.fetch_max(most, Ordering::Relaxed);
        self.raise_lower_watermark(self.lower_watermark(), least);
    }

    /// Restarts the peak at the present usage.
    pub(crate) fn reset_watermark(&self) {
        self.hot.least_before.store(0, Ordering::Relaxed);
        self.track.most_before.store(0, Ordering::Relaxed);
        self.restart_watermarks();
    }

    /// Restarts the watermarks for one reader and returns their previous values, which [`peak`](Self::peak) keeps.
    pub(crate) fn begin_watermark_anew(&self) -> (u64, u64) {
        let (least, most) = self.peak_since();
        // Release, partner of the Acquires in `peak`: a reader that sees the restarted watermarks sees these words. The
        // upper one is stored first, so that the lower one is never above it.
        self.track.most_before.fetch_max(most, Ordering::Release);
        self.hot.least_before.fetch_max(least, Ordering::Release);
        self.restart_watermarks();
        (least, most)
    }

    fn restart_watermarks(&self) {
        self.reset_lower_watermark();
        // Release, partner of the Acquire in `watermark`.
        self.track.watermark.store(self.usage(), Ordering::Release);
        // A charge between the load and the store may have raised it further, so it is raised again.
        self.track.watermark.fetch_max(self.usage(), Ordering::Relaxed);
        self.peak_since();
    }

    /// Forgets the lower watermark. Earlier looks no longer count.
    pub(super) fn reset_lower_watermark(&self) {
        let turn = |word: u64| Some(!word & TURN);
        let _ = self.hot.lower_watermark.fetch_update(Ordering::AcqRel, Ordering::Relaxed, turn);
    }
}

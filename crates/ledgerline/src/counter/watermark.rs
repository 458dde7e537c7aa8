//! The highest usage of one level lies between two watermarks: the most that was granted, idle stock
//! included, and the most that was certainly not idle.
//!
//! Both follow `usage`, so a charge that was taken back raises neither (I6). Every grant above the upper
//! one raises it. The lower one is raised by looks at the most that may lie idle (`idle.rs`); a grant
//! causes such a look whenever the group has grown by a thirty-second. The cells of a small group are
//! looked at as well (`stock/peak.rs`).
//!
//! ```text
//! raise_lower_watermark(seen, units):              reset:
//!   seen = lower, before the look                    lower := 0, the other turn
//!   lower := units, unless it is as much already,    watermark := usage
//!     or has another turn than `seen`                look, and raise
//! ```
//!
//! Each reader may have the watermarks begin anew (`report/peak.rs`). What they were before is kept beside them, so that the peak
//! of the group does not forget it.
//!
//! The lowest bit is the turn. It keeps a look from before a reset from counting after it. (Two resets
//! during one look would defeat it.)

use super::PageCounter;
use crate::sync::Ordering;

/// In `lower_watermark`: the turn. The bits above are the units.
const TURN: u64 = 1;

impl PageCounter {
    /// Raises the watermarks after a grant that made the usage this high.
    pub(super) fn raise_watermarks(&self, usage: u64) {
        // The load comes first: the line stays shared while the watermark holds.
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
        // Acquire, partner of the Release in `restart_watermarks`: the words of before are seen, too.
        self.track.watermark.load(Ordering::Acquire)
    }

    /// The word of the lower watermark, for [`raise_lower_watermark`](Self::raise_lower_watermark).
    pub(crate) fn lower_watermark(&self) -> u64 {
        // Acquire, partner of the Release in `reset_lower_watermark`: the next look is of that turn.
        self.hot.lower_watermark.load(Ordering::Acquire)
    }

    /// Whether this usage would raise the lower watermark by more than a thirty-second. Raising it for less
    /// would cost each grant of a growing group a look.
    pub(crate) fn is_news(seen: u64, usage: u64) -> bool {
        let least = seen / (TURN + 1);
        usage > least + least / 32
    }

    /// Notes that the usage without idle stock was this high at a moment after `seen` was read.
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

    /// The two numbers between which the highest usage without idle stock lies, since the watermarks began anew.
    pub(crate) fn peak_since(&self) -> (u64, u64) {
        let seen = self.lower_watermark();
        if let Some((usage, idle)) = self.look() {
            self.raise_lower_watermark(seen, usage.saturating_sub(idle));
        }
        // The lower one first: both only grow (except at a reset).
        let least = self.lower_watermark() / (TURN + 1);
        let most = self.watermark();
        (least.min(most), most)
    }

    /// The same, whatever began anew for one reader.
    pub(crate) fn peak(&self) -> (u64, u64) {
        let (least, most) = self.peak_since();
        // Acquire, partner of the Release in `begin_watermark_anew`. Read after the watermarks: what they lost by then is here.
        let most = most.max(self.track.most_before.load(Ordering::Acquire));
        (least.max(self.hot.least_before.load(Ordering::Acquire)).min(most), most)
    }

    /// Raises the watermarks to those of another counter.
    pub(crate) fn raise_to_peak_of(&self, other: &PageCounter) {
        let (least, most) = other.peak();
        self.track.watermark.fetch_max(most, Ordering::Relaxed);
        self.raise_lower_watermark(self.lower_watermark(), least);
    }

    /// Starts the peak anew at the present usage.
    pub(crate) fn reset_watermark(&self) {
        self.hot.least_before.store(0, Ordering::Relaxed);
        self.track.most_before.store(0, Ordering::Relaxed);
        self.restart_watermarks();
    }

    /// Starts the watermarks anew for one reader; [`peak`](Self::peak) keeps what they were. Returns that.
    pub(crate) fn begin_watermark_anew(&self) -> (u64, u64) {
        let (least, most) = self.peak_since();
        // Release, partner of the Acquires in `peak`: a reader that sees the watermarks begun anew sees these. The upper one
        // first, so that the lower one is never above it.
        self.track.most_before.fetch_max(most, Ordering::Release);
        self.hot.least_before.fetch_max(least, Ordering::Release);
        self.restart_watermarks();
        (least, most)
    }

    fn restart_watermarks(&self) {
        self.reset_lower_watermark();
        // Release, partner of the Acquire in `watermark`.
        self.track.watermark.store(self.usage(), Ordering::Release);
        // A charge between the load and the store may have raised it further: raise it again.
        self.track.watermark.fetch_max(self.usage(), Ordering::Relaxed);
        self.peak_since();
    }

    /// Forgets the lower watermark; looks from before count no more.
    pub(super) fn reset_lower_watermark(&self) {
        let turn = |word: u64| Some(!word & TURN);
        let _ = self.hot.lower_watermark.fetch_update(Ordering::AcqRel, Ordering::Relaxed, turn);
    }
}

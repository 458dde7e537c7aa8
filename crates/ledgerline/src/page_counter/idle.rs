//! What may lie idle below one level: the sum of the caps of its cells, beside its headroom.

use super::life::CLOSED;
use super::{COUNTER_MAX, PageCounter};
use crate::sync::{Ordering, fence};

impl PageCounter {
    /// Room left below the limit, reservations counted as used.
    pub(crate) fn headroom(&self) -> u64 {
        let reserved = self.hot.reserved.load(Ordering::Relaxed) & !CLOSED;
        self.max().saturating_sub(reserved)
    }

    /// Idle units of the subtree, at most: in cells, and in the hands of walks.
    pub(crate) fn idle_at_most(&self) -> u64 {
        let prepaid = self.track.prepaid.load(Ordering::SeqCst);
        prepaid.saturating_add(self.track.in_hand.load(Ordering::SeqCst))
    }

    /// Whether `n` fits but for idle units that some walk is about to put away, if there are any.
    pub(crate) fn fits_but_for_hands(&self, n: u64) -> bool {
        // Read before the usage: what is not counted here any more is in a cell or given back.
        let in_hand = self.track.in_hand.load(Ordering::SeqCst);
        self.usage().saturating_sub(in_hand).saturating_add(n) <= self.max()
    }

    /// Whether there are such units, and `n` would fit without them.
    pub(crate) fn waits_for_hands(&self, n: u64) -> bool {
        self.track.in_hand.load(Ordering::SeqCst) > 0 && self.fits_but_for_hands(n)
    }

    /// Whether the idle units allowed below this level have outgrown a sixteenth of its headroom.
    ///
    /// SeqCst fence, partner of the one in [`allow`](Self::allow): of a walk that reserves and a
    /// cell that is allowed a cap at the same time, at least one sees the other.
    pub(crate) fn overstocked(&self) -> bool {
        fence(Ordering::SeqCst);
        let max = self.max();
        max < COUNTER_MAX
            && self.track.prepaid.load(Ordering::Relaxed)
                > max.saturating_sub(self.hot.reserved.load(Ordering::Relaxed) & !CLOSED) / 16
    }

    /// Allows `units` more of idle stock below this level, if they stay within a thirty-second of
    /// its headroom and no drain is in progress. (Half of what `overstocked` tolerates, so that the
    /// headroom must halve before the next drain.)
    pub(crate) fn allow(&self, units: u64) -> bool {
        let prepaid = self.track.prepaid.fetch_add(units, Ordering::SeqCst) + units;
        // SeqCst fence: partner of the fences in `overstocked` and in the drain (stock.rs).
        fence(Ordering::SeqCst);
        let allowed = self.track.draining.load(Ordering::Relaxed) == 0
            && (self.max() == COUNTER_MAX || prepaid <= self.headroom() / 32);
        if !allowed {
            self.disallow(units);
        }
        allowed
    }

    /// Takes back what [`allow`](Self::allow) gave.
    pub(crate) fn disallow(&self, units: u64) {
        self.track.prepaid.fetch_sub(units, Ordering::SeqCst);
    }
}

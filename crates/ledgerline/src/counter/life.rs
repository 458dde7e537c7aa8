//! Opens and closes a row, and says which thread frees it.
//!
//! ```text
//! open  --close-->  closed, held  --let go-->  closed  --the last unit is returned, claim-->  free
//!   ^                                                                                          |
//!   '------------------------------------- open ------------------------------------------------'
//! ```
//!
//! A free row is a closed row that the free list holds. The hold is one unit of `reserved` that belongs to
//! no charge; a thread that destroys a group has one too. So the word is `CLOSED` alone only when a row is
//! empty and no thread frees it yet. The thread that turns that into `CLOSED + HOLD`, by a
//! compare-and-swap, frees the row.
//!
//! A late walk may add to the word of a row that is closed, free or another group's by now (`reserve.rs`).
//! It takes back what it added, and disturbs nothing else. The word is only ever added to and subtracted
//! from, so the next group's reservations are exact. If the addition kept another thread's claim from
//! succeeding, the word is `CLOSED` alone after it was taken back, and the late walk has the claim.

use super::{PageCounter, Underflow, at_least_zero};
use crate::sync::Ordering;

/// In `reserved`: the row accepts no more charges, and is freed when its last unit is returned.
pub(super) const CLOSED: u64 = 1 << 63;
/// A unit of `reserved` that keeps a closed row from being freed.
const HOLD: u64 = 1;

impl PageCounter {
    /// Lets charges in: those of a free row's next group, or again those of a closed row's own group.
    ///
    /// Release, partner of the reservation in [`reserve`](Self::reserve): a walk that was under way to the
    /// row's last group sees that the row is another's now.
    pub(crate) fn open(&self) {
        // A row that was never used is open.
        if self.hot.reserved.load(Ordering::Relaxed) & CLOSED != 0 {
            self.hot.reserved.fetch_sub(CLOSED + HOLD, Ordering::AcqRel);
        }
    }

    /// Closes the row to new charges and takes hold of it. The row is not freed before
    /// [`let_go`](Self::let_go), whatever is returned meanwhile. (Only one thread closes a row: it has made
    /// the row refuse children before.)
    pub(crate) fn close(&self) {
        self.hot.reserved.fetch_add(CLOSED + HOLD, Ordering::AcqRel);
    }

    /// Ends the hold of [`close`](Self::close). Says `true` if nothing is left in the row: the caller frees
    /// it. Otherwise the thread that returns its last unit frees it.
    pub(crate) fn let_go(&self) -> bool {
        // When only the hold is left, that stays so, except for what late walks add and take back: then the
        // row belongs to the free list. Acquire: as in `cancel`.
        self.hot.reserved.load(Ordering::Acquire) == CLOSED + HOLD || self.cancel(HOLD)
    }

    /// Keeps the row from being freed, whatever its state, until [`release_hold`](Self::release_hold). This
    /// is a reservation of one unit that asks no limit. Like any reservation, it makes others wait at most.
    ///
    /// Acquire, partner of the Release in [`open`](Self::open): a thread that holds an open row sees whose
    /// it is. (Holding a closed or free row has no effect, as with a late walk.)
    pub(crate) fn hold(&self) {
        self.hot.reserved.fetch_add(HOLD, Ordering::AcqRel);
    }

    /// Ends a [`hold`](Self::hold). `true` as for [`cancel`](Self::cancel).
    pub(crate) fn release_hold(&self) -> bool {
        self.cancel(HOLD)
    }

    /// Cancels a reservation. Says `true` if it was the last unit of a closed row: the caller frees it.
    pub(crate) fn cancel(&self, n: u64) -> bool {
        // AcqRel: the thread that frees the row sees what all others did to it.
        self.hot.reserved.fetch_sub(n, Ordering::AcqRel) == CLOSED.wrapping_add(n) && self.claim()
    }

    /// Takes hold of an empty closed row for the free list. (The row may have served another group by now:
    /// then that group's time is over.)
    fn claim(&self) -> bool {
        self.hot
            .reserved
            .compare_exchange(CLOSED, CLOSED + HOLD, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes everything out of a row that nobody charges any more, since its process ended. Says how much
    /// was granted.
    pub(crate) fn take_all(&self) -> u64 {
        // A closed row keeps its reservations, so that it is never freed: it stays for the account.
        let open = |reserved: u64| (reserved & CLOSED == 0).then_some(0);
        let _ = self.hot.reserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, open);
        at_least_zero(self.hot.usage.swap(0, Ordering::AcqRel))
    }

    /// Makes the emptied row of an ended process one that the free list holds.
    ///
    /// Nobody walks the row any more. By an addition all the same, so that what anybody adds and takes back stays exact.
    pub(crate) fn abandon(&self) {
        let reserved = self.hot.reserved.load(Ordering::Relaxed);
        self.hot.reserved.fetch_add((CLOSED + HOLD).wrapping_sub(reserved), Ordering::AcqRel);
        // Its drains ended with it.
        self.track.draining.store(0, Ordering::Relaxed);
    }

    /// Takes granted units from a level, or what [`take_all`](Self::take_all) found below it. It takes the same from both
    /// words, whatever the row had reserved: a process that was killed in the middle of a walk may have
    /// turned the reservation into usage on one level and not on the other. Says `true` as
    /// [`cancel`](Self::cancel) does.
    #[inline]
    pub(crate) fn remove(&self, usage: u64) -> Result<bool, Underflow> {
        self.ungrant(usage)?;
        Ok(self.cancel(usage))
    }
}

//! Opens and closes a row, and decides which thread frees it.
//!
//! ```text
//! open  --close-->  closed, held  --let go-->  closed  --the last unit is returned, claim-->  free
//!   ^                                                                                          |
//!   '------------------------------------- open ------------------------------------------------'
//! ```
//!
//! A free row is a closed row that the free list holds. The hold is one unit of `reserved` that belongs to no charge; a
//! thread that destroys a group has one too. So the word is exactly `CLOSED` only if a row is empty and no thread frees
//! it yet. The thread that turns this into `CLOSED + HOLD`, by a compare-and-swap, frees the row.
//!
//! A late walk may add to the word of a row that is by now closed, free or reused for another group (`reserve.rs`). It
//! takes its addition back and disturbs nothing else. The word only changes by additions and subtractions, so the next
//! group's reservations are exact. If the addition made another thread's claim fail, the word is exactly `CLOSED` after
//! it was taken back, and the late walk gets the claim.

use super::{PageCounter, Underflow, at_least_zero};
use crate::sync::Ordering;

/// In `reserved`: the row accepts no more charges, and is freed when its last unit is returned.
pub(super) const CLOSED: u64 = 1 << 63;
/// A unit of `reserved` that keeps a closed row from being freed.
const HOLD: u64 = 1;

impl PageCounter {
    /// Lets charges in: those of a free row's next group, or again those of a closed row's own group.
    ///
    /// Release, partner of the reservation in [`reserve`](Self::reserve): a walk that was under way to the row's last
    /// group sees that the row belongs to another group now.
    pub(crate) fn open(&self) {
        // A row that was never used is open.
        if self.hot.reserved.load(Ordering::Relaxed) & CLOSED != 0 {
            self.hot.reserved.fetch_sub(CLOSED + HOLD, Ordering::AcqRel);
        }
    }

    /// Closes the row to new charges and takes hold of it. The row is not freed before [`let_go`](Self::let_go),
    /// whatever is returned meanwhile. Only one thread closes a row: the one that made the row refuse children before.
    pub(crate) fn close(&self) {
        self.hot.reserved.fetch_add(CLOSED + HOLD, Ordering::AcqRel);
    }

    /// Ends the hold of [`close`](Self::close). Returns `true` if the row is empty: the caller frees it. Otherwise the
    /// thread that returns the last unit frees it.
    pub(crate) fn let_go(&self) -> bool {
        // If only the hold is left, the hold passes to the free list. The word then stays, except for what late walks
        // add and take back. Acquire: as in `cancel`.
        self.hot.reserved.load(Ordering::Acquire) == CLOSED + HOLD || self.cancel(HOLD)
    }

    /// Keeps the row from being freed, whatever its state, until [`release_hold`](Self::release_hold). This
    /// is a reservation of one unit that asks no limit. Like any reservation, it makes others wait at most.
    ///
    /// Acquire, partner of the Release in [`open`](Self::open): a thread that holds an open row sees which group it
    /// belongs to. Holding a closed or free row has no effect, as with a late walk.
    pub(crate) fn hold(&self) {
        self.hot.reserved.fetch_add(HOLD, Ordering::AcqRel);
    }

    /// Ends a [`hold`](Self::hold). Returns `true` like [`cancel`](Self::cancel).
    pub(crate) fn release_hold(&self) -> bool {
        self.cancel(HOLD)
    }

    /// Cancels a reservation. Returns `true` if it was the last unit of a closed row: the caller frees it.
    pub(crate) fn cancel(&self, n: u64) -> bool {
        // AcqRel: the thread that frees the row sees what all others did to it.
        self.hot.reserved.fetch_sub(n, Ordering::AcqRel) == CLOSED.wrapping_add(n) && self.claim()
    }

    /// Takes hold of an empty closed row for the free list. The row may have served another group by now: then that
    /// group has ended, too.
    fn claim(&self) -> bool {
        self.hot
            .reserved
            .compare_exchange(CLOSED, CLOSED + HOLD, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes everything out of a row that is no longer charged, since its process ended. Returns how much was granted.
    pub(crate) fn take_all(&self) -> u64 {
        // A closed row keeps its reservations, so that it is never freed: it stays for the accounts.
        let open = |reserved: u64| (reserved & CLOSED == 0).then_some(0);
        let _ = self.hot.reserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, open);
        at_least_zero(self.hot.usage.swap(0, Ordering::AcqRel))
    }

    /// Gives the emptied row of an ended process to the free list.
    ///
    /// No thread walks the row any more. The word is still changed by an addition, so that a concurrent addition that
    /// is taken back stays exact.
    pub(crate) fn abandon(&self) {
        let reserved = self.hot.reserved.load(Ordering::Relaxed);
        self.hot.reserved.fetch_add((CLOSED + HOLD).wrapping_sub(reserved), Ordering::AcqRel);
        // Its drains ended with it.
        self.track.draining.store(0, Ordering::Relaxed);
    }

    /// Takes granted units from a level, or the units that [`take_all`](Self::take_all) found below it. It takes the
    /// same number from both words, whatever the row had reserved: a process that was killed in the middle of a walk
    /// may have turned the reservation into usage on one level and not on the other. Returns `true` like
    /// [`cancel`](Self::cancel).
    #[inline]
    pub(crate) fn remove(&self, usage: u64) -> Result<bool, Underflow> {
        self.ungrant(usage)?;
        Ok(self.cancel(usage))
    }
}

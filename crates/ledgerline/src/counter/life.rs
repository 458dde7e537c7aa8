//! Opening and closing a row, and who frees it.
//!
//! ```text
//! open  --close-->  closed, held  --let go-->  closed  --the last unit is returned, claim-->  free
//!   ^                                                                                          |
//!   '------------------------------------- open ------------------------------------------------'
//! ```
//!
//! A free row is a closed one that the free list holds: the hold is one unit of `reserved` that is nobody's
//! charge, as whoever destroys a group has one. So the word is `CLOSED` alone only when a row is empty and
//! nobody frees it yet, and who makes `CLOSED + HOLD` of that by a compare-and-swap is the one who does.
//!
//! A walk that is late may add to the word of a row that is closed, free or another group's by now
//! (`reserve.rs`). It takes back what it added, and nothing else is disturbed: the word is only ever added
//! to and subtracted from, so the next group's is exact; and if the addition kept somebody's claim from
//! succeeding, the word is `CLOSED` alone after it was taken back, and the claim is with who did that.

use super::{PageCounter, Underflow, at_least_zero};
use crate::sync::Ordering;

/// In `reserved`: the row takes no more charges; it is freed when its last unit is returned.
pub(super) const CLOSED: u64 = 1 << 63;
/// A unit of `reserved` that keeps a closed row from being freed.
const HOLD: u64 = 1;

impl PageCounter {
    /// Lets charges in, those of a free row's next group or (after all) of a closed row's own.
    ///
    /// Release, partner of the reservation in [`reserve`](Self::reserve): a walk that was on its way
    /// to the row's last group sees that it is another's now.
    pub(crate) fn open(&self) {
        // A row that was never used is open.
        if self.hot.reserved.load(Ordering::Relaxed) & CLOSED != 0 {
            self.hot.reserved.fetch_sub(CLOSED + HOLD, Ordering::AcqRel);
        }
    }

    /// Closes the row to new charges and takes hold of it: it is not freed before the hold is
    /// [`let_go`](Self::let_go), whatever is returned meanwhile. (One thread closes a row: it has
    /// refused it children before.)
    pub(crate) fn close(&self) {
        self.hot.reserved.fetch_add(CLOSED + HOLD, Ordering::AcqRel);
    }

    /// Ends the hold of [`close`](Self::close). `true` if nothing is left in the row: the caller
    /// frees it. Otherwise whoever returns its last unit does.
    pub(crate) fn let_go(&self) -> bool {
        // Once it is all that is left it stays so, but for what is taken back: then the hold becomes
        // the free list's. Acquire: as in `cancel`.
        self.hot.reserved.load(Ordering::Acquire) == CLOSED + HOLD || self.cancel(HOLD)
    }

    /// Keeps the row from being freed, whatever it is now, until [`release_hold`](Self::release_hold): a
    /// reservation of one unit that asks no limit. It makes others wait at most, as any does.
    ///
    /// Acquire, partner of the Release in [`open`](Self::open): whoever holds a row that is open sees whose it
    /// is. (One that is closed or free may be held for nothing, like a late walk's.)
    pub(crate) fn hold(&self) {
        self.hot.reserved.fetch_add(HOLD, Ordering::AcqRel);
    }

    /// Ends a [`hold`](Self::hold). `true` as for [`cancel`](Self::cancel).
    pub(crate) fn release_hold(&self) -> bool {
        self.cancel(HOLD)
    }

    /// Returns a reservation. `true` if it was the last unit of a closed row: the caller frees it.
    pub(crate) fn cancel(&self, n: u64) -> bool {
        // AcqRel: the one who frees the row sees what all the others did to it.
        self.hot.reserved.fetch_sub(n, Ordering::AcqRel) == CLOSED.wrapping_add(n) && self.claim()
    }

    /// Takes hold of an empty closed row for the free list. (The row may have had another life by
    /// now: then it is that one which is over.)
    fn claim(&self) -> bool {
        self.hot
            .reserved
            .compare_exchange(CLOSED, CLOSED + HOLD, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes everything out of a row that nobody charges any more (its process ended); how much was
    /// granted.
    pub(crate) fn take_all(&self) -> u64 {
        // A closed one keeps its reservations, so that it is never freed: it stays for the account.
        let open = |reserved: u64| (reserved & CLOSED == 0).then_some(0);
        let _ = self.hot.reserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, open);
        at_least_zero(self.hot.usage.swap(0, Ordering::AcqRel))
    }

    /// Takes from a level what [`take_all`](Self::take_all) found below it: the same from both
    /// words, whatever the row had reserved. (A process that was killed in the middle of a walk may
    /// have turned the reservation into usage here and not there.) `true` as for
    /// [`cancel`](Self::cancel).
    pub(crate) fn remove(&self, usage: u64) -> Result<bool, Underflow> {
        self.ungrant(usage)?;
        Ok(self.cancel(usage))
    }
}

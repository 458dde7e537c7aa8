//! Opening and closing a row, and who frees it.

use super::{PageCounter, Underflow};
use crate::sync::Ordering;

/// In `reserved`: the row takes no more charges; it is freed when its last unit is returned.
pub(super) const CLOSED: u64 = 1 << 63;

impl PageCounter {
    /// Lets charges in. Release, partner of the reservation in [`reserve`](Self::reserve): a walk
    /// that was on its way to the row's last group sees that it is another's now.
    pub(crate) fn open(&self) {
        self.hot.reserved.store(0, Ordering::Release);
    }

    /// Closes the row to new charges and takes hold of it: it is not freed before the hold is
    /// [`let_go`](Self::let_go), whatever is returned meanwhile.
    pub(crate) fn close(&self) {
        let mut reserved = self.hot.reserved.load(Ordering::Relaxed);
        while let Err(seen) = self.hot.reserved.compare_exchange_weak(
            reserved,
            (reserved + 1) | CLOSED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            reserved = seen;
        }
    }

    /// Undoes [`close`](Self::close): the row could not be closed after all.
    pub(crate) fn reopen(&self) {
        self.hot.reserved.fetch_and(!CLOSED, Ordering::AcqRel);
        self.hot.reserved.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends the hold of [`close`](Self::close). `true` if nothing is left in the row: the caller
    /// frees it. Otherwise whoever returns its last unit does.
    pub(crate) fn let_go(&self) -> bool {
        self.release(1)
    }

    /// Takes everything out of a row that nobody charges any more (its process ended); how much was
    /// granted.
    pub(crate) fn take_all(&self) -> u64 {
        self.hot.reserved.fetch_and(CLOSED, Ordering::AcqRel);
        self.hot.usage.swap(0, Ordering::AcqRel)
    }

    /// Takes from a level what [`take_all`](Self::take_all) found below it: the same from both
    /// words, whatever the row had reserved. (A process that was killed in the middle of a walk may
    /// have turned the reservation into usage here and not there.)
    pub(crate) fn remove(&self, usage: u64) -> Result<(), Underflow> {
        let result = self.ungrant(usage);
        if result.is_ok() {
            self.release(usage);
        }
        result
    }
}

//! The first word of one level, `reserved`: how it grows.
//!
//! ```text
//! reserve(n), if n is not above max:
//!   reserved += n                 an addition, whatever other walks do
//!   it fits below max: done
//!   reserved -= n, and in turn:
//!     usage + n > max: refuse
//!     reserved + n > max: wait for the walks in flight
//!     reserved += n by a compare-and-swap, and look at max again
//! ```
//!
//! The addition counts all additions before it, and all later ones count it. So the *accepted* total never exceeds max.
//! The word itself may, by what is about to be taken back. Such an excess makes other walks wait, like any reservation,
//! and is never a reason to refuse them. On a machine with many CPUs an addition always succeeds at the first try,
//! whereas a compare-and-swap fails most of the time.

use super::life::CLOSED;
use super::stuck::Waiting;
use super::{COUNTER_MAX, IMPOSSIBLE, PageCounter, exchange, is_impossible};
use crate::sync::Ordering;

/// The most that is added to a word, or subtracted, ahead of the check. Linux has 2^22 threads at most, so all of them
/// together move a word by 2^54. So no carry reaches [`CLOSED`], and a word below zero can be told from a large one.
pub(super) const AHEAD_MAX: u64 = 1 << 32;

/// The most that walks keep in flight for the length of a wait. A larger request is granted or refused within a few
/// instructions.
const PENDING_MAX: u64 = 1 << 56;

/// Why a reservation was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReserved {
    /// `usage + n > max` was seen, or patience ran out.
    Full,
    /// The row was destroyed.
    Closed,
    /// The counter holds a value that no walk leaves there.
    Damaged,
    /// The row was destroyed, and everything else in it was returned while this request was reserved: the caller frees
    /// it.
    Emptied,
}

impl PageCounter {
    /// Returns whether the limit does not allow `n` more: `usage + n > max` was seen. Without a limit only the limit's
    /// line is read. A charge of zero units always fits, as in a cell.
    pub(crate) fn refuses(&self, n: u64) -> bool {
        let max = self.max();
        n > 0 && max < COUNTER_MAX && self.usage().saturating_add(n) > max
    }

    /// Reserves `n`, waiting while only unfinished walks stand in the way.
    pub(crate) fn reserve(&self, n: u64, patience: u32) -> Result<(), NotReserved> {
        self.reserve_within(|| self.max(), n, patience)
    }

    /// Reserves `n` whatever the limit says, up to [`COUNTER_MAX`].
    pub(crate) fn force_reserve(&self, n: u64, patience: u32) -> Result<(), NotReserved> {
        if n > 0 && n <= AHEAD_MAX {
            // As in `reserve_within`, but other reservations do not count: a limit that is being lowered reserves the
            // difference, and a signal handler may have interrupted the very thread that lowers it.
            let before = self.hot.reserved.fetch_add(n, Ordering::AcqRel);
            let is_sound = before & CLOSED == 0 && before <= IMPOSSIBLE;
            if is_sound && self.usage().saturating_add(n) <= COUNTER_MAX {
                return Ok(());
            }
            self.take_back(n)?;
        }
        self.reserve_within(|| COUNTER_MAX, n, patience)
    }

    fn reserve_within(
        &self,
        max: impl Fn() -> u64,
        n: u64,
        patience: u32,
    ) -> Result<(), NotReserved> {
        // Zero units fit below every limit, and add nothing.
        if n == 0 {
            let closed = self.hot.reserved.load(Ordering::Acquire) & CLOSED != 0;
            return if closed { Err(NotReserved::Closed) } else { Ok(()) };
        }
        // A request that can never fit leaves the word alone.
        if n <= AHEAD_MAX && n <= max() {
            // Acquire: partner of the Release in `set_max`'s last step. If this addition comes after that step, the
            // limit read below is the new one. Release: orders this walk before the next thread that reads the
            // reservation.
            let before = self.hot.reserved.fetch_add(n, Ordering::AcqRel);
            // Nothing fits into a closed row: the `CLOSED` bit is above every limit.
            if before.saturating_add(n) <= max() {
                return Ok(());
            }
            self.take_back(n)?;
        }
        self.reserve_in_turn(max, n, patience)
    }

    #[cold]
    #[inline(never)]
    fn reserve_in_turn(
        &self,
        max: impl Fn() -> u64,
        n: u64,
        patience: u32,
    ) -> Result<(), NotReserved> {
        let mut waiting = Waiting::new();
        loop {
            let reserved = self.hot.reserved.load(Ordering::Relaxed);
            if reserved & CLOSED != 0 {
                return Err(NotReserved::Closed);
            }
            if reserved > IMPOSSIBLE || is_impossible(self.hot.usage.load(Ordering::Relaxed)) {
                return Err(NotReserved::Damaged);
            }
            if reserved.saturating_add(n) <= max() {
                // Orderings as for the addition above.
                if !exchange(&self.hot.reserved, reserved, reserved + n) {
                    continue;
                }
                if reserved + n <= max() {
                    return Ok(());
                }
                // The limit was lowered between the look and the reservation.
                self.take_back(n)?;
                continue;
            }
            // Only what is granted counts against a request (I2).
            let usage = self.usage();
            if usage.saturating_add(n) > max() {
                return Err(NotReserved::Full);
            }
            let pending = reserved.saturating_sub(usage);
            if !waiting.turn(&self.hot.stuck, pending, patience) {
                let damaged = self.has_impossible_pending(waiting.least);
                return Err(if damaged { NotReserved::Damaged } else { NotReserved::Full });
            }
        }
    }

    /// Returns whether more was pending than walks ever have in flight, while no limit is being lowered.
    fn has_impossible_pending(&self, least: u64) -> bool {
        if least <= PENDING_MAX {
            return false;
        }
        crate::sync::fence(Ordering::Acquire);
        // The amount is read again, because a change may have ended just now and taken back its reservation.
        !self.is_change_under_way() && self.pending() > PENDING_MAX
    }

    /// Takes back a reservation that did not fit. No reader saw it as usage.
    fn take_back(&self, n: u64) -> Result<(), NotReserved> {
        if self.cancel(n) { Err(NotReserved::Emptied) } else { Ok(()) }
    }

    /// Returns the pending units of charges, for a diagnosis. Units that a limit reserves while it is lowered do not
    /// count.
    #[cfg(not(loom))]
    pub(crate) fn reserved_by_charges(&self) -> u64 {
        let before = self.pending();
        let changes = self.is_change_under_way();
        crate::sync::fence(Ordering::Acquire);
        // A change that has ended meanwhile took back its reservation, so the smaller of the two is used.
        if changes { 0 } else { before.min(self.pending()) }
    }

    /// Returns the units that are reserved and not granted: zero if no walk is in flight.
    pub(crate) fn pending(&self) -> u64 {
        let reserved = self.hot.reserved.load(Ordering::Acquire) & !CLOSED;
        reserved.saturating_sub(self.usage())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Ledger;

    /// The state that a signal handler finds if it interrupted the thread that lowers the limit.
    #[test]
    fn a_limit_that_is_being_lowered_is_no_damage_and_forced_charges_do_not_wait_for_it() {
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("group").unwrap();
        let counter = &group.row().counter;
        let difference = COUNTER_MAX - 100;
        let change = counter.begin_change();
        counter.hot.reserved.fetch_add(difference, Ordering::AcqRel);
        assert_eq!(counter.reserve(200, 64), Err(NotReserved::Full));
        assert_eq!(counter.force_reserve(200, 0), Ok(()));
        assert!(!counter.is_damaged());
        // Without a change, the same values mean that another program wrote over them.
        drop(change);
        assert_eq!(counter.reserve(200, 64), Err(NotReserved::Damaged));
        assert!(!counter.cancel(difference) && !counter.cancel(200));
        assert_eq!(counter.pending(), 0);
    }

    #[test]
    fn what_a_killed_charge_reserved_is_told_where_a_full_group_is_explained() {
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("group").unwrap();
        group.set_max("1M".parse().unwrap()).unwrap();
        let counter = &group.row().counter;
        // The charge was killed after this step.
        assert_eq!(counter.reserve(300 << 10, 64), Ok(()));
        let held = group.try_charge(500 << 10).unwrap();
        let refused = group.try_charge(400 << 10).unwrap_err();
        let told = ledger.diagnose(&refused);
        let full = told.full();
        assert_eq!((full.current, full.reserved), (500 << 10, 300 << 10));
        assert_eq!(full.room(), Some(224 << 10));
        let said = "300.0K more are reserved by charges under way, or by processes that were killed in one";
        assert!(told.to_string().contains(said), "{told}");
        // A limit that is being lowered reserves units as well, but is not a charge.
        let change = counter.begin_change();
        assert_eq!(group.diagnose().full().reserved, 0);
        drop((change, held));
        assert!(!counter.cancel(300 << 10));
        assert!(!group.diagnose().to_string().contains("more are reserved"));
    }

    #[test]
    fn no_forced_charge_takes_a_counter_beyond_what_it_counts() {
        let ledger = Ledger::new().unwrap();
        let group = ledger.root().create("group").unwrap();
        let counter = &group.row().counter;
        assert_eq!(counter.reserve(COUNTER_MAX - 5, 64), Ok(()));
        counter.commit(COUNTER_MAX - 5);
        assert_eq!(counter.force_reserve(6, 64), Err(NotReserved::Full));
        assert_eq!(counter.force_reserve(5, 64), Ok(()));
        assert_eq!(counter.pending(), 5);
    }
}

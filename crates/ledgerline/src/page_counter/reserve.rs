//! The first word of one level, `reserved`: how it grows, and is returned.

use super::life::CLOSED;
use super::{COUNTER_MAX, PageCounter};
use crate::sync::{Ordering, wait_a_turn};

/// Why a reservation was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// `usage + n > max` was seen, or patience ran out.
    Full,
    /// The row was destroyed.
    Closed,
}

impl PageCounter {
    /// Looks whether `n` more would fit: `Err` only after `usage + n > max` was seen.
    pub(crate) fn look(&self, n: u64) -> Result<bool, ()> {
        let reserved = self.hot.reserved.load(Ordering::Acquire) & !CLOSED;
        let max = self.max();
        if reserved.saturating_add(n) <= max {
            return Ok(true);
        }
        if self.usage().saturating_add(n) > max { Err(()) } else { Ok(false) }
    }

    /// Reserves `n`, waiting while only unfinished walks stand in the way.
    pub(crate) fn reserve(&self, n: u64, patience: u32) -> Result<(), Reserve> {
        let mut turn = 0;
        loop {
            let max = self.max();
            let reserved = self.hot.reserved.load(Ordering::Relaxed);
            if reserved & CLOSED != 0 {
                return Err(Reserve::Closed);
            }
            if reserved.saturating_add(n) <= max {
                // Acquire: partner of the Release in `set_max`'s last step. If this reservation
                // comes after it, the limit read below is the new one. Release: orders this walk
                // before whoever reads the reservation next.
                if self
                    .hot
                    .reserved
                    .compare_exchange_weak(
                        reserved,
                        reserved + n,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_err()
                {
                    continue;
                }
                if reserved + n <= self.max() {
                    return Ok(());
                }
                // The limit was lowered between the look and the reservation. Nobody saw these
                // units as usage; give them back and look again.
                self.hot.reserved.fetch_sub(n, Ordering::AcqRel);
                continue;
            }
            // Only what is granted counts against a request (I2).
            if self.usage().saturating_add(n) > self.max() || turn >= patience {
                return Err(Reserve::Full);
            }
            wait_a_turn(turn);
            turn += 1;
        }
    }

    /// Reserves `n` whatever the limit says, up to [`COUNTER_MAX`].
    pub(crate) fn force_reserve(&self, n: u64, patience: u32) -> Result<(), Reserve> {
        let mut reserved = self.hot.reserved.load(Ordering::Relaxed);
        let mut turn = 0;
        loop {
            if reserved & CLOSED != 0 {
                return Err(Reserve::Closed);
            }
            if reserved.saturating_add(n) > COUNTER_MAX {
                if self.usage().saturating_add(n) > COUNTER_MAX || turn >= patience {
                    return Err(Reserve::Full);
                }
                // A limit is being lowered (`set_max` reserves the difference for a moment).
                wait_a_turn(turn);
                turn += 1;
                reserved = self.hot.reserved.load(Ordering::Relaxed);
                continue;
            }
            match self.hot.reserved.compare_exchange_weak(
                reserved,
                reserved + n,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(seen) => reserved = seen,
            }
        }
    }

    /// What is reserved and not granted: nothing, when no walk is in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        let reserved = self.hot.reserved.load(Ordering::Acquire) & !CLOSED;
        reserved.saturating_sub(self.usage())
    }
}

//! The second word of one level, `usage`: a grant adds to it, and an uncharge subtracts.
//!
//! ```text
//! ungrant(n):
//!   usage -= n                    a subtraction, whatever other walks do
//!   it held as much: done
//!   usage += n, and in turn:
//!     usage holds n: usage -= n by a compare-and-swap
//!     reserved < n: the level does not hold as much: report it
//!     wait for the walks in flight
//! ```
//!
//! Only a mistaken uncharge finds less than it returns. Until it has taken its subtraction back, the word
//! may be below zero, which readers take for zero. A correct uncharge may find its units missing in that
//! moment, so too little usage does not prove a mistake. But granted units are reserved as well, and an
//! uncharge changes the reservation only after it has succeeded. So too small a reservation is the proof. A
//! charge that is granted in that moment may fail to raise the watermark; no charge ever raises it too far.

use super::life::CLOSED;
use super::limit::UNENFORCED;
use super::reserve::AHEAD_MAX;
use super::stuck::Waiting;
use super::{PageCounter, Underflow, at_least_zero, exchange, is_impossible};
use crate::sync::{Ordering, PATIENCE};

impl PageCounter {
    /// Returns the granted units, idle stock included.
    pub(crate) fn usage(&self) -> u64 {
        at_least_zero(self.hot.usage.load(Ordering::Acquire))
    }

    /// Turns a reservation into usage. Returns whether the usage is then above the level's high, or above a
    /// max that is not enforced.
    pub(crate) fn commit(&self, n: u64) -> bool {
        // A charge of zero units is never an event, however full the level is.
        if n == 0 {
            return false;
        }
        // Release, partner of the Acquire in `usage`: a reader that sees these units sees them reserved.
        let usage = at_least_zero(self.hot.usage.fetch_add(n, Ordering::AcqRel).wrapping_add(n));
        self.raise_watermarks(usage);
        let high = usage > self.limits.high.load(Ordering::Relaxed);
        if high {
            self.track.high_events.fetch_add(1, Ordering::Relaxed);
        }
        let max = self.limits.max.load(Ordering::Relaxed);
        let measured = max & UNENFORCED != 0 && usage > max & !UNENFORCED;
        if measured {
            self.track.max_events.fetch_add(1, Ordering::Relaxed);
        }
        high || measured
    }

    /// Takes `n` from the usage. Never leaves it below zero, except for a moment until the check.
    pub(crate) fn ungrant(&self, n: u64) -> Result<(), Underflow> {
        if n <= AHEAD_MAX {
            // AcqRel: the use of the units comes before their next grant.
            let before = self.hot.usage.fetch_sub(n, Ordering::AcqRel);
            if at_least_zero(before) >= n {
                return Ok(());
            }
            self.hot.usage.fetch_add(n, Ordering::AcqRel);
        }
        self.ungrant_in_turn(n)
    }

    #[cold]
    #[inline(never)]
    fn ungrant_in_turn(&self, n: u64) -> Result<(), Underflow> {
        let mut waiting = Waiting::new();
        loop {
            let usage = self.hot.usage.load(Ordering::Relaxed);
            if is_impossible(usage) {
                return Err(Underflow);
            }
            if at_least_zero(usage) >= n {
                if exchange(&self.hot.usage, usage, usage - n) {
                    return Ok(());
                }
                continue;
            }
            let reserved = self.hot.reserved.load(Ordering::Relaxed) & !CLOSED;
            let pending = reserved.saturating_sub(at_least_zero(usage));
            if reserved < n || !waiting.turn(&self.hot.stuck, pending, PATIENCE) {
                return Err(Underflow);
            }
        }
    }
}

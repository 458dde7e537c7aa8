//! The limit of one level: `max`, whether it is enforced, and how it is lowered.

use super::life::CLOSED;
use super::{COUNTER_MAX, PageCounter};
use crate::sync::{Ordering, PATIENCE, wait_a_turn};

/// In `max`: the limit is kept and not enforced (mode.rs).
pub(super) const UNENFORCED: u64 = 1 << 63;

/// A limit below the usage; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) usage: u64,
}

impl PageCounter {
    /// The limit that holds.
    pub(crate) fn max(&self) -> u64 {
        // Acquire: partner of the Release exchange in `set_max`.
        let max = self.limits.max.load(Ordering::Acquire);
        if max & UNENFORCED == 0 { max } else { COUNTER_MAX }
    }

    /// The limit that was set, whether or not it is enforced.
    pub(crate) fn max_as_set(&self) -> u64 {
        self.limits.max.load(Ordering::Acquire) & !UNENFORCED
    }

    pub(crate) fn is_enforced(&self) -> bool {
        self.limits.max.load(Ordering::Acquire) & UNENFORCED == 0
    }

    /// Enforces the limit from now on, or no longer. What is above it by then stays.
    pub(crate) fn set_enforced(&self, enforced: bool) {
        if enforced {
            // Release, partner of the Acquire in `max`: a reservation that sees the limit when it has
            // added its units is held to it; any other came before.
            self.limits.max.fetch_and(!UNENFORCED, Ordering::AcqRel);
        } else {
            self.limits.max.fetch_or(UNENFORCED, Ordering::AcqRel);
        }
    }

    /// Sets the limit; refused if more than that is in use. Nobody ever sees a limit that does not
    /// hold: lowering it is a *reservation of the difference*, so a charger at the same time either
    /// finds the difference taken, or has its units counted here.
    ///
    /// ```text
    /// reserved += old - new   (only if that fits below old, that is: reserved <= new)
    /// max       = new
    /// reserved -= old - new
    /// ```
    ///
    /// A charger that adds its units before the first step is counted by it; one that adds them
    /// between the first and the last finds the difference taken; and one that adds them after the
    /// last has acquired it, so the limit that it reads then (in `reserve`) is the new one.
    ///
    /// `true` if the row was closed meanwhile and held nothing but that reservation: the caller
    /// frees it. `meant` says whether the row is still the one that the caller means; nobody reuses
    /// a row with a reservation, so it is asked while there is one. (A limit that is raised has
    /// none: a row that is reused between the question and the exchange may get it.)
    pub(crate) fn set_max(&self, new: u64, meant: impl Fn() -> bool) -> Result<bool, InUse> {
        let new = new.min(COUNTER_MAX);
        let mut turn = 0;
        loop {
            let old = self.limits.max.load(Ordering::Acquire);
            if old & UNENFORCED != 0 {
                if !meant() {
                    return Err(InUse { usage: 0 });
                }
                if self.exchange_max(old, new | UNENFORCED) {
                    return Ok(false);
                }
                continue;
            }
            if new >= old {
                if !meant() {
                    return Err(InUse { usage: 0 });
                }
                if self.exchange_max(old, new) {
                    return Ok(false);
                }
                continue;
            }
            let reserved = self.hot.reserved.load(Ordering::Relaxed);
            // A group that was destroyed has no limit to set.
            if reserved & CLOSED != 0 {
                return Err(InUse { usage: 0 });
            }
            if reserved > new {
                let usage = self.usage();
                if usage > new || turn >= PATIENCE {
                    return Err(InUse { usage });
                }
                wait_a_turn(turn);
                turn += 1;
                continue;
            }
            let difference = old - new;
            if self
                .hot
                .reserved
                .compare_exchange_weak(
                    reserved,
                    reserved + difference,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_err()
            {
                continue;
            }
            let meant = meant();
            let done = meant && self.exchange_max(old, new);
            // Release: partner of the Acquire in `reserve`.
            let emptied = self.release(difference);
            if done || emptied {
                return Ok(emptied);
            }
            if !meant {
                return Err(InUse { usage: 0 });
            }
        }
    }

    fn exchange_max(&self, old: u64, new: u64) -> bool {
        self.limits.max.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

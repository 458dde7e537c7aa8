//! The limit of one level: `max`, whether it is enforced, and how it is lowered.

use super::changes::Which;
use super::life::CLOSED;
use super::stuck::Waiting;
use super::{COUNTER_MAX, PageCounter, exchange};
use crate::sync::{Ordering, PATIENCE};

/// In `max`: the limit is kept but not enforced (`control/mode.rs`).
pub(super) const UNENFORCED: u64 = 1 << 63;

/// Why a limit was not set; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSet {
    /// The limit is below the usage.
    InUse {
        /// The usage.
        usage: u64,
    },
    /// The row is closed, or is no longer the one that the caller means.
    Closed,
    /// The row is closed or belongs to another group, and everything else in it was returned meanwhile:
    /// the caller frees it.
    Emptied,
}

impl PageCounter {
    /// Returns the limit in force: [`COUNTER_MAX`] if it is not enforced.
    pub(crate) fn max(&self) -> u64 {
        // Acquire: partner of the Release exchange in `set_max`.
        let max = self.limits.max.load(Ordering::Acquire);
        if max & UNENFORCED == 0 { max } else { COUNTER_MAX }
    }

    /// Returns the limit that was set, whether or not it is enforced.
    pub(crate) fn max_as_set(&self) -> u64 {
        self.limits.max.load(Ordering::Acquire) & !UNENFORCED
    }

    pub(crate) fn is_enforced(&self) -> bool {
        // SeqCst: as `Row::adopt_mode` says.
        self.limits.max.load(Ordering::SeqCst) & UNENFORCED == 0
    }

    /// Starts or stops enforcing the limit. Units above it at that time stay.
    pub(crate) fn set_enforced(&self, enforced: bool) {
        if enforced {
            // Release, partner of the Acquire in `max`: a reservation that sees the limit after it has
            // added its units is held to it; any other reservation came before.
            self.limits.max.fetch_and(!UNENFORCED, Ordering::AcqRel);
        } else {
            self.limits.max.fetch_or(UNENFORCED, Ordering::AcqRel);
        }
    }

    /// Sets the limit, unless more than that is in use. No thread ever sees a limit that does not hold:
    /// lowering it is a *reservation of the difference*, so a concurrent charge either finds the
    /// difference taken, or has its units counted here.
    ///
    /// ```text
    /// reserved += old - new   (only if that fits below old, that is: reserved <= new)
    /// max       = new
    /// reserved -= old - new
    /// ```
    ///
    /// A charge that adds its units before the first step is counted by it. One that adds them between the
    /// first and the last step finds the difference taken. One that adds them after the last step has
    /// acquired it, so the limit that it reads then (in `reserve`) is the new one.
    ///
    /// Returns `true` if the row was closed meanwhile and held nothing but that reservation: the caller
    /// frees it. `meant` returns whether the row is still the one that the caller means. It is called
    /// while there is a reservation, since no row with one is reused. If the limit is raised or not
    /// enforced, one unit is reserved for this.
    pub(crate) fn set_max(&self, new: u64, meant: impl Fn() -> bool) -> Result<bool, NotSet> {
        let new = new.min(COUNTER_MAX);
        let mut waiting = Waiting::new();
        loop {
            let old = self.limits.max.load(Ordering::Acquire);
            if old & UNENFORCED != 0 || new >= old {
                match self.held(&meant, || self.exchange_max(old, old & UNENFORCED | new)) {
                    Ok(true) => return Ok(false),
                    Ok(false) => continue,
                    Err(NotSet::Emptied) => return Ok(true),
                    Err(no) => return Err(no),
                }
            }
            let reserved = self.hot.reserved.load(Ordering::Relaxed);
            // A group that was destroyed has no limit to set.
            if reserved & CLOSED != 0 {
                return Err(NotSet::Closed);
            }
            if reserved > new {
                let usage = self.usage();
                let pending = reserved.saturating_sub(usage);
                if usage > new || !waiting.turn(&self.hot.stuck, pending, PATIENCE) {
                    return Err(NotSet::InUse { usage });
                }
                continue;
            }
            let difference = old - new;
            let _under_way = self.begin_change();
            if !exchange(&self.hot.reserved, reserved, reserved + difference) {
                continue;
            }
            let meant = meant();
            let done = meant && self.exchange_max(old, new);
            // Release: partner of the Acquire in `reserve`.
            let emptied = self.cancel(difference);
            if done || emptied {
                return Ok(emptied);
            }
            if !meant {
                return Err(NotSet::Closed);
            }
        }
    }

    /// Sets the limit, whatever is in use. A reservation made after this finds the new limit, since it
    /// acquires the release of the unit that was reserved here. A reservation made before was accepted
    /// within the old limit.
    pub(crate) fn set_max_now(&self, new: u64, meant: impl Fn() -> bool) -> Result<(), NotSet> {
        let new = new.min(COUNTER_MAX);
        let as_enforced = |old: u64| Some(old & UNENFORCED | new);
        self.held(&meant, || {
            self.note_change(Which::Max, || {
                let word = &self.limits.max;
                let old = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, as_enforced);
                old.ok().map(|old| (old & !UNENFORCED, new))
            });
        })
    }

    /// Calls `act` if the row is the one that is meant. Meanwhile one unit of it is reserved that
    /// belongs to no charge, so the row is not reused between the check and the call.
    fn held<T>(&self, meant: &impl Fn() -> bool, act: impl FnOnce() -> T) -> Result<T, NotSet> {
        let before = self.hot.reserved.fetch_add(1, Ordering::AcqRel);
        let done = (before & CLOSED == 0 && meant()).then(act);
        // Release: partner of the Acquire in `reserve`.
        if self.cancel(1) {
            return Err(NotSet::Emptied);
        }
        done.ok_or(NotSet::Closed)
    }

    fn exchange_max(&self, old: u64, new: u64) -> bool {
        let mut done = false;
        self.note_change(Which::Max, || {
            let exchanged =
                self.limits.max.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
            done = exchanged.is_ok();
            done.then_some((old & !UNENFORCED, new & !UNENFORCED))
        });
        done
    }
}

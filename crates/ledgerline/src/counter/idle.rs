//! Bounds how much may lie idle below one level. The level knows the sum of the caps of the cells below it,
//! and compares it with its usage and its headroom.
//!
//! A level *tolerates* a fifth of its usage and four fifths of the ledger's *slack*. With
//! `usage = truth + idle` that is
//!
//! > idle  <=  (truth + idle + 4 slack) / 5,    so    idle  <=  truth / 4 + slack
//!
//! and below a limit at most a sixteenth of the headroom. New caps are *allowed* up to half of either, so
//! that usage or headroom must halve before the subtree is drained. If its cells wanted more than that, or
//! if it had to be drained for its usage, a level halves the caps of all cells that are opened later: this
//! is its *cap shift*. It doubles them again once an eighth of the allowed units has sufficed for a while.

use super::life::CLOSED;
use super::{COUNTER_MAX, PageCounter, at_least_zero};
use crate::sync::{AtomicU64, Ordering, fence};

/// A number of units that grows and shrinks. The bits above it count the subtractions, modulo 4096. If that
/// count has not changed during a look, the number was never larger than at the end of the look.
#[repr(transparent)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Tally(AtomicU64);

/// One subtraction. The bits below have space for what 2^22 threads have in flight. Caps are not allowed
/// beyond [`Tally::MOST`].
const WENT: u64 = 1 << 52;

impl Tally {
    /// The largest sum of caps.
    const MOST: u64 = WENT / 4;

    /// Adds units. Returns the new number.
    pub(crate) fn add(&self, units: u64) -> u64 {
        self.0.fetch_add(units, Ordering::SeqCst).wrapping_add(units) % WENT
    }

    /// Subtracts units.
    pub(crate) fn take(&self, units: u64) {
        self.0.fetch_add(WENT.wrapping_sub(units), Ordering::SeqCst);
    }

    /// Takes all units out. Returns how many there were.
    pub(crate) fn take_all(&self) -> u64 {
        let none = |word: u64| Some((word / WENT + 1).wrapping_mul(WENT));
        let was = self.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, none);
        was.unwrap_or_else(|word| word) % WENT
    }

    pub(crate) fn units(&self) -> u64 {
        self.word() % WENT
    }

    /// Returns the word that [`since`](Self::since) compares.
    pub(crate) fn word(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the most units that there were at any moment since `word` was read, or `None` if some were
    /// subtracted.
    pub(crate) fn since(&self, word: u64) -> Option<u64> {
        let now = self.word();
        (now / WENT == word / WENT).then_some(now % WENT)
    }
}

/// Why a level allows no more idle units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unallowed {
    /// Its limit is too close, or its subtree is being drained.
    Headroom,
    /// More would lie idle than its usage warrants.
    Usage,
}

/// In `cap_shift`: how often caps are halved. The bits above are the *calm*: they count how long that has
/// sufficed.
const HALVED: u32 = 0xff;
/// The longest calm before caps are doubled again.
const CALM_MAX: u64 = 1 << 20;

impl PageCounter {
    /// Returns the room left below the limit, with reservations counted as used.
    pub(crate) fn headroom(&self) -> u64 {
        let reserved = self.hot.reserved.load(Ordering::Relaxed) & !CLOSED;
        self.max().saturating_sub(reserved)
    }

    /// Returns the usage plus the reservations of walks in flight.
    pub(crate) fn reserved(&self) -> u64 {
        // Acquire, partner of the AcqRel with which walks reserve.
        self.hot.reserved.load(Ordering::Acquire) & !CLOSED
    }

    /// Returns an upper bound on the idle units of the subtree: in cells and in flight.
    pub(crate) fn idle_at_most(&self) -> u64 {
        self.track.prepaid.units() + self.track.in_flight.units()
    }

    /// Returns the usage at some moment of the call, and the most units of it that were idle then. Returns
    /// `None` if idle units left meanwhile, since the usage may count some of them.
    pub(crate) fn look(&self) -> Option<(u64, u64)> {
        let (caps, flight) = (self.track.prepaid.word(), self.track.in_flight.word());
        let usage = self.usage();
        let idle = self.track.prepaid.since(caps)? + self.track.in_flight.since(flight)?;
        Some((usage, idle))
    }

    /// Returns whether `n` fits without the idle units that walks have in flight.
    pub(crate) fn fits_without_in_flight(&self, n: u64) -> bool {
        // Read before the usage: units that this no longer counts are in a cell or were returned.
        let in_flight = self.track.in_flight.units();
        self.usage().saturating_sub(in_flight).saturating_add(n) <= self.max()
    }

    /// Returns how much may lie idle at the present usage.
    fn tolerated(&self, slack: u64) -> u64 {
        (at_least_zero(self.hot.usage.load(Ordering::Relaxed)) + 4 * slack) / 5
    }

    /// Returns how many idle units there may be after a new cap is allowed.
    pub(crate) fn allowed(&self, slack: u64) -> u64 {
        self.tolerated(slack) / 2
    }

    /// Returns whether the caps allowed below this level have outgrown a sixteenth of its headroom. The
    /// caller has executed a SeqCst fence, partner of the fence in [`allow`](Self::allow): of a walk that
    /// reserves and a concurrent cell that is allowed a cap, at least one sees the other.
    pub(crate) fn overstocked_for_headroom(&self) -> bool {
        let max = self.max();
        max < COUNTER_MAX
            && self.track.prepaid.units()
                > max.saturating_sub(self.hot.reserved.load(Ordering::Relaxed) & !CLOSED) / 16
    }

    /// Returns whether more may lie idle than the usage tolerates. The caller has executed a SeqCst fence,
    /// as above: of a walk that returns units and a cell that is allowed a cap, at least one sees the
    /// other.
    pub(crate) fn overstocked_for_usage(&self, slack: u64) -> bool {
        self.idle_at_most() > self.tolerated(slack)
    }

    /// Allows `units` more of idle stock below this level. The sum must stay within a thirty-second of the
    /// headroom and, unless `slack` is `None`, within half of what is tolerated. No drain may be in
    /// progress.
    pub(crate) fn allow(&self, units: u64, slack: Option<u64>) -> Result<(), Unallowed> {
        let prepaid = self.track.prepaid.add(units);
        // SeqCst fence: partner of the fences before `overstocked…` and of the one where caps are held off
        // (`stock/drain.rs`).
        fence(Ordering::SeqCst);
        let headroom = self.track.draining.load(Ordering::Relaxed) == 0
            && (self.max() == COUNTER_MAX || prepaid <= self.headroom() / 32)
            && prepaid <= Tally::MOST;
        let why = if !headroom {
            Unallowed::Headroom
        } else if slack
            .is_some_and(|slack| prepaid + self.track.in_flight.units() > self.allowed(slack))
        {
            Unallowed::Usage
        } else {
            return Ok(());
        };
        self.disallow(units);
        Err(why)
    }

    /// Takes back units that [`allow`](Self::allow) allowed.
    pub(crate) fn disallow(&self, units: u64) {
        self.track.prepaid.take(units);
    }

    /// Returns how often the caps of cells that are opened below this level are halved.
    pub(crate) fn cap_shift(&self) -> u32 {
        self.track.cap_shift.load(Ordering::Relaxed) & HALVED
    }

    /// Halves the caps once more, at most `most` times in all. Returns `false` if another thread just
    /// halved or doubled them, or if `most` is reached. Relaxed, here and below: this is a guess at the
    /// best size of caps.
    pub(crate) fn save(&self, cap_shift: u32, most: u32) -> bool {
        let more =
            |word: u32| (word & HALVED == cap_shift && cap_shift < most).then_some(cap_shift + 1);
        self.track.cap_shift.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Notes that a cell wants a cap, which cap shift reduces to `cap`. Once as many requests have come as
    /// caps of that size are allowed in total, and an eighth of the allowed units was never passed, caps
    /// are doubled again: at most a quarter will be in use then.
    pub(crate) fn note_calm(&self, cap: u64, slack: u64) {
        let cap_shift = self.track.cap_shift.load(Ordering::Relaxed);
        let allowed = self.allowed(slack);
        let next = if self.track.prepaid.units() > allowed / 8 {
            cap_shift & HALVED
        } else if u64::from(cap_shift / (HALVED + 1)) < (allowed / cap.max(1)).min(CALM_MAX) {
            cap_shift + HALVED + 1
        } else {
            (cap_shift & HALVED).saturating_sub(1)
        };
        if next != cap_shift {
            // If another thread changed the word meanwhile, this request is not counted.
            let _ = self.track.cap_shift.compare_exchange(
                cap_shift,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

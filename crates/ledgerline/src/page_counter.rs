//! One row's total and its limits; `walk.rs` walks them from a row to the root.
//!
//! Lockless and unit-agnostic: a unit is whatever the ledger counts. Two words make up the total:
//!
//! * `reserved` is what has been asked for and fits: it only grows by a compare-and-swap that checks
//!   the limit, so `reserved <= max` (but for [`force_reserve`](PageCounter::force_reserve), which may go over).
//! * `usage` is what has been granted: it grows when every level has reserved, so `usage <= reserved`
//!   at every instant, and a request that fails half-way never shows in it.
//!
//! What that buys over add-then-undo on one word (the kernel's counter, see the reference):
//!
//! * **I1 no overrun**: `usage <= reserved <= max` at every instant.
//! * **I2 no false refusal**: a request is refused only after `usage + n > max` was *seen*. When only
//!   somebody else's reservation stands in the way, the caller waits for that walk to end, a few
//!   instructions later. (The wait is bounded: the other may be the thread that this signal handler
//!   interrupted, or a process that was killed. That is the only way to a refusal without
//!   `usage + n > max`.)
//! * **I6 true watermarks**: the watermark follows `usage`, so a request that was taken back never
//!   raises it. It includes the units that lie idle in the cells (bounded by `prepaid`).
//! * **I7 no surprises**: an uncharge of more than is there changes nothing and is reported; sums
//!   cannot wrap, since no counter passes [`COUNTER_MAX`].

use crate::sync::{AtomicU64, Ordering, PATIENCE, fence, wait_a_turn};

/// No counter and no limit passes this. (2^62 bytes are 4 EiB.)
pub(crate) const COUNTER_MAX: u64 = 1 << 62;
/// In `reserved`: the row takes no more charges; it is freed when its last unit is returned.
const CLOSED: u64 = 1 << 63;
/// In `max`: the limit is kept and not enforced (mode.rs).
const UNENFORCED: u64 = 1 << 63;

/// The words that every walk writes: alone on their line.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Hot {
    reserved: AtomicU64,
    usage: AtomicU64,
    spare: [u64; 6],
}

/// What is written now and then: on the neighbour line of the hot words, since the same CPUs
/// write both (the pair that a CPU fetches together is written together).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Track {
    watermark: AtomicU64,
    /// Charges that this level refused.
    failcnt: AtomicU64,
    /// `max` events: charges that met this level's limit (refused, or forced over it).
    pub(crate) max_events: AtomicU64,
    /// `high` events: walks that ended above this level's high.
    pub(crate) high_events: AtomicU64,
    /// Sum of the caps of the cells below: no more units than this lie idle in this subtree.
    pub(crate) prepaid: AtomicU64,
    /// Drains of this subtree in progress: no cell below gets a cap while there is one.
    pub(crate) draining: AtomicU64,
    /// Idle units between the counters and a cell, in the hand of a walk: in `usage` already, or
    /// still, and nobody's charge.
    pub(crate) in_hand: AtomicU64,
    /// The row's, not the counter's: which columns have its statistics (row.rs).
    pub(crate) statistics: AtomicU64,
}

/// What the fast walk only reads.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Limits {
    max: AtomicU64,
    pub(crate) high: AtomicU64,
    pub(crate) low: AtomicU64,
    pub(crate) min: AtomicU64,
}

/// One level of the hierarchy.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct PageCounter {
    hot: Hot,
    pub(crate) track: Track,
    pub(crate) limits: Limits,
}

/// An uncharge of more than the counter holds; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Underflow;

/// A limit below the usage; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) usage: u64,
}

impl PageCounter {
    #[cfg(loom)]
    pub(crate) fn new(max: u64) -> Self {
        let word = AtomicU64::new;
        PageCounter {
            hot: Hot { reserved: word(0), usage: word(0), spare: [0; 6] },
            track: Track {
                watermark: word(0),
                failcnt: word(0),
                max_events: word(0),
                high_events: word(0),
                prepaid: word(0),
                draining: word(0),
                in_hand: word(0),
                statistics: word(0),
            },
            limits: Limits { max: word(max), high: word(COUNTER_MAX), low: word(0), min: word(0) },
        }
    }

    /// Makes a row that holds nothing ready for its next group; [`open`](Self::open) lets it in.
    /// (`draining` and `in_hand` stay: whoever raised them on the row's last group lowers them.)
    pub(crate) fn reset(&self) {
        for word in [
            &self.hot.usage,
            &self.track.watermark,
            &self.track.failcnt,
            &self.track.max_events,
            &self.track.high_events,
            &self.track.prepaid,
            &self.limits.low,
            &self.limits.min,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.limits.max.store(COUNTER_MAX, Ordering::Relaxed);
        self.limits.high.store(COUNTER_MAX, Ordering::Relaxed);
    }

    /// Lets charges in. Release, partner of the reservation in [`reserve`](Self::reserve): a walk
    /// that was on its way to the row's last group sees that it is another's now.
    pub(crate) fn open(&self) {
        self.hot.reserved.store(0, Ordering::Release);
    }

    /// Units granted, idle stock included.
    pub(crate) fn usage(&self) -> u64 {
        self.hot.usage.load(Ordering::Acquire)
    }

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
            // Release, partner of the Acquire in `max`: a reservation that sees the limit at its
            // second look is taken back; any other came before.
            self.limits.max.fetch_and(!UNENFORCED, Ordering::AcqRel);
        } else {
            self.limits.max.fetch_or(UNENFORCED, Ordering::AcqRel);
        }
    }

    pub(crate) fn watermark(&self) -> u64 {
        self.track.watermark.load(Ordering::Relaxed)
    }

    /// Starts the watermark anew at today's usage.
    pub(crate) fn reset_watermark(&self) {
        self.track.watermark.store(self.usage(), Ordering::Relaxed);
        // A charge between the load and the store may have raised it above: raise it again.
        self.track.watermark.fetch_max(self.usage(), Ordering::Relaxed);
    }

    pub(crate) fn failcnt(&self) -> u64 {
        self.track.failcnt.load(Ordering::Relaxed)
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

    /// Notes a refusal by this level.
    pub(crate) fn count_refusal(&self) {
        self.track.failcnt.fetch_add(1, Ordering::Relaxed);
        self.track.max_events.fetch_add(1, Ordering::Relaxed);
    }

    /// Room left below the limit, reservations counted as used.
    pub(crate) fn headroom(&self) -> u64 {
        let reserved = self.hot.reserved.load(Ordering::Relaxed) & !CLOSED;
        self.max().saturating_sub(reserved)
    }

    /// Idle units of the subtree, at most: in cells, and in the hands of walks.
    pub(crate) fn idle_at_most(&self) -> u64 {
        let prepaid = self.track.prepaid.load(Ordering::SeqCst);
        prepaid.saturating_add(self.track.in_hand.load(Ordering::SeqCst))
    }

    /// Whether `n` would fit but for idle units that some walk is about to put away.
    pub(crate) fn waits_for_hands(&self, n: u64) -> bool {
        // Read before the usage: what is not counted here any more is in a cell or given back.
        let in_hand = self.track.in_hand.load(Ordering::SeqCst);
        in_hand > 0 && self.usage().saturating_sub(in_hand).saturating_add(n) <= self.max()
    }

    /// Whether the idle units allowed below this level have outgrown a sixteenth of its headroom.
    ///
    /// SeqCst fence, partner of the one in [`allow`](Self::allow): of a walk that reserves and a
    /// cell that is allowed a cap at the same time, at least one sees the other.
    pub(crate) fn overstocked(&self) -> bool {
        fence(Ordering::SeqCst);
        let max = self.max();
        max < COUNTER_MAX
            && self.track.prepaid.load(Ordering::Relaxed)
                > max.saturating_sub(self.hot.reserved.load(Ordering::Relaxed) & !CLOSED) / 16
    }

    /// Allows `units` more of idle stock below this level, if they stay within a thirty-second of
    /// its headroom and no drain is in progress. (Half of what `overstocked` tolerates, so that the
    /// headroom must halve before the next drain.)
    pub(crate) fn allow(&self, units: u64) -> bool {
        let prepaid = self.track.prepaid.fetch_add(units, Ordering::SeqCst) + units;
        // SeqCst fence: partner of the fences in `overstocked` and in the drain (stock.rs).
        fence(Ordering::SeqCst);
        let allowed = self.track.draining.load(Ordering::Relaxed) == 0
            && (self.max() == COUNTER_MAX || prepaid <= self.headroom() / 32);
        if !allowed {
            self.disallow(units);
        }
        allowed
    }

    /// Takes back what [`allow`](Self::allow) gave.
    pub(crate) fn disallow(&self, units: u64) {
        self.track.prepaid.fetch_sub(units, Ordering::SeqCst);
    }

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

    /// Returns a reservation. `true` if it was the last unit of a closed row.
    pub(crate) fn release(&self, n: u64) -> bool {
        // AcqRel: the one who frees the row sees what all the others did to it. (Returning nothing
        // empties nothing: the row may be empty, and freed by another, already.)
        self.hot.reserved.fetch_sub(n, Ordering::AcqRel) == CLOSED + n && n > 0
    }

    /// Turns a reservation into usage; whether that is above the level's high, or above a max that is
    /// not enforced.
    pub(crate) fn commit(&self, n: u64) -> bool {
        // Release, partner of the Acquire in `usage`: who sees these units sees them reserved.
        let usage = self.hot.usage.fetch_add(n, Ordering::AcqRel) + n;
        // Read first: the watermark's line stays shared while it holds.
        if usage > self.track.watermark.load(Ordering::Relaxed) {
            self.track.watermark.fetch_max(usage, Ordering::Relaxed);
        }
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

    /// Takes `n` from the usage, never below zero.
    pub(crate) fn ungrant(&self, n: u64) -> Result<(), Underflow> {
        let mut usage = self.hot.usage.load(Ordering::Relaxed);
        loop {
            let left = usage.checked_sub(n).ok_or(Underflow)?;
            match self.hot.usage.compare_exchange_weak(
                usage,
                left,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(seen) => usage = seen,
            }
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
    /// A charger that read the old limit and reserves after the last step has acquired it, so its
    /// second look at the limit (in `reserve`) sees the new one.
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
            if reserved & !CLOSED > new {
                let usage = self.usage();
                if usage > new || turn >= PATIENCE {
                    return Err(InUse { usage });
                }
                wait_a_turn(turn);
                turn += 1;
                continue;
            }
            // Closed and empty: freed already, or about to be, by whoever emptied it. A reservation
            // here would free the row a second time.
            if reserved == CLOSED {
                return Err(InUse { usage: 0 });
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

    /// What is reserved and not granted: nothing, when no walk is in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        let reserved = self.hot.reserved.load(Ordering::Acquire) & !CLOSED;
        reserved.saturating_sub(self.usage())
    }
}

/// Why a reservation was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// `usage + n > max` was seen, or patience ran out.
    Full,
    /// The row was destroyed.
    Closed,
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    // Who writes what, by line: the hot words alone; beside them (the same CPUs' neighbour line)
    // what is written now and then; the limits 128 bytes away, for CPUs fetch lines in pairs.
    assert!(offset_of!(PageCounter, hot) == 0);
    assert!(offset_of!(PageCounter, track) == 64);
    assert!(offset_of!(PageCounter, limits) == 128);
    assert!(size_of::<Hot>() == 64 && size_of::<Track>() == 64);
};

//! The width of a difference, and the rule by which it goes to the total.
//!
//! The rules are the kernel's: `__inc_zone_state`, `__dec_zone_state`, `__mod_zone_page_state` and, for 16
//! bits, `__inc_numa_state` (Linux commit 1d90ca897cb0, "mm: update NUMA counter threshold size"):
//!
//! ```text
//! i8, threshold t, at rest |difference| <= t
//!   inc: v = difference + 1; if v >  t: total += v + t/2, difference = -(t/2)
//!   dec: v = difference - 1; if v < -t: total += v - t/2, difference = +(t/2)
//!   add: v = difference + n; if |v| > t: total += v,      difference = 0
//! u16, threshold t, at rest difference <= t
//!   inc, add: v = difference + n; if v > t: total += v, difference = 0
//! i64: no threshold; what would overflow goes to the total
//! ```
//!
//! Since half of the threshold is left on the other side, a counter that only grows oversteps once in
//! `t + t/2 + 1` updates instead of once in `t + 1`.

use super::threshold;
use crate::percpu::narrow::{self, Lane};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, Ordering};

/// How wide a per-CPU difference is: `i8`, `u16` or `i64`.
///
/// | width | goes up and down | threshold | approximation | for |
/// |---|---|---|---|---|
/// | `i8` | yes | 0 to 125 | one load | many items, read often |
/// | `u16` | up only | 0 to 65533 | one load | events that are hardly ever read |
/// | `i64` | yes | none | adds the CPUs up | everything else; the cheapest to update |
pub trait Width: sealed::Difference {
    /// The type of an added amount.
    type Amount: Copy + Into<i64>;
}

/// A width whose counters can also go down.
pub trait Signed: Width {}

impl Width for i8 {
    type Amount = i64;
}
impl Width for u16 {
    type Amount = u32;
}
impl Width for i64 {
    type Amount = i64;
}
impl Signed for i8 {}
impl Signed for i64 {}

/// A width as a value. A file stores it as the number of bytes of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WidthKind {
    /// Signed bytes.
    I8 = 1,
    /// Unsigned 16 bits.
    U16 = 2,
    /// Signed 64 bits.
    I64 = 8,
}

impl WidthKind {
    pub(super) fn from_number(number: u32) -> Option<WidthKind> {
        [WidthKind::I8, WidthKind::U16, WidthKind::I64]
            .into_iter()
            .find(|&width| width as u32 == number)
    }

    /// Returns the number of bytes of a difference.
    pub(super) fn bytes(self) -> usize {
        self as usize
    }

    /// Returns the number of bytes before a block's differences. The limits have a separate word, since
    /// sections store whole words.
    pub(super) fn header(self) -> usize {
        if self == WidthKind::I64 { 0 } else { 8 }
    }

    /// Returns the largest threshold.
    pub(super) fn most(self) -> u32 {
        match self {
            WidthKind::I8 => threshold::MOST,
            WidthKind::U16 => threshold::MOST_U16,
            WidthKind::I64 => 0,
        }
    }
}

impl std::fmt::Display for WidthKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            WidthKind::I8 => "i8",
            WidthKind::U16 => "u16",
            WidthKind::I64 => "i64",
        })
    }
}

/// An update: the amount and the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub n: i64,
    /// Whether it is an `inc` or `dec`, not an `add`.
    pub by_one: bool,
}

pub(super) mod sealed {
    use super::*;

    /// The properties of a width that the table needs.
    pub trait Difference: Copy + Send + Sync + 'static {
        /// This width as a value.
        const KIND: WidthKind;
        /// Whether a block has limits.
        const BOUNDED: bool = true;
        /// The limits that admit no update.
        const CLOSED: u16;
        /// The stored value of a difference of zero, chosen so that no lane ever carries into the next.
        const ZERO: i64 = 0;

        /// Returns the limits for a threshold. For 0 they are closed: nothing is kept back.
        fn open(threshold: u32) -> u16;

        /// Applies the rule. Returns the remaining difference, and the amount that goes to the total.
        fn step(old: i64, update: Update, limits: u16) -> (i64, i64);

        /// # Safety
        /// `at` is a live difference. The functions below require that, too.
        unsafe fn load(at: *const u8) -> i64;

        /// Compares and swaps. SeqCst, partner of the limits' store in `fold.rs`.
        ///
        /// # Safety
        /// As for [`load`](Self::load).
        unsafe fn exchange(at: *const u8, old: i64, new: i64) -> bool;

        /// Swaps in a zero. SeqCst, partner of the limits' load after an update.
        ///
        /// # Safety
        /// As for [`load`](Self::load).
        unsafe fn take(at: *const u8) -> i64;

        /// Adds on the running column if the rule lets the sum stay there: the fast path.
        ///
        /// # Safety
        /// As for the sections in `percpu/narrow.rs`.
        unsafe fn add<const INDEX: isize>(area: isize, lane: Lane, n: i64) -> bool;
    }
}

/// The largest amount for sections: 32 bits hold every sum.
const AMOUNT_MOST: u64 = 1 << 16;

/// The atomic operations on a difference, which are the same for all widths.
macro_rules! atomics {
    ($Atomic:ty, $Stored:ty) => {
        #[inline(always)]
        unsafe fn load(at: *const u8) -> i64 {
            // SAFETY: a live, aligned difference, by the caller. Other code accesses it only through
            // atomics and sections.
            i64::from(unsafe { &*at.cast::<$Atomic>() }.load(Ordering::Relaxed)) - Self::ZERO
        }

        unsafe fn exchange(at: *const u8, old: i64, new: i64) -> bool {
            // Both values come from this width or its rule, so they fit.
            let (old, new) = ((old + Self::ZERO) as $Stored, (new + Self::ZERO) as $Stored);
            // SAFETY: as above.
            unsafe { &*at.cast::<$Atomic>() }
                .compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        }

        unsafe fn take(at: *const u8) -> i64 {
            // SAFETY: as above.
            let difference = unsafe { &*at.cast::<$Atomic>() };
            i64::from(difference.swap(Self::ZERO as $Stored, Ordering::SeqCst)) - Self::ZERO
        }
    };
}

impl sealed::Difference for i8 {
    const KIND: WidthKind = WidthKind::I8;
    /// Differences are stored as 3 to 253. So a sum that goes up is at least 1, and one that goes down
    /// is at most 252. The upper limit is 0, the lower limit 255.
    const CLOSED: u16 = u16::from_le_bytes([0, u8::MAX]);
    const ZERO: i64 = 128;

    fn open(threshold: u32) -> u16 {
        match threshold.min(threshold::MOST) as u8 {
            0 => Self::CLOSED,
            most => u16::from_le_bytes([128 + most, 128 - most]),
        }
    }

    fn step(old: i64, update: Update, limits: u16) -> (i64, i64) {
        let most = i64::from(limits.to_le_bytes()[0]) - Self::ZERO;
        let sum = old.saturating_add(update.n);
        if (-most..=most).contains(&sum) {
            return (sum, 0);
        }
        if !update.by_one {
            return (0, sum);
        }
        let overstep = most >> 1;
        if sum > 0 { (-overstep, sum + overstep) } else { (overstep, sum - overstep) }
    }

    atomics!(AtomicU8, u8);

    #[inline(always)]
    unsafe fn add<const INDEX: isize>(area: isize, lane: Lane, n: i64) -> bool {
        if n.unsigned_abs() > AMOUNT_MOST {
            return false;
        }
        // At rest a difference is within the limits on both sides, so a sum can only pass the limit
        // that it moves towards. SAFETY: by the caller.
        unsafe {
            match n {
                1 => narrow::inc_u8::<INDEX>(area, lane),
                -1 => narrow::dec_u8::<INDEX>(area, lane),
                2.. => narrow::up_u8::<INDEX>(area, lane, n as i32),
                0 => true,
                _ => narrow::down_u8::<INDEX>(area, lane, n as i32),
            }
        }
    }
}

impl sealed::Difference for u16 {
    const KIND: WidthKind = WidthKind::U16;
    /// Every sum is above 0, since only positive amounts are added.
    const CLOSED: u16 = 0;

    fn open(threshold: u32) -> u16 {
        threshold.min(threshold::MOST_U16) as u16
    }

    fn step(old: i64, update: Update, limits: u16) -> (i64, i64) {
        let sum = old + update.n;
        if sum <= i64::from(limits) { (sum, 0) } else { (0, sum) }
    }

    atomics!(AtomicU16, u16);

    #[inline(always)]
    unsafe fn add<const INDEX: isize>(area: isize, lane: Lane, n: i64) -> bool {
        // Amounts are unsigned, so `n` is not negative.
        if n.unsigned_abs() > AMOUNT_MOST {
            return false;
        }
        // SAFETY: by the caller.
        n == 0 || unsafe { narrow::up_u16::<INDEX>(area, lane, n as i32) }
    }
}

impl sealed::Difference for i64 {
    const KIND: WidthKind = WidthKind::I64;
    const BOUNDED: bool = false;
    /// There are no limits.
    const CLOSED: u16 = 1;

    fn open(_: u32) -> u16 {
        0
    }

    fn step(old: i64, update: Update, _: u16) -> (i64, i64) {
        old.checked_add(update.n).map_or((old, update.n), |sum| (sum, 0))
    }

    atomics!(AtomicI64, i64);

    #[inline(always)]
    unsafe fn add<const INDEX: isize>(area: isize, lane: Lane, n: i64) -> bool {
        // SAFETY: by the caller.
        unsafe { narrow::add_i64::<INDEX>(area, lane.word, lane.stride, n) }
    }
}

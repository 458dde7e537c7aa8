//! How wide a difference is, and the rule by which it goes to the total.
//!
//! The rules are the kernel's (`__inc_zone_state`, `__dec_zone_state`, `__mod_zone_page_state` and, in
//! seed 003, `__inc_numa_state`):
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
//! Leaving half of the threshold on the other side makes a counter that only grows overstep once in
//! `t + t/2 + 1` updates and not once in `t + 1`.

use super::threshold;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
use crate::percpu::narrow;
use std::sync::atomic::{AtomicI8, AtomicI64, AtomicU16, Ordering};

/// How wide a per-CPU difference is: `i8`, `u16` or `i64`.
///
/// | width | goes up and down | threshold | approximation | for |
/// |---|---|---|---|---|
/// | `i8` | yes | 0 to 125 | one load | many items, read often |
/// | `u16` | up only | 0 to 65533 | one load | events that are hardly ever read |
/// | `i64` | yes | none | adds the CPUs up | everything else; the cheapest to update |
pub trait Width: sealed::Difference {
    /// What may be added at a time.
    type Amount: Copy + Into<i64>;
}

/// A width whose counters go down as well.
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

/// A width as a value: what a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WidthKind {
    /// Signed bytes.
    I8,
    /// Unsigned 16 bits.
    U16,
    /// Signed 64 bits.
    I64,
}

impl WidthKind {
    pub(super) fn number(self) -> u32 {
        match self {
            WidthKind::I8 => 1,
            WidthKind::U16 => 2,
            WidthKind::I64 => 8,
        }
    }

    pub(super) fn from_number(number: u32) -> Option<WidthKind> {
        [WidthKind::I8, WidthKind::U16, WidthKind::I64]
            .into_iter()
            .find(|width| width.number() == number)
    }

    /// Bytes of a difference.
    pub(super) fn bytes(self) -> usize {
        self.number() as usize
    }

    /// Bytes before a block's differences.
    pub(super) fn header(self) -> usize {
        if self == WidthKind::I64 { 0 } else { 2 }
    }

    /// The largest threshold.
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

/// An update: how much, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub n: i64,
    /// By `inc` or `dec`, not by `add`.
    pub by_one: bool,
}

pub(super) mod sealed {
    use super::*;

    /// What the table needs to know of a width.
    pub trait Difference: Copy + Send + Sync + 'static {
        /// This width as a value.
        const KIND: WidthKind;
        /// Whether a block has a header with a threshold.
        const BOUNDED: bool = true;
        /// The header that lets no update through.
        const CLOSED: u16;

        /// The header for a threshold. For 0 that is the closed one: nothing is kept back.
        fn open(threshold: u32) -> u16;

        /// The rule: what is left of a difference, and what goes to the total.
        fn step(old: i64, update: Update, header: u16) -> (i64, i64);

        /// Whether a difference may stay under an open header.
        fn rests(difference: i64, header: u16) -> bool;

        /// # Safety
        /// `at` is a live difference (so in all that follow).
        unsafe fn load(at: *const u8) -> i64;

        /// Compare and swap, SeqCst: partner of the header's store in fold.rs.
        ///
        /// # Safety
        /// As [`load`](Self::load).
        unsafe fn exchange(at: *const u8, old: i64, new: i64) -> bool;

        /// Swaps a zero in, SeqCst: partner of the header's load after an update.
        ///
        /// # Safety
        /// As [`load`](Self::load).
        unsafe fn take(at: *const u8) -> i64;

        /// The fast path: adds on the running column if the rule lets it stay there.
        ///
        /// # Safety
        /// As the sections in percpu/narrow.rs.
        #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
        unsafe fn add<const INDEX: isize>(
            area: isize,
            block: *const u8,
            at: *const u8,
            stride: usize,
            n: i64,
        ) -> bool;

        /// Stores a step's outcome on `column` if nothing has changed since it was read.
        ///
        /// # Safety
        /// As the sections in percpu/narrow.rs.
        #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
        unsafe fn compare_store<const INDEX: isize>(
            area: isize,
            block: *const u8,
            at: *const u8,
            column: u32,
            header: u16,
            step: (i64, i64),
        ) -> bool;
    }
}

/// Sections take amounts up to this: 32 bits hold every sum.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
const AMOUNT_MOST: u64 = 1 << 16;

/// The atomics on a difference, which are alike for all widths.
macro_rules! atomics {
    ($Atomic:ty, $Value:ty) => {
        #[inline(always)]
        unsafe fn load(at: *const u8) -> i64 {
            // SAFETY: a live, aligned difference, by the caller; others touch it through atomics
            // and sections only.
            i64::from(unsafe { &*at.cast::<$Atomic>() }.load(Ordering::Relaxed))
        }

        unsafe fn exchange(at: *const u8, old: i64, new: i64) -> bool {
            // SAFETY: as above. (Both values came from this width or its rule, so they fit.)
            unsafe { &*at.cast::<$Atomic>() }
                .compare_exchange(old as $Value, new as $Value, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        }

        unsafe fn take(at: *const u8) -> i64 {
            // SAFETY: as above.
            i64::from(unsafe { &*at.cast::<$Atomic>() }.swap(0, Ordering::SeqCst))
        }
    };
}

impl sealed::Difference for i8 {
    const KIND: WidthKind = WidthKind::I8;
    /// Above the most nothing is, below the least neither: -128 and 127.
    const CLOSED: u16 = u16::from_le_bytes([i8::MIN as u8, i8::MAX as u8]);

    fn open(threshold: u32) -> u16 {
        match threshold.min(threshold::MOST) as u8 {
            0 => Self::CLOSED,
            most => u16::from_le_bytes([most, most.wrapping_neg()]),
        }
    }

    fn step(old: i64, update: Update, header: u16) -> (i64, i64) {
        let most = i64::from(header.to_le_bytes()[0] as i8);
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

    fn rests(difference: i64, header: u16) -> bool {
        difference.abs() <= i64::from(header.to_le_bytes()[0] as i8)
    }

    atomics!(AtomicI8, i8);

    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    #[inline(always)]
    unsafe fn add<const INDEX: isize>(
        area: isize,
        block: *const u8,
        at: *const u8,
        stride: usize,
        n: i64,
    ) -> bool {
        if n.unsigned_abs() > AMOUNT_MOST {
            return false;
        }
        // At rest a difference is within the threshold on both sides, so a sum can only pass the
        // one that it moves towards.
        // SAFETY: by the caller.
        unsafe {
            match n {
                1.. => narrow::up_i8::<INDEX>(area, block, at, stride, n as i32),
                0 => true,
                _ => narrow::down_i8::<INDEX>(area, block, at, stride, n as i32),
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    unsafe fn compare_store<const INDEX: isize>(
        area: isize,
        block: *const u8,
        at: *const u8,
        column: u32,
        header: u16,
        (old, new): (i64, i64),
    ) -> bool {
        let step = (old as i8, new as i8);
        // SAFETY: by the caller.
        unsafe { narrow::compare_store_i8::<INDEX>(area, block, at, column, header, step) }
    }
}

impl sealed::Difference for u16 {
    const KIND: WidthKind = WidthKind::U16;
    /// Every sum is above it, since only positive amounts are added.
    const CLOSED: u16 = 0;

    fn open(threshold: u32) -> u16 {
        threshold.min(threshold::MOST_U16) as u16
    }

    fn step(old: i64, update: Update, header: u16) -> (i64, i64) {
        let sum = old + update.n;
        if sum <= i64::from(header) { (sum, 0) } else { (0, sum) }
    }

    fn rests(difference: i64, header: u16) -> bool {
        difference <= i64::from(header)
    }

    atomics!(AtomicU16, u16);

    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    #[inline(always)]
    unsafe fn add<const INDEX: isize>(
        area: isize,
        block: *const u8,
        at: *const u8,
        stride: usize,
        n: i64,
    ) -> bool {
        match n {
            0 => true,
            // SAFETY: by the caller.
            1..=0x1_0000 => unsafe { narrow::up_u16::<INDEX>(area, block, at, stride, n as i32) },
            _ => false,
        }
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    unsafe fn compare_store<const INDEX: isize>(
        area: isize,
        block: *const u8,
        at: *const u8,
        column: u32,
        header: u16,
        (old, new): (i64, i64),
    ) -> bool {
        let step = (old as u16, new as u16);
        // SAFETY: by the caller.
        unsafe { narrow::compare_store_u16::<INDEX>(area, block, at, column, header, step) }
    }
}

impl sealed::Difference for i64 {
    const KIND: WidthKind = WidthKind::I64;
    const BOUNDED: bool = false;
    /// There is no header.
    const CLOSED: u16 = 1;

    fn open(_: u32) -> u16 {
        0
    }

    fn step(old: i64, update: Update, _: u16) -> (i64, i64) {
        old.checked_add(update.n).map_or((old, update.n), |sum| (sum, 0))
    }

    fn rests(_: i64, _: u16) -> bool {
        true
    }

    atomics!(AtomicI64, i64);

    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    #[inline(always)]
    unsafe fn add<const INDEX: isize>(
        area: isize,
        _: *const u8,
        at: *const u8,
        stride: usize,
        n: i64,
    ) -> bool {
        // SAFETY: by the caller.
        unsafe { narrow::add_i64::<INDEX>(area, at, stride, n) }
    }

    /// Never called: there is no header to step over.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    unsafe fn compare_store<const INDEX: isize>(
        _: isize,
        _: *const u8,
        _: *const u8,
        _: u32,
        _: u16,
        _: (i64, i64),
    ) -> bool {
        false
    }
}

//! The shared totals of the places.
//!
//! An overstep goes to the total of its own place alone: one line is written, and not that of the whole
//! machine, which all CPUs would share. Who reads a place adds up the totals of what is below it.

use super::layout::View;
use std::sync::atomic::{AtomicI64, Ordering};

/// A total goes no further than this from zero: half-way to where it would wrap.
pub(super) const LIMIT: i64 = 1 << 62;
/// Amounts up to this are added first and clamped afterwards; 2^30 threads would have to do that at
/// the same moment before a total wrapped.
const SMALL: u64 = 1 << 32;

/// The totals of a table.
pub(super) struct Totals<'c> {
    pub(super) view: &'c View,
}

impl Totals<'_> {
    /// Adds `n` at the place.
    pub(super) fn add(&self, place: usize, item: usize, n: i64) {
        if n != 0 && !add_clamped(self.view.total(place, item), n) {
            self.view.header().saturated.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the totals of these places come to.
    pub(super) fn sum(&self, places: &[u32], item: usize) -> i128 {
        let total = |&place: &u32| self.view.total(place as usize, item).load(Ordering::Relaxed);
        places.iter().map(total).map(i128::from).sum()
    }
}

/// Adds to a total; `false` if it stopped at the limit, and a part of `n` was left out.
///
/// Relaxed: the value is all there is to see; what a reader needs to see in order is ordered by the
/// sequence (fold.rs, read.rs).
fn add_clamped(total: &AtomicI64, n: i64) -> bool {
    if n.unsigned_abs() <= SMALL {
        let sum = total.fetch_add(n, Ordering::Relaxed) + n;
        let clamped = sum.clamp(-LIMIT, LIMIT);
        if sum != clamped {
            total.fetch_sub(sum - clamped, Ordering::Relaxed);
        }
        return sum == clamped;
    }
    let mut whole = true;
    let _ = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
        let sum = old.saturating_add(n);
        whole = (-LIMIT..=LIMIT).contains(&sum);
        Some(sum.clamp(-LIMIT, LIMIT))
    });
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_stops_at_its_limit_and_says_so() {
        for sign in [1, -1] {
            let total = AtomicI64::new(sign * (LIMIT - 5));
            assert!(add_clamped(&total, sign * 5));
            assert!(!add_clamped(&total, sign));
            assert!(!add_clamped(&total, sign * i64::MAX));
            assert_eq!(total.load(Ordering::Relaxed), sign * LIMIT);
            assert!(add_clamped(&total, -sign * 7));
            assert_eq!(total.load(Ordering::Relaxed), sign * (LIMIT - 7));
        }
    }
}

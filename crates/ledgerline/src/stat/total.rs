//! The shared totals of the places.
//!
//! An overstep goes only to the total of its own place. So it does not write the line of the whole
//! machine, which all CPUs would share. A total is kept in stripes, each on its own line, and the CPUs are
//! spread over them: up to four CPUs never take a line from each other. A reader of a place adds up the
//! stripes of all places below it.

use super::layout::{STRIPES_MAX, View};
use std::sync::atomic::{AtomicI64, Ordering};

/// The largest absolute value of a stripe. The sum of all stripes fits into a word, twice.
pub(super) const LIMIT: i64 = 1 << 60;
const _: () = assert!(STRIPES_MAX as i64 * LIMIT <= 1 << 62);
/// Amounts up to this are added first and clamped afterwards. A total would wrap only if 2^30 threads
/// added at the same moment.
const SMALL: u64 = 1 << 32;

impl View {
    /// Adds `n` to a total, in a column's stripe.
    pub(super) fn add_to_total(&self, column: u32, place: usize, item: usize, n: i64) {
        if n != 0 && !add_clamped(self.total(column, place, item), n) {
            self.header().saturated.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Adds to a total. Returns `false` if it stopped at the limit and left out a part of `n`.
///
/// Relaxed: the value publishes no other data. The sequence provides the order that readers need
/// (`fold.rs`, `read.rs`).
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

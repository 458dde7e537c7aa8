//! Helpers for design points: numbers that fill their space evenly, and a parallel loop over the points.

use rayon::prelude::*;

/// Calls `work` with each item and its number, and returns the results in the items' order, or the first error in
/// that order.
///
/// The thread that handles an item is arbitrary. It does not affect the results, since the work on an item does not
/// depend on other items.
///
/// # Errors
/// The first that `work` returns.
pub fn each<T: Sync, U: Send, E: Send>(
    items: &[T],
    work: impl Fn(usize, &T) -> Result<U, E> + Sync,
) -> Result<Vec<U>, E> {
    // Each item is a turn of its own: items take milliseconds, and some take longer than others.
    let numbered = items.par_iter().with_max_len(1).enumerate();
    let done: Vec<Result<U, E>> = numbered.map(|(index, item)| work(index, item)).collect();
    done.into_iter().collect()
}

/// Numbers from 0 to 1, one for each index. Together with those of the other dimensions they fill a space evenly, for
/// a few points as for many. They are multiples of the roots of primes, no two of which ever coincide. Eight
/// dimensions differ.
#[must_use]
pub fn evenly(index: usize, dimension: usize) -> f64 {
    const PRIMES: [f64; 8] = [2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0];
    (0.5 + index as f64 * PRIMES[dimension % PRIMES.len()].sqrt()).fract()
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn results_come_in_the_items_order_and_so_does_the_first_error() {
        let items: Vec<u64> = (0..100).collect();
        let double = |index: usize, item: &u64| {
            assert_eq!(index as u64, *item);
            // The early items take longest.
            std::thread::sleep(std::time::Duration::from_micros(100 - item));
            Ok::<u64, u64>(2 * item)
        };
        assert_eq!(each(&items, double).unwrap(), (0..100).map(|n| 2 * n).collect::<Vec<_>>());
        let odd = |_: usize, item: &u64| if item % 7 == 3 { Err(*item) } else { Ok(*item) };
        assert_eq!(each(&items, odd), Err(3));
        assert_eq!(each(&[] as &[u64], odd), Ok(vec![]));
    }
}

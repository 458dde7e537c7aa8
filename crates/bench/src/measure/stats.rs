//! Order statistics of a few rounds.

/// The summary of a case's rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median of the rounds.
    pub median: f64,
    /// The fastest.
    pub min: f64,
    /// The slowest.
    pub max: f64,
}

impl Summary {
    /// Returns each thread's median, fastest and slowest round, averaged over the threads.
    ///
    /// Averaging like with like keeps min <= median <= max, which the extremes of the rounds'
    /// averages would not.
    ///
    /// # Panics
    /// Panics if there is no thread, or a thread without a round.
    pub fn of_threads(threads: &[Vec<f64>]) -> Summary {
        let mean = |of: &dyn Fn(&[f64]) -> f64| {
            threads.iter().map(|rounds| of(rounds)).sum::<f64>() / threads.len() as f64
        };
        assert!(!threads.is_empty(), "no thread was timed");
        Summary {
            median: mean(&median),
            min: mean(&|rounds| rounds.iter().copied().fold(f64::INFINITY, f64::min)),
            max: mean(&|rounds| rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        }
    }
}

/// Returns the middle value, or the mean of the two middle ones.
///
/// # Panics
/// Panics if there is no value.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "the median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Returns the value below which a share of the values lies, from 0 to 1; interpolated between two neighbours.
///
/// # Panics
/// Panics if there is no value.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    assert!(!values.is_empty(), "a quantile of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_sorted_values() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
    }

    #[test]
    fn quantiles_lie_between_the_ends() {
        let values = [5.0, 1.0, 3.0];
        assert_eq!(
            [0.0, 0.25, 0.5, 1.0].map(|share| quantile(&values, share)),
            [1.0, 2.0, 3.0, 5.0]
        );
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }

    #[test]
    fn one_slow_round_moves_only_the_maximum() {
        let quiet = Summary::of_threads(&[vec![2.0, 2.1, 2.2]]);
        let disturbed = Summary::of_threads(&[vec![2.0, 2.1, 50.0]]);
        assert_eq!((quiet.median, quiet.min), (disturbed.median, disturbed.min));
        assert_eq!(disturbed.max, 50.0);
    }

    #[test]
    fn threads_are_averaged_and_the_order_holds() {
        let summary = Summary::of_threads(&[vec![1.0, 9.0, 1.0], vec![1.0, 1.0, 9.0]]);
        assert_eq!(summary, Summary { median: 1.0, min: 1.0, max: 9.0 });
        let summary = Summary::of_threads(&[vec![1.0, 2.0, 3.0], vec![3.0, 4.0, 5.0]]);
        assert_eq!(summary, Summary { median: 3.0, min: 2.0, max: 4.0 });
    }

    #[test]
    #[should_panic(expected = "the median of nothing")]
    fn nothing_has_no_median() {
        median(&[]);
    }
}

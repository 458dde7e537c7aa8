//! Detects changes of the machine during a series of measurements.
//!
//! A virtual machine's CPUs move about on the host's. The time of a transfer then changes at once, by severalfold,
//! and stays changed for seconds to minutes. That is two modes. A clock that warms up drifts; that is one mode, with
//! wide bounds.

/// Neighbours in order of size that differ by this factor belong to different modes.
const GAP: f64 = 1.35;
/// A mode has at least this share of the measurements; a rarer cluster was a disturbance.
const LEAST: f64 = 0.05;
/// A mode whose measurements differ by more than this factor counts as drifting.
const STEADY: f64 = 1.25;

/// A range of values in which measurements lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mode {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// The number of measurements.
    pub(super) count: usize,
}

impl Mode {
    /// Returns whether a measurement belongs to this mode: it lies within its bounds, or at most their difference
    /// away.
    pub(super) fn holds(&self, value: f64) -> bool {
        let slack = GAP.sqrt();
        self.low / slack <= value && value <= self.high * slack
    }

    /// Returns whether the machine moved slowly while it was in this mode.
    pub(super) fn drifts(&self) -> bool {
        self.high > self.low * STEADY
    }
}

/// Returns the modes of a series, the most frequent first; none for a series without a positive number.
pub(super) fn modes(series: &[f64]) -> Vec<Mode> {
    let mut sorted: Vec<f64> =
        series.iter().copied().filter(|value| value.is_finite() && *value > 0.0).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let least = (LEAST * sorted.len() as f64).ceil().max(if sorted.len() > 4 { 2.0 } else { 1.0 });
    let mut modes: Vec<Mode> = sorted
        .chunk_by(|one, next| next / one < GAP)
        .filter(|chunk| chunk.len() >= least as usize)
        .map(|chunk| Mode {
            median: chunk[chunk.len() / 2],
            low: chunk[0],
            high: chunk[chunk.len() - 1],
            count: chunk.len(),
        })
        .collect();
    modes.sort_by_key(|mode| std::cmp::Reverse(mode.count));
    modes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(middle: f64, count: usize) -> impl Iterator<Item = f64> {
        (0..count).map(move |index| middle * (1.0 + 0.04 * ((index * 7 % 11) as f64 / 10.0 - 0.5)))
    }

    #[test]
    fn a_constant_series_is_one_mode() {
        let modes = modes(&[28.0; 9]);
        assert_eq!(modes, [Mode { median: 28.0, low: 28.0, high: 28.0, count: 9 }]);
        assert!(!modes[0].drifts());
        let noisy: Vec<f64> = around(28.0, 40).collect();
        assert_eq!(super::modes(&noisy).len(), 1);
    }

    #[test]
    fn a_bimodal_series_is_two_modes_however_it_switches() {
        let mut series: Vec<f64> = around(28.0, 20).chain(around(112.0, 12)).collect();
        for rotation in 0..series.len() {
            series.rotate_left(rotation);
            let modes = modes(&series);
            assert_eq!(modes.iter().map(|mode| mode.count).collect::<Vec<_>>(), [20, 12]);
            assert!((modes[0].median / 28.0 - 1.0).abs() < 0.03);
            assert!((modes[1].median / 112.0 - 1.0).abs() < 0.03);
            assert!(modes[0].holds(26.0) && !modes[0].holds(112.0) && !modes[1].holds(28.0));
        }
    }

    #[test]
    fn a_drifting_series_is_one_mode_that_drifts() {
        let series: Vec<f64> = (0..50).map(|index| 25.0 * 1.02f64.powi(index)).collect();
        let modes = modes(&series);
        assert_eq!(modes.len(), 1);
        assert!(modes[0].drifts());
    }

    #[test]
    fn a_single_outlier_is_no_mode() {
        let series: Vec<f64> = around(28.0, 30).chain([900.0]).collect();
        assert_eq!(modes(&series).len(), 1);
        assert_eq!(modes(&[f64::NAN, 0.0, -1.0]), []);
    }
}

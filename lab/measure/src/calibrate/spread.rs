//! A figure over several rounds.

use ledgerline_bench::measure::stats::median;

/// A figure over the rounds: the median, and the bounds of all values but the outer tenths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Returns the spread of values; `None` if no value is a number.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let outer = last / 10;
        Some(Spread { value: median(&sorted), low: sorted[outer], high: sorted[last - outer] })
    }

    /// Returns the spread times a factor.
    pub(super) fn times(self, factor: f64) -> Spread {
        let Spread { value, low, high } = self;
        Spread { value: value * factor, low: low * factor, high: high * factor }
    }

    /// Returns the rest of a whole beyond a share.
    pub(super) fn rest(self) -> Spread {
        Spread { value: 1.0 - self.value, low: 1.0 - self.high, high: 1.0 - self.low }
    }

    /// Returns the same spread, raised to at least `least`.
    pub(super) fn at_least(self, least: f64) -> Spread {
        let Spread { value, low, high } = self;
        Spread { value: value.max(least), low: low.max(least), high: high.max(least) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_leaves_the_outer_tenths_out() {
        let spread = Spread::of((0..=20).map(f64::from).chain([f64::NAN])).unwrap();
        assert_eq!(spread, Spread { value: 10.0, low: 2.0, high: 18.0 });
        assert_eq!(Spread::of([7.0].into_iter()).unwrap().low, 7.0);
        assert_eq!(Spread::of([f64::NAN].into_iter()), None);
    }
}

//! Scales of plots, linear and logarithmic, and their ticks.

/// Maps values to positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Makes a scale over values, from one position to another. It is logarithmic if the values are positive and differ
    /// more than eightfold.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (low, high) = ends(values.filter(|value| value.is_finite())).unwrap_or((0.0, 1.0));
        let logarithmic = low > 0.0 && high > 8.0 * low;
        let scale = Scale { low, high, from, to, logarithmic };
        if logarithmic {
            let room = (high / low).powf(0.03);
            Scale { low: low / room, high: high * room, ..scale }
        } else {
            // The least range keeps the noise of nearly constant values small.
            let room = (0.05 * (high - low)).max(0.02 * high.abs()).max(0.01);
            Scale { low: low - room, high: high + room, ..scale }
        }
    }

    /// Makes a logarithmic scale with its ends at the values' own.
    pub(super) fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Scale {
        Scale { low, high: high.max(1.01 * low), from, to, logarithmic: true }
    }

    /// Returns the title of its axis.
    pub(super) fn title(&self, of: &str) -> String {
        if self.logarithmic { format!("{of} (logarithmic)") } else { of.to_owned() }
    }

    /// Returns the position of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low * 1e-3) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share
    }

    /// Returns the value at a position of a logarithmic scale.
    pub(super) fn value(&self, place: f64) -> f64 {
        let share = (place - self.from) / (self.to - self.from);
        self.low * (self.high / self.low).powf(share)
    }

    /// Returns round values for labels.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.high / self.low).log10();
            let steps: &[f64] = if decades < 1.5 {
                &[1.0, 2.0, 3.0, 5.0, 7.0]
            } else if decades < 3.0 {
                &[1.0, 2.0, 5.0]
            } else {
                &[1.0]
            };
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            let all = (first..=last)
                .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            return all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|&step| step >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

/// Returns the least and the greatest value; `None` without values.
pub(super) fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let ends = values.map(|value| (value, value));
    ends.reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_few_and_inside() {
        let cases = [
            (342.0, 862.0),
            (-42.0, 0.1),
            (2520.0, 21_695.0),
            (6545.0, 672_960.0),
            (5.0, 5.0),
            (0.0, 0.0),
        ];
        for (low, high) in cases {
            let scale = Scale::over([low, high].into_iter(), 100.0, 700.0);
            let ticks = scale.ticks();
            assert!((2..=9).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            for tick in ticks {
                assert!((100.0..=700.0).contains(&scale.at(tick)), "{low} {high}: {tick}");
            }
            assert!(scale.at(low) > 100.0 && scale.at(high) < 700.0);
        }
        assert_eq!(Scale::over([f64::NAN].into_iter(), 0.0, 1.0).ticks().len(), 6);
    }

    #[test]
    fn a_logarithmic_scale_finds_the_value_at_a_place() {
        let scale = Scale::logarithmic(2.0, 2048.0, 100.0, 700.0);
        assert!(
            [2.0, 64.0, 2048.0]
                .iter()
                .all(|&value| (scale.value(scale.at(value)) / value - 1.0).abs() < 1e-9)
        );
    }
}

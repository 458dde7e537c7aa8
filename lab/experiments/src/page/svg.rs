//! What plots are drawn with: text that is safe in a page, scales, ticks.

use std::fmt::Write as _;

/// Units of every plot from left to right.
pub(super) const WIDTH: f64 = 760.0;

/// Text between tags or in an attribute.
pub(super) fn escaped(text: &str) -> String {
    html_escape::encode_double_quoted_attribute(text).replace(char::is_control, " ")
}

/// A sentence in which names stand between backticks.
pub(super) fn prose(text: &str) -> String {
    let escaped = escaped(text);
    let mut out = String::new();
    for (number, part) in escaped.split('`').enumerate() {
        let code = number % 2 == 1;
        out += if code { "<code>" } else { "" };
        out += part;
        out += if code { "</code>" } else { "" };
    }
    out
}

/// A drawing of a height, that says what it shows to who cannot see it.
pub(super) fn drawing(height: f64, says: &str, body: &str) -> String {
    format!(
        "<div class=\"plot\"><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">{body}</svg></div>\n",
        escaped(says)
    )
}

/// A word at a place; `anchor` is `start`, `middle` or `end`.
pub(super) fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, word: &str) {
    let word = escaped(word);
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{word}</text>"
    );
}

/// A line from here to there.
pub(super) fn line(out: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = write!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
    );
}

/// A rectangle.
pub(super) fn area(out: &mut String, x: f64, y: f64, size: (f64, f64), class: &str) {
    let (width, height) = size;
    let _ = write!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
    );
}

/// How a value is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Filled: said by the simulation, or measured.
    Dot,
    /// Hollow: published.
    Diamond,
}

/// A mark, with what a pointer that rests on it is told.
pub(super) fn mark(out: &mut String, x: f64, y: f64, shape: Shape, class: &str, says: &str) {
    let says = escaped(says);
    let _ = match shape {
        Shape::Dot => write!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\" class=\"{class} filled\"><title>{says}</title></circle>"
        ),
        Shape::Diamond => write!(
            out,
            "<path d=\"M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z\" class=\"{class} hollow\"><title>{says}</title></path>",
            y - 5.5
        ),
    };
}

/// Values on a stretch of a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Over values, from one place to another; logarithmic where they are positive and differ more than
    /// eightfold.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let logarithmic = low > 0.0 && high > 8.0 * low;
        let scale = Scale { low, high, from, to, logarithmic };
        if logarithmic {
            let room = (high / low).powf(0.03);
            Scale { low: low / room, high: high * room, ..scale }
        } else {
            // What hardly varies shall not fill the plot with its noise.
            let room = (0.05 * (high - low)).max(0.02 * high.abs()).max(0.01);
            Scale { low: low - room, high: high + room, ..scale }
        }
    }

    /// The same, logarithmic, with its ends at the values' own.
    pub(super) fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Scale {
        Scale { low, high: high.max(1.01 * low), from, to, logarithmic: true }
    }

    /// Where a value lies.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low * 1e-3) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share
    }

    /// Round values to write beside it.
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

/// A round number, short: thousands as k, millions as M.
pub(super) fn round(value: f64) -> String {
    let size = value.abs();
    let short = |value: f64, unit: &str| format!("{}{unit}", (value * 10.0).round() / 10.0);
    if size >= 1e6 {
        short(value / 1e6, "M")
    } else if size >= 10_000.0 {
        short(value / 1e3, "k")
    } else {
        format!("{}", (value * 1000.0).round() / 1000.0)
    }
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
    fn names_cannot_break_the_page() {
        assert_eq!(escaped("a<b>&\"c\"\n"), "a&lt;b&gt;&amp;&quot;c&quot; ");
    }

    #[test]
    fn names_between_backticks_are_code() {
        assert_eq!(prose("a `b` & `c"), "a <code>b</code> &amp; <code>c</code>");
    }

    #[test]
    fn ticks_are_written_short() {
        assert_eq!(
            [0.2, 799.0, 9000.0, 10_000.0, 1.5e6].map(round),
            ["0.2", "799", "9000", "10k", "1.5M"]
        );
    }
}

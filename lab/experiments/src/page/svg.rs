//! Shapes for plots, and escaped text for a page.

use std::fmt::Write as _;

/// The width of every plot.
pub(super) const WIDTH: f64 = 760.0;

/// Escapes text for use between tags or in an attribute.
pub(super) fn escaped(text: &str) -> String {
    html_escape::encode_double_quoted_attribute(text).replace(char::is_control, " ")
}

/// Converts a sentence in which names stand between backticks.
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

/// Returns a drawing of a height. `says` describes it for screen readers.
pub(super) fn drawing(height: f64, says: &str, body: &str) -> String {
    format!(
        "<div class=\"plot\"><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">{body}</svg></div>\n",
        escaped(says)
    )
}

/// Draws a word at a place; `anchor` is `start`, `middle` or `end`.
pub(super) fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, word: &str) {
    let word = escaped(word);
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{word}</text>"
    );
}

/// Draws a line.
pub(super) fn line(out: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = write!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
    );
}

/// Draws a rectangle.
pub(super) fn area(out: &mut String, x: f64, y: f64, size: (f64, f64), class: &str) {
    let (width, height) = size;
    let _ = write!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
    );
}

/// The shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Filled: simulated or measured.
    Dot,
    /// Hollow: published.
    Diamond,
}

/// Draws a mark with a tooltip.
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

/// Formats a round number, with k for thousands and M for millions.
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

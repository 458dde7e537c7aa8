//! Advice as text, as JSON, and the proposed order as a sketch of the source.

mod json;
mod sketch;
mod text;

pub use json::json;
pub use sketch::{Language, sketch};
pub use text::text;

use ledgerline_coherence::experiments::Interval;

use crate::cost::Question;

/// What is printed beside the advice itself.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Where it was predicted.
    pub question: &'a Question<'a>,
    /// Where the profile comes from.
    pub profile: &'a str,
    /// Bytes of a line in the table: 64, or 128 for pairs.
    pub line: u64,
    /// Whether colours are written.
    pub colour: bool,
}

/// A figure with as many digits as matter.
#[must_use]
pub fn figure(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 0.05 => format!("{value:.1}"),
        size if size >= 0.005 => format!("{value:.2}"),
        _ => "0".to_owned(),
    };
    if text.trim_start_matches('-').chars().all(|digit| matches!(digit, '0' | '.')) {
        "0".to_owned()
    } else {
        text
    }
}

/// A median and its range.
#[must_use]
pub fn range(interval: &Interval) -> String {
    let (low, high) = (figure(interval.low), figure(interval.high));
    let median = figure(interval.median);
    if low == high { median } else { format!("{median} ({low} .. {high})") }
}

/// The range of what is gained: that of a loss, with the sign turned.
#[must_use]
pub fn negated(interval: &Interval) -> Interval {
    Interval { median: -interval.median, low: -interval.high, high: -interval.low }
}

#[cfg(test)]
mod tests;

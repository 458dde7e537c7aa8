//! Prints advice as text or as JSON, and the proposed order as a sketch of the source.

mod json;
mod sketch;
mod text;

pub use json::json;
pub use sketch::{Language, sketch};
pub use text::text;

use ledgerline_coherence::experiments::Interval;

use crate::cost::Question;

/// Input of the printers besides the advice.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The question that was answered.
    pub question: &'a Question<'a>,
    /// The source of the profile.
    pub profile: &'a str,
    /// Bytes of a line in the table: 64, or 128 for pairs.
    pub line: u64,
    /// Whether to use colours.
    pub colour: bool,
}

/// Formats a figure with the significant digits.
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

/// Formats a median and its range.
#[must_use]
pub fn range(interval: &Interval) -> String {
    let (low, high) = (figure(interval.low), figure(interval.high));
    let median = figure(interval.median);
    if low == high { median } else { format!("{median} ({low} .. {high})") }
}

/// Returns the range of a gain from that of a loss, with the sign reversed.
#[must_use]
pub fn negated(interval: &Interval) -> Interval {
    Interval { median: -interval.median, low: -interval.high, high: -interval.low }
}

#[cfg(test)]
mod tests;

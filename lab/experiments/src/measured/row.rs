//! One variant of an experiment, measured here.

use ledgerline_bench::measure::stats::quantile;
use ledgerline_coherence::experiments::Interval;

/// The measurement of a variant. A figure is the median of the rounds or passes, between the lower and upper quartiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// Its name in `ledgerline_coherence::experiments`.
    pub(crate) row: String,
    /// The unit of the three figures.
    pub(crate) unit: &'static str,
    /// The variant that the document starts from.
    pub(crate) before: Option<Interval>,
    /// This row's variant.
    pub(crate) after: Option<Interval>,
    /// The same job, done by this library.
    pub(crate) ours: Option<Interval>,
    /// The time to move a cache line between two CPUs during the measurement; `None` if no line was made to move.
    pub(crate) transfer_ns: Option<f64>,
    /// Caveats about the figures.
    pub(crate) notes: Vec<Note>,
}

/// A caveat about figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// About all rows of the table, or of the row's group if it has one.
    Table(String),
    /// About the row.
    Row(String),
    /// The difference between before and after is not significant.
    Same,
    /// Times to move a cache line, in nanoseconds: the machine changed during the measurement.
    Moved { low: f64, high: f64 },
    /// The share of the time in which other programs had the CPUs.
    Waited(f64),
}

impl Note {
    /// Returns the note as text.
    pub(crate) fn says(&self) -> String {
        match self {
            Note::Table(text) | Note::Row(text) => text.clone(),
            Note::Same => "no difference between before and after can be told".to_owned(),
            Note::Moved { low, high } => {
                format!(
                    "a line took {low:.0} to {high:.0} ns to move: the machine changed meanwhile"
                )
            }
            Note::Waited(part) => {
                format!("others had the CPUs for up to {:.0} % of the time", part * 100.0)
            }
        }
    }

    /// Merges two notes of several rows that have the same meaning; `None` if they differ.
    pub(crate) fn and(&self, other: &Note) -> Option<Note> {
        match (self, other) {
            (Note::Moved { low, high }, Note::Moved { low: other_low, high: other_high }) => {
                Some(Note::Moved { low: low.min(*other_low), high: high.max(*other_high) })
            }
            (Note::Waited(part), Note::Waited(other)) => Some(Note::Waited(part.max(*other))),
            (one, other) => (one == other).then(|| one.clone()),
        }
    }
}

impl Measured {
    /// Returns whether it has a figure.
    pub(crate) fn has_figures(&self) -> bool {
        self.designs().iter().any(|(_, figure)| figure.is_some())
    }

    /// Joins all notes in one line; `None` if there are none.
    pub(crate) fn note(&self) -> Option<String> {
        let says: Vec<String> = self.notes.iter().map(Note::says).collect();
        (!says.is_empty()).then(|| says.join("; "))
    }

    /// Returns the three figures with their names.
    pub(crate) fn designs(&self) -> [(&'static str, Option<Interval>); 3] {
        [("before", self.before), ("after", self.after), ("ours", self.ours)]
    }
}

/// Returns the median and the quartiles of rounds or passes. There must be at least one.
pub(super) fn quartiles(values: &[f64]) -> Interval {
    let [low, median, high] = [0.25, 0.5, 0.75].map(|share| quantile(values, share));
    Interval { median, low, high }
}

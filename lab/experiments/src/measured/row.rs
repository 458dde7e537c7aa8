//! One variant of an experiment, measured here.

use ledgerline_bench::measure::stats::quantile;
use ledgerline_coherence::experiments::Interval;

/// What was measured of a variant. A figure is the median of the rounds or passes, between the quarters' ends:
/// half of them lie there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// As `ledgerline_coherence::experiments` names it.
    pub(crate) row: String,
    /// Of the three figures.
    pub(crate) unit: &'static str,
    /// The variant that the document starts from.
    pub(crate) before: Option<Interval>,
    /// This row's variant.
    pub(crate) after: Option<Interval>,
    /// The same job, done by this library.
    pub(crate) ours: Option<Interval>,
    /// What moving a cache line between two CPUs took meanwhile; none where none was made to move.
    pub(crate) transfer_ns: Option<f64>,
    /// What a reader must know to judge the figures.
    pub(crate) notes: Vec<Note>,
}

/// What a reader must know to judge figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// Of all rows of the table, or of the row's group where it has one.
    Table(String),
    /// Of the row.
    Row(String),
    /// No difference between before and after can be told.
    Same,
    /// How long a cache line took to move, in nanoseconds: the machine changed meanwhile.
    Moved { low: f64, high: f64 },
    /// The part of the time for which others had the CPUs.
    Waited(f64),
}

impl Note {
    /// In words.
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

    /// One note for two that say the same of several rows; none for two that do not.
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
    /// Whether it came to a figure.
    pub(crate) fn has_figures(&self) -> bool {
        self.designs().iter().any(|(_, figure)| figure.is_some())
    }

    /// All notes in one line; none where there are none.
    pub(crate) fn note(&self) -> Option<String> {
        let says: Vec<String> = self.notes.iter().map(Note::says).collect();
        (!says.is_empty()).then(|| says.join("; "))
    }

    /// The three figures with their names.
    pub(crate) fn designs(&self) -> [(&'static str, Option<Interval>); 3] {
        [("before", self.before), ("after", self.after), ("ours", self.ours)]
    }
}

/// The median and the quarters' ends of rounds or passes, which are not none.
pub(super) fn quartiles(values: &[f64]) -> Interval {
    let [low, median, high] = [0.25, 0.5, 0.75].map(|share| quantile(values, share));
    Interval { median, low, high }
}

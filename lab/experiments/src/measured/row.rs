//! One variant of an experiment, measured here.

use ledgerline_coherence::experiments::Interval;
use ledgerline_measure::stats::quantile;

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
    pub(crate) note: Option<String>,
}

impl Measured {
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

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Short rounds: whether it works, not how fast.
    pub(crate) quick: bool,
}

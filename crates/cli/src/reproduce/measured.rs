//! What is measured here for real: the documents' older and newer designs, and ours.

/// A measured figure: the median of the rounds, and their spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// One variant of an experiment, measured here.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// As `ledgerline_coherence::experiments` names it.
    pub(super) row: String,
    /// Of the three figures.
    pub(super) unit: &'static str,
    /// The variant that the document starts from.
    pub(super) before: Option<Figure>,
    /// This row's variant.
    pub(super) after: Option<Figure>,
    /// The same job, done by this library.
    pub(super) ours: Option<Figure>,
    /// What moving a cache line between two CPUs took meanwhile; none where no line was made to move.
    pub(super) transfer_ns: Option<f64>,
    /// What a reader must know to judge the figures.
    pub(super) note: Option<String>,
}

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Short rounds: whether it works, not how fast.
    pub(super) quick: bool,
}

/// Measures an experiment, and tells `progress` where it stands.
///
/// # Errors
/// A line for the user: no such experiment, or it cannot be measured here at all.
pub(super) fn measure(
    experiment: &str,
    request: &Request,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Measured>, String> {
    let _ = (request, progress);
    Err(format!("nothing is measured for {experiment} yet"))
}

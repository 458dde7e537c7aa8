//! The cost of one refresh.

use crate::serve::api::Groups;
use crate::serve::changes::{By, Changed};
use crate::serve::metrics;
use crate::serve::settings::Settings;
use crate::serve::watched::Ledgers;
use std::path::Path;
use std::time::{Duration, Instant};

/// The parts of one refresh, and the sizes of its results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refresh {
    /// The look at the ledger, with rates and history.
    pub look: Duration,
    /// The changes, as the event that the page reads.
    pub event: Duration,
    /// All groups as JSON.
    pub json: Duration,
    /// All metrics.
    pub metrics: Duration,
    /// The bytes of the event, of the JSON, and of the metrics.
    pub bytes: [usize; 3],
}

/// Makes refreshes in a row, and calls `pause` between them.
///
/// # Errors
/// The ledger cannot be opened.
pub fn refreshes(
    file: &Path,
    rounds: usize,
    mut pause: impl FnMut(),
) -> Result<Vec<Refresh>, String> {
    let named = Some(vec![file.display().to_string()]);
    let settings = Settings { named, interval: Duration::ZERO, ..Settings::default() };
    let ledgers = Ledgers::open(&settings)?;
    let ledger = &ledgers.all()[0];
    let mut before = ledger.anew();
    let mut refreshes = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        pause();
        let mut refresh = Refresh::default();
        let frame = timed(&mut refresh.look, || ledger.anew());
        let event =
            timed(&mut refresh.event, || Changed::between(&before, &frame).event(By::Field));
        let json = timed(&mut refresh.json, || {
            serde_json::to_string(&Groups::of(ledger.id, &ledger.title, &frame))
        });
        let metrics =
            timed(&mut refresh.metrics, || metrics::of_frames([(ledger.clone(), frame.clone())]));
        let json = json.map_err(|error| error.to_string())?;
        let metrics = metrics.map_err(|error| error.to_string())?;
        refresh.bytes = [event.text.len(), json.len(), metrics.len()];
        refreshes.push(refresh);
        before = frame;
    }
    Ok(refreshes)
}

fn timed<T>(time: &mut Duration, work: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let done = work();
    *time = since.elapsed();
    done
}

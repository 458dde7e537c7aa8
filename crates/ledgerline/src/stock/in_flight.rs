//! Idle units on their way between the counters and a cell.

use crate::table::path::RowPath;

/// Idle units on their way between the counters and a cell, noted at every level: who is about to
/// be refused there waits for them to be put away (I2), and a reader counts them as idle (I4).
pub(super) struct InFlight<'p> {
    path: &'p RowPath<'p>,
    units: u64,
}

impl<'p> InFlight<'p> {
    pub(super) fn new(path: &'p RowPath<'_>, units: u64) -> Self {
        // The root first and last, as walks do: an ancestor has noted what those below it have.
        for counter in path.counters().iter().rev() {
            counter.track.in_flight.add(units);
        }
        InFlight { path, units }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        for counter in self.path.counters() {
            counter.track.in_flight.take(self.units);
        }
    }
}

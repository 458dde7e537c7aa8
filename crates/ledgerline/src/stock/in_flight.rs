//! Idle units in flight between the counters and a cell.

use crate::table::path::RowPath;

/// Idle units in flight between the counters and a cell, noted at every level. A charge that is about to be
/// refused waits until they are in the cell (I2), and a reader counts them as idle (I4).
pub(super) struct InFlight<'p> {
    path: &'p RowPath<'p>,
    pub(super) units: u64,
}

impl<'p> InFlight<'p> {
    pub(super) fn new(path: &'p RowPath<'_>, units: u64) -> Self {
        // The root is first here and last in `drop`, as in walks, so an ancestor always notes at least the
        // units of the levels below it.
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

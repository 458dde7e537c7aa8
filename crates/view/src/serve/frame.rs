//! One look at a ledger with its rates, shared by all requests.

use crate::watch::{Look, Rates, Row, State};
use ledgerline::GroupId;
use std::collections::HashMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// One look at a ledger.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The number of the look; the first is 1.
    pub(crate) number: u64,
    pub(crate) look: Look,
    /// The rates of each row.
    pub(crate) rates: Vec<Rates>,
    /// The index of each row's parent; the root's is its own.
    pub(crate) parents: Vec<usize>,
    /// The index of each group.
    pub(crate) places: HashMap<GroupId, usize>,
    /// The time of the look, by this process's clock.
    pub(crate) taken: Instant,
    /// The time that the look took.
    pub(crate) took: Duration,
}

impl Frame {
    pub(crate) fn new(
        number: u64,
        look: Look,
        rates: Vec<Rates>,
        taken: Instant,
        took: Duration,
    ) -> Frame {
        let parents = look.parents();
        let places = look.rows.iter().enumerate().map(|(place, row)| (row.id, place)).collect();
        Frame { number, look, rates, parents, places, taken, took }
    }

    /// Returns the time of the look, in seconds since 1970.
    pub(crate) fn at(&self) -> f64 {
        let at = self.look.at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        (at.as_secs_f64() * 1e3).round() / 1e3
    }

    /// Returns a group by its number, like `3#2`, or by its path.
    pub(crate) fn find(&self, group: &str) -> Option<&Row> {
        let by_number = group.split_once('#').and_then(|(index, generation)| {
            let id = GroupId::from_parts(index.parse().ok()?, generation.parse().ok()?);
            self.places.get(&id).map(|&place| &self.look.rows[place])
        });
        by_number.or_else(|| self.look.rows.iter().find(|row| row.path == group))
    }
}

/// Returns the units that a group holds now: none once its process has ended. The row of an ended one has its last
/// holding.
pub(crate) fn holds(row: &Row) -> u64 {
    if row.state == State::Live { row.current } else { 0 }
}

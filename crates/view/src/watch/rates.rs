//! The changes from one look to the next, per second.

use crate::watch::{Counts, Look, Row};
use ledgerline::GroupId;
use std::collections::HashMap;
use std::time::Duration;

/// The changes of a group between two looks, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Units that it grew by; negative if it shrank.
    pub growth: f64,
    /// The counts.
    pub counts: Counts<f64>,
}

/// The state of a row that is kept until the next look.
#[derive(Clone, Copy, Debug)]
struct Before {
    current: u64,
    counts: Counts,
}

/// Computes rates from successive looks at one ledger.
#[derive(Debug, Default)]
pub struct Tempo {
    clock: Option<Duration>,
    before: HashMap<GroupId, Before>,
}

impl Tempo {
    /// Makes one that has seen no look yet.
    pub fn new() -> Tempo {
        Tempo::default()
    }

    /// Returns the rates of each row of `look` since the previous look, in the rows' order. A group that did not exist
    /// then, and every group of the first look, has zeros: its earlier changes may not have happened in this time.
    pub fn rates(&mut self, look: &Look) -> Vec<Rates> {
        let passed = self.clock.and_then(|before| look.clock.checked_sub(before));
        let seconds = passed.map(|passed| passed.as_secs_f64()).filter(|&seconds| seconds > 0.0);
        let rates = look.rows.iter().map(|row| match (seconds, self.before.get(&row.id)) {
            (Some(seconds), Some(before)) => before.rates(row, seconds),
            _ => Rates::default(),
        });
        let rates = rates.collect();
        self.clock = Some(look.clock);
        self.before.clear();
        let before = |row: &Row| Before { current: row.current, counts: row.counts };
        self.before.extend(look.rows.iter().map(|row| (row.id, before(row))));
        rates
    }
}

impl Before {
    fn rates(self, row: &Row, seconds: f64) -> Rates {
        // A count that fell was overwritten, or read while it was folded into another row.
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Rates {
            growth: (row.current as f64 - self.current as f64) / seconds,
            counts: self.counts.zip(row.counts, rate),
        }
    }
}

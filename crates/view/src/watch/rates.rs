//! What changed from one look to the next, by the second.

use crate::watch::{Counts, Look, Row};
use ledgerline::GroupId;
use std::collections::HashMap;
use std::time::Duration;

/// What a group did between two looks, by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Units that it grew by; negative where it shrank.
    pub growth: f64,
    /// What was counted.
    pub counts: Counts<f64>,
}

/// What is kept of a row until the next look.
#[derive(Clone, Copy, Debug)]
struct Before {
    current: u64,
    counts: Counts,
}

/// Makes rates out of successive looks at one ledger.
#[derive(Debug, Default)]
pub struct Tempo {
    clock: Option<Duration>,
    before: HashMap<GroupId, Before>,
}

impl Tempo {
    /// One that has seen no look yet.
    pub fn new() -> Tempo {
        Tempo::default()
    }

    /// The rates of each row of `look` since the look before, in the rows' order. A group that was not there then, and
    /// every group of the first look, has zeros: what it did before is not known to have happened in this time.
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
        // (A count that fell was written over, or read while it was folded into another row.)
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Rates {
            growth: (row.current as f64 - self.current as f64) / seconds,
            counts: self.counts.zip(row.counts, rate),
        }
    }
}

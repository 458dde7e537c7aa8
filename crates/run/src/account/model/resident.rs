//! The resident memory of a run.

use super::{Account, Row};
use ledgerline::container::UNTRACKED;

/// The resident memory of a run whose limit counts that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// The limit; `None` is no limit.
    pub limit: Option<u64>,
    /// The most bytes that were seen in all processes together.
    pub peak: u64,
    /// When that went above the limit, in milliseconds of `CLOCK_MONOTONIC`, with the bytes that were seen then.
    pub closings: Vec<(u64, u64)>,
}

impl Resident {
    /// Returns the bytes that were resident when a request was refused at that time.
    #[must_use]
    pub fn at(&self, time: u64) -> Option<u64> {
        let before = self.closings.iter().rev().find(|(closed, _)| *closed <= time);
        before.or(self.closings.first()).map(|&(_, bytes)| bytes)
    }
}

impl Account {
    /// Returns a bound on the resident memory of all processes together: the sum of their peaks, if each is known.
    pub fn most_resident(&self) -> Option<u64> {
        let processes: Vec<&Row> =
            self.rows.iter().filter(|row| row.depth == 1 && row.name != UNTRACKED).collect();
        match processes[..] {
            [] => None,
            // A process that a signal killed has noted none, but the kernel tells the largest.
            [one] if one.counted.processes <= 1 => one.resident.max(self.max_resident),
            _ if !self.not_accounted.is_empty() => None,
            _ => processes.iter().try_fold(0u64, |sum, row| {
                Some(sum.saturating_add(row.resident?.saturating_mul(row.counted.processes.max(1))))
            }),
        }
    }
}

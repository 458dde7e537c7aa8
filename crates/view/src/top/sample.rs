//! Looks for tests, with fixed numbers.

use crate::watch::{Counts, ItemName, Look, Row};
use ledgerline::GroupId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, UNIX_EPOCH};

/// Returns a live group with a holding. Its number is derived from its path.
pub fn row(path: &str, current: u64) -> Row {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let row = Row::new(GroupId::from_parts(hasher.finish() as u32, 2), path);
    let program = row.name.split('.').next().unwrap_or_default().to_owned();
    let counts = Counts { charges: 10, uncharges: 4, ..row.counts };
    Row { program, current, peak: current, counts, ..row }
}

/// Returns a look at groups, taken at time zero.
pub fn look(rows: Vec<Row>) -> Look {
    Look {
        at: UNIX_EPOCH,
        clock: Duration::ZERO,
        unit: "bytes",
        steady: true,
        damaged: false,
        rows,
    }
}

/// Returns a look at three tenants.
pub fn tenants() -> Look {
    const M: u64 = 1 << 20;
    let mut rows = vec![
        row("/", 700 * M),
        row("/acme", 300 * M),
        row("/acme/q1", 100 * M),
        row("/acme/q2", 200 * M),
        row("/bolt", 400 * M),
        row("/bolt/q3", 390 * M),
        row("/cone", 0),
    ];
    rows[0].max = Some(1024 * M);
    rows[4].max = Some(410 * M);
    rows[4].high = Some(350 * M);
    rows[4].low = 16 * M;
    rows[4].peak = 409 * M;
    rows[4].counts.refused = 7;
    rows[4].counts.max_events = 7;
    rows[4].items = vec![(ItemName::from("rows_read"), 1234), (ItemName::from("spilled"), -5)];
    look(rows)
}

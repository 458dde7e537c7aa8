//! Synthetic looks.

use ledgerline::GroupId;
use ledgerline_view::report::Settings;
use ledgerline_view::watch::{Counts, Look, Row};
use std::time::{Duration, UNIX_EPOCH};

/// The time from one look to the next.
pub const EVERY: Duration = Duration::from_millis(100);

pub fn settings(size: u64) -> Settings {
    Settings { title: "a job".to_owned(), every: EVERY, size }
}

/// Returns the look with a number: the root and nine groups, which all change.
pub fn look(number: u32) -> Look {
    let row = |index: u32| {
        let path = if index == 0 { "/".to_owned() } else { format!("/group.{index}") };
        Row {
            pid: index,
            program: "group".to_owned(),
            current: u64::from(number.wrapping_mul(2_654_435_761) >> index),
            peak: u64::from(u32::MAX),
            counts: Counts { charges: number.into(), refused: number.into(), ..Counts::default() },
            ..Row::new(GroupId::from_parts(index, 1), &path)
        }
    };
    Look {
        at: UNIX_EPOCH,
        clock: EVERY * number,
        unit: "bytes",
        steady: true,
        damaged: false,
        rows: (0..10).map(row).collect(),
    }
}

//! Collects and reads what a group and its subtree counted.

use super::drain;
use crate::gate::lock;
use crate::table::id::GroupId;
use crate::table::sums::total_words;
use crate::table::{Table, collect, follow};

/// How often a reader tries for a reading that no other process's collection disturbs.
const TRIES: usize = 1000;

/// What a group counted, then its subtree, word by word (`table/sums.rs`): zeros, if it is gone.
pub(crate) fn of(table: &Table, id: GroupId) -> Vec<i64> {
    let none = || vec![0; total_words(table.plan.items)];
    follow::read(table, id, |_| collected(table, id.index(), none())).unwrap_or_else(none)
}

/// Collects what changed, and reads the totals of a row.
fn collected(table: &Table, index: u32, mut totals: Vec<i64>) -> Vec<i64> {
    let _pass = lock::pass();
    drain::subtree(table, index);
    let held = lock::lock();
    if let Some(held) = &held {
        collect::collect(table, held);
    }
    // Another process may be collecting; one that was killed in the middle never ends.
    for _ in 0..TRIES {
        let before = table.collections();
        collect::read_totals(table, index, &mut totals);
        if before.is_some() && table.collections() == before {
            break;
        }
    }
    totals
}

//! Collects and reads what a group and its subtree counted.

use super::drain;
use crate::gate::lock;
use crate::sync::{AtomicU64, Ordering, wait_a_turn};
use crate::table::id::GroupId;
use crate::table::sums::total_words;
use crate::table::{Table, collect, follow};

/// How often a reader tries for a reading that no other process's collection disturbs.
const TRIES: usize = 100;
/// How long it waits for the end of one before each try.
const TURNS: u32 = 1000;
/// The collection for whose end a reader waited in vain, as [`Table::collections_word`] names it: its process was killed
/// in the middle, or another program wrote over the numbers. Who reads a thousand groups does not wait a thousand
/// times. (Relaxed: it orders nothing.)
static ENDLESS: AtomicU64 = AtomicU64::new(0);

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
    for _ in 0..TRIES {
        let before = quiet(table);
        collect::read_totals(table, index, &mut totals);
        if before.is_none() || table.collections() == before {
            break;
        }
    }
    totals
}

/// Waits while another process collects. `None` if that does not end.
fn quiet(table: &Table) -> Option<u64> {
    for turn in 0..TURNS {
        if let Some(quiet) = table.collections() {
            return Some(quiet);
        }
        if ENDLESS.load(Ordering::Relaxed) == table.collections_word() {
            return None;
        }
        wait_a_turn(turn);
    }
    ENDLESS.store(table.collections_word(), Ordering::Relaxed);
    None
}

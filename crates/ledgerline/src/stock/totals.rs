//! Collects and reads the counts of a group and its subtree.

use super::drain;
use crate::counter::changes::Changes;
use crate::gate::lock::{self, Held};
use crate::sync::{AtomicU64, Ordering, wait_a_turn};
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::sums::total_words;
use crate::table::{Table, collect, follow};

/// How often a reader tries to read without a disturbance by another process's collection.
const TRIES: usize = 100;
/// How many turns it waits for the end of a collection before each try.
const TURNS: u32 = 1000;
/// The collection, as `Moves::word` names it, for whose end a reader waited in vain: its process was killed in the
/// middle, or another program wrote over the numbers. With this, a reader of a thousand groups does not wait a thousand
/// times. Relaxed: it orders nothing.
static ENDLESS: AtomicU64 = AtomicU64::new(0);

/// Returns the counts of a group, then those of its subtree, word by word (`table/sums.rs`): zeros, if it is gone.
pub(crate) fn of(table: &Table, id: GroupId) -> Vec<i64> {
    let none = || vec![0; total_words(table.plan.items)];
    follow::read(table, id, |_| collected(table, id.index(), none())).unwrap_or_else(none)
}

/// Collects the changes, and reads the totals of a row.
fn collected(table: &Table, index: u32, mut totals: Vec<i64>) -> Vec<i64> {
    let _pass = lock::pass();
    drain::subtree(table, index);
    let held = lock::lock();
    if let Some(held) = &held {
        take_changes(table, held);
        collect::collect(table, held);
    }
    steadily(table, || collect::read_totals(table, index, &mut totals));
    totals
}

/// Reads until no other process's collection was in between, at most `TRIES` times.
fn steadily<T>(table: &Table, mut read: impl FnMut() -> T) -> T {
    for _ in 1..TRIES {
        let before = quiet(table);
        let seen = read();
        if before.is_none() || table.collections().quiet() == before {
            return seen;
        }
    }
    read()
}

/// Collects the changes of limits of this process's rows, for [`changes`]: moves them to the totals. The rows stay among
/// the changed ones, and no cell is closed.
pub(crate) fn collect_changes(table: &Table) {
    let _pass = lock::pass();
    if let Some(held) = lock::lock() {
        take_changes(table, &held);
    }
}

fn take_changes(table: &Table, _held: &Held) {
    let _under_way = table.collections().begin();
    for column in 0..table.columns.count() {
        for row in table.changed(column).iter().filter(|&row| row < table.capacity()) {
            let counter = &table.row(row).counter;
            if !table.is_mine(row) || counter.uncollected() == Changes::default() {
                continue;
            }
            // A group that ends meanwhile hands them to its parent. The row is held, so that it is not reused for a
            // group with other ancestors.
            follow::change(table, table.id(row), |_| {
                if let Some(path) = RowPath::new(table, row) {
                    collect::add_changes(table, &path, counter.take_uncollected());
                }
            });
        }
    }
}

/// Returns how often limits of a group and its subtree were changed, as of the last collection; zero if the group is
/// gone. It drains nothing and closes no cell.
pub(crate) fn changes(table: &Table, id: GroupId) -> u64 {
    let read = |_: &_| steadily(table, || collect::read_changes(table, id.index()));
    follow::read(table, id, read).unwrap_or(0)
}

/// Waits while a thread collects. Returns `None` if the collection does not end.
pub(crate) fn quiet(table: &Table) -> Option<u64> {
    for turn in 0..TURNS {
        if let Some(quiet) = table.collections().quiet() {
            return Some(quiet);
        }
        if ENDLESS.load(Ordering::Relaxed) == table.collections().word() {
            return None;
        }
        wait_a_turn(turn);
    }
    ENDLESS.store(table.collections().word(), Ordering::Relaxed);
    None
}

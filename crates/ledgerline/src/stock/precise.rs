//! Reads the exact charge of a group: its usage without idle units.

use super::drain;
use crate::gate::lock::{self, GATE};
use crate::percpu::{thread_cache, word};
use crate::sync::{Ordering, fence};
use crate::table::id::GroupId;
use crate::table::path::{RowPath, leads_through};
use crate::table::{Table, follow, thread_caches};

/// How often a reader tries for an undisturbed reading before it stops the writers for one.
const TRIES: usize = 32;
/// How often it tries to stop them: several readers and a fork may want that at the same time.
const ROUNDS: usize = 16;

/// Like [`Group::precise`](crate::Group::precise), but for a group that may have been destroyed and still holds
/// units.
pub(crate) fn held_by(table: &Table, id: GroupId) -> u64 {
    follow::read_held(table, id, |_| exactly(table, id.index())).unwrap_or(0)
}

/// Like [`Group::precise`](crate::Group::precise), but for a row, whichever group has it.
pub(crate) fn exactly(table: &Table, index: u32) -> u64 {
    let counter = &table.row(index).counter;
    let seen = counter.lower_watermark();
    let (usage, sure) = usage_without_idle(table, index);
    if sure {
        counter.raise_lower_watermark(seen, usage);
    }
    usage
}

/// Returns the usage without idle stock, and whether that is exact. It is not if other processes may have units in
/// flight.
fn usage_without_idle(table: &Table, index: u32) -> (u64, bool) {
    let sure = !table.is_shared();
    for _ in 0..ROUNDS {
        for _ in 0..TRIES {
            if let Some(usage) = undisturbed(table, index) {
                return (usage, sure);
            }
            std::hint::spin_loop();
        }
        if GATE.close(lock::thread()) {
            // With the gate closed no thread fetches or returns units, and after the drain every charge would have
            // to: the total is exact. This thread is inside the gate, so that no other reader takes the drain for a
            // quiet moment.
            let inside = lock::pass();
            drain::subtree(table, index);
            let usage = at_once(table, index, 0);
            drop(inside);
            GATE.open();
            return (usage, sure);
        }
    }
    (at_once(table, index, table.row(index).counter.track.in_flight.units()), false)
}

/// Returns the usage without the idle units in cells and in flight, even if other threads disturb the reading.
fn at_once(table: &Table, top: u32, in_flight: u64) -> u64 {
    let usage = table.row(top).counter.usage();
    usage.saturating_sub(in_flight.saturating_add(idle(table, top).0))
}

/// Looks once at a subtree. Returns its usage without idle stock, if nothing moved meanwhile.
fn undisturbed(table: &Table, top: u32) -> Option<u64> {
    let counter = &table.row(top).counter;
    let quiet = GATE.quiet()?;
    let (idle_before, trace) = idle(table, top);
    let usage = counter.usage();
    // Orders the two rounds of loads.
    fence(Ordering::SeqCst);
    let (again, trace_again) = idle(table, top);
    let still = counter.usage() == usage
        && counter.pending() == 0
        && (again, trace_again) == (idle_before, trace)
        && GATE.quiet() == Some(quiet);
    still.then(|| usage.saturating_sub(idle_before))
}

/// Returns the idle units in the thread caches and cells of a subtree, and a hash of the words that they were read from (the
/// trace). The words count charges, so two equal traces mean that no cell changed in between.
///
/// A group without children has only its own cells, so no other row is read. A child that is created between two
/// looks changes the result of the second one, or the total.
pub(crate) fn idle(table: &Table, top: u32) -> (u64, u64) {
    let mut idle = 0;
    let mut trace = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |word: u64, units: u64| {
        idle += units;
        trace = (trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    };
    let alone = top != 0 && table.row(top).children() == 0;
    thread_caches::each(table, |id, thread_cache| {
        let row = id.index();
        if row == top || top == 0 || !alone && leads_through(table, row, top) {
            let word = thread_cache.word();
            add(word, thread_cache::units(word));
        }
    });
    let mut add = |column: u32, row: u32| {
        let word = table.columns.cell(column, row).word.load(Ordering::Acquire);
        add(word, word::stock(word));
    };
    for column in 0..table.columns.count() {
        let stocked = table.stocked(column);
        if alone {
            if stocked.contains(top) {
                add(column, top);
            }
            continue;
        }
        for row in stocked.iter().filter(|&row| top == 0 || leads_through(table, row, top)) {
            add(column, row);
        }
    }
    (idle, trace)
}

/// Returns how much is charged to a group and not idle: zero once the group and all its units are gone.
pub(crate) fn charged(table: &Table, id: GroupId) -> u64 {
    let Some(path) = RowPath::of(table, id) else { return 0 };
    let counter = path.counters()[0];
    // The usage is read first: its idle units were in flight or in a cell before that, and are counted there. If
    // nothing can lie idle, no cell is read.
    let usage = counter.usage();
    if counter.idle_at_most() == 0 { usage } else { held_by(table, id) }
}

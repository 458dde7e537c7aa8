//! Counts the charges and uncharges of a row: in the charge words, and beside the cells, where full counts of the words
//! are folded to.

use super::{Table, thread_caches};
use crate::percpu::{thread_cache, word};
use crate::sync::{AtomicU64, Ordering};

/// Returns the charges and uncharges of one row, including those of its destroyed children.
pub(crate) fn of_row(table: &Table, index: u32) -> (u64, u64) {
    let row = table.row(index);
    let generation = table.cell_generation(row);
    let mut sums = (0u64, 0u64);
    for column in row.noted_columns(table.columns.count()) {
        let counts = table.counts(column, index);
        let word = table.columns.cell(column, index).word.load(Ordering::Acquire);
        let (mut charges, mut uncharges) = (0, 0);
        if word::generation(word) == generation {
            (charges, uncharges) = (word::charges(word), word::uncharges(word));
        }
        // Wrapping: another process may have written any number into the file.
        let add = |sum: u64, counted: &AtomicU64, word: u64| {
            sum.wrapping_add(counted.load(Ordering::Relaxed)).wrapping_add(word)
        };
        sums.0 = add(sums.0, &counts.charges, charges);
        sums.1 = add(sums.1, &counts.uncharges, uncharges);
    }
    thread_caches::each_of_row(table, index, |thread_cache| {
        let (charges, uncharges) = thread_cache::counts(thread_cache.word());
        sums = (sums.0.wrapping_add(charges), sums.1.wrapping_add(uncharges));
    });
    sums
}

/// Adds the counts in a charge word to those beside the cell.
pub(crate) fn fold(table: &Table, column: u32, row: u32, word: u64) {
    let counts = table.counts(column, row);
    counts.charges.fetch_add(word::charges(word), Ordering::Relaxed);
    counts.uncharges.fetch_add(word::uncharges(word), Ordering::Relaxed);
    table.note_changed(column, row);
}

/// Adds charges and uncharges that were counted elsewhere.
pub(crate) fn add(table: &Table, column: u32, row: u32, (charges, uncharges): (u64, u64)) {
    table.row(row).note_column(column);
    let counts = table.counts(column, row);
    counts.charges.fetch_add(charges, Ordering::Relaxed);
    counts.uncharges.fetch_add(uncharges, Ordering::Relaxed);
    table.note_changed(column, row);
}

pub(crate) fn note_charge(table: &Table, column: u32, row: u32) {
    table.row(row).note_column(column);
    table.counts(column, row).charges.fetch_add(1, Ordering::Relaxed);
    table.note_changed(column, row);
}

pub(crate) fn note_uncharge(table: &Table, column: u32, row: u32) {
    table.row(row).note_column(column);
    table.counts(column, row).uncharges.fetch_add(1, Ordering::Relaxed);
    table.note_changed(column, row);
}

/// Moves the counts beside a row's cells to another row, in the running CPU's column.
pub(super) fn hand_over(table: &Table, from: u32, to: u32) {
    let current = table.columns.current();
    for column in table.row(from).noted_columns(table.columns.count()) {
        let counts = table.counts(column, from);
        let charges = counts.charges.swap(0, Ordering::Relaxed);
        let uncharges = counts.uncharges.swap(0, Ordering::Relaxed);
        if charges | uncharges != 0 {
            add(table, current, to, (charges, uncharges));
        }
    }
    table.row(from).forget_columns();
}

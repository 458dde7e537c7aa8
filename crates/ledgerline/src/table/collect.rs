//! Collects statistics: moves them from the cells to the totals of the rows and of their ancestors' subtrees.
//! `sums.rs` describes the protocol.

use super::items::ITEMS_MAX;
use super::path::{RowPath, leads_through};
use super::row::state;
use super::sums::{self, BLOCKS, CHANGES, COUNTED, EVENTS, FIXED, total_words};
use super::{Table, counts};
use crate::counter::changes::Changes;
use crate::gate::lock::{self, Held};
use crate::sync::{AtomicU64, Ordering};
use std::collections::HashSet;

/// Collects the changed rows of this process.
pub(crate) fn collect(table: &Table, held: &Held) {
    let cells = || {
        (0..table.columns.count()).flat_map(|column| {
            let changed = table.changed(column).iter().filter(|&row| table.is_mine(row));
            changed.map(move |row| (column, row))
        })
    };
    if !close_sums(table, held, cells()) {
        return;
    }
    let mut changing = Vec::new();
    let under_way = table.collections().begin();
    for (column, row) in cells() {
        // The row leaves the set before it is read, so that a later count adds it again. The set's summaries
        // stay, since rows are added without the lock.
        table.changed(column).remove_shared(row);
        if table.row(row).counter.uncollected() != Changes::default() {
            changing.push((column, row));
        }
        // The parent of a free row is the next free row.
        let free = table.row(row).state.load(Ordering::Acquire) == state::FREE;
        if let Some(path) = RowPath::new(table, row).filter(|_| !free) {
            take_sums(table, column, &path);
            take_counted(table, &path);
        }
    }
    drop(under_way);
    // The caller takes these rows' changes of limits (`stock/totals.rs`).
    changing.into_iter().for_each(|(column, row)| table.note_changed(column, row));
}

/// Adds changes of limits that were taken out of a row.
pub(crate) fn add_changes(table: &Table, path: &RowPath<'_>, changes: Changes) {
    if changes.own != 0 {
        sums::add_totals(table, path, CHANGES, changes.own);
    }
    if changes.below != 0 {
        sums::add_subtrees(table, path, CHANGES, changes.below);
    }
}

/// Moves a group's changes of limits to its parent, which from now on counts them as changes below it.
fn hand_changes_up(table: &Table, index: u32, parent: u32) {
    if table.row(index).counter.uncollected() == Changes::default() {
        return;
    }
    // A reader of both rows must not see half of this.
    let _under_way = table.collections().begin();
    let changes = table.row(index).counter.take_uncollected();
    let counter = &table.row(parent).counter;
    let many = counter.add_changes(Changes { own: 0, below: changes.all() });
    table.note_changed(table.columns.current(), parent);
    if let Some(path) = RowPath::new(table, parent).filter(|_| many) {
        add_changes(table, &path, counter.take_uncollected());
    }
}

/// Returns how often the limits of a row's subtree were changed: the collected changes, and those that rows of other
/// processes have not collected yet.
pub(crate) fn read_changes(table: &Table, top: u32) -> u64 {
    let words = total_words(table.plan.items) / 2;
    let waiting = |row: u32| table.row(row).counter.uncollected().all();
    let changed = |column| table.changed(column).iter().filter(|&row| waiting(row) != 0);
    let collected = table.total(top, words + CHANGES).load(Ordering::Acquire);
    of_others(table, top, changed).fold(collected, |sum, row| sum.wrapping_add(waiting(row)))
}

/// Returns, each once, the rows of all columns that other processes write and that lie in the subtree of `top`.
fn of_others<I: Iterator<Item = u32>>(
    table: &Table,
    top: u32,
    rows: impl Fn(u32) -> I,
) -> impl Iterator<Item = u32> {
    let mut seen = HashSet::new();
    (0..table.columns.count()).flat_map(rows).filter(move |&row| {
        !table.is_mine(row) && leads_through(table, row, top) && seen.insert(row)
    })
}

/// Collects rows that are being destroyed, for the last time: no thread opens their cells any more. One fence serves all.
pub(crate) fn close(table: &Table, rows: impl Iterator<Item = u32> + Clone) {
    for row in rows.clone() {
        let parent = table.row(row).parent.load(Ordering::Relaxed);
        // Another process may have overwritten the parent.
        if parent < table.capacity() {
            hand_changes_up(table, row, parent);
        }
    }
    let counting = rows.filter(|&row| counts_anything(table, row));
    if counting.clone().next().is_none() {
        return;
    }
    let Some(held) = lock::lock() else { return };
    let columns = 0..table.columns.count();
    let cells = counting.clone().flat_map(|row| columns.clone().map(move |column| (column, row)));
    if !close_sums(table, &held, cells) {
        return;
    }
    for path in counting.filter_map(|row| RowPath::new(table, row)) {
        collect_row(table, &path);
    }
}

/// Collects a row that no thread writes.
pub(crate) fn collect_row(table: &Table, path: &RowPath<'_>) {
    if !counts_anything(table, path.leaf()) {
        return;
    }
    let _under_way = table.collections().begin();
    for column in 0..table.columns.count() {
        take_sums(table, column, path);
    }
    take_counted(table, path);
}

/// Returns whether a row has counts that its parent does not get together with the counts in its columns.
fn counts_anything(table: &Table, row: u32) -> bool {
    let row = table.row(row);
    let track = &row.counter.track;
    row.has_statistics()
        || track.max_events.load(Ordering::Relaxed) | track.high_events.load(Ordering::Relaxed) != 0
}

/// Clears the tags of cells, given by column and row. Returns `false` if sections may still add to their sums: without a
/// fence, which a sandbox may forbid, that cannot be excluded.
fn close_sums(table: &Table, _held: &Held, cells: impl Iterator<Item = (u32, u32)>) -> bool {
    let mut open = false;
    for (column, row) in cells.filter(|&(column, row)| table.row(row).has_sums_in(column)) {
        open |= table.statistics.word(column, row, 0).swap(0, Ordering::AcqRel) != 0;
    }
    !open || table.columns.fence()
}

/// Moves the sums of a closed cell to the totals (T1).
fn take_sums(table: &Table, column: u32, path: &RowPath<'_>) {
    let row = path.leaf();
    if !table.row(row).has_sums_in(column) {
        return;
    }
    for sum in 0..FIXED + table.plan.items {
        let word = table.statistics.word(column, row, 1 + sum);
        if word.load(Ordering::Relaxed) != 0 {
            sums::add_totals(table, path, COUNTED + sum, word.swap(0, Ordering::AcqRel));
        }
    }
}

/// Raises the totals to the counts that the row keeps elsewhere.
fn take_counted(table: &Table, path: &RowPath<'_>) {
    // The collected number is read first, so that the row's own count is at least as large.
    let collected: [u64; EVENTS] = std::array::from_fn(|word| collected(table, path.leaf(), word));
    for (word, counted) in counted(table, path.leaf()).into_iter().enumerate() {
        if counted == collected[word] {
            continue;
        }
        // If several processes settle the rows of an ended one, only one of them collects the difference.
        table.row(path.leaf()).note_totals();
        let own = table.total(path.leaf(), word);
        let taken =
            own.compare_exchange(collected[word], counted, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            sums::add_subtrees(table, path, word, counted.wrapping_sub(collected[word]));
        }
    }
}

fn collected(table: &Table, row: u32, word: usize) -> u64 {
    if table.row(row).has_statistics() { table.total(row, word).load(Ordering::Acquire) } else { 0 }
}

/// Returns the counts that a row keeps outside of its totals.
fn counted(table: &Table, row: u32) -> [u64; EVENTS] {
    let (charges, uncharges) = counts::of_row(table, row);
    let track = &table.row(row).counter.track;
    let [max, high] =
        [&track.max_events, &track.high_events].map(|events| events.load(Ordering::Relaxed));
    [charges, uncharges, max, high]
}

/// Moves the collected blocks of a row that is being freed to its parent, and empties the row's totals. The parent's
/// columns take the counts themselves.
pub(crate) fn hand_up(table: &Table, index: u32, parent: u32) {
    let row = table.row(index);
    hand_changes_up(table, index, parent);
    // Both were collected when the group was closed.
    row.counter.track.max_events.store(0, Ordering::Relaxed);
    row.counter.track.high_events.store(0, Ordering::Relaxed);
    if !row.has_statistics() {
        return;
    }
    for word in 0..total_words(table.plan.items) {
        let total = table.total(index, word).swap(0, Ordering::AcqRel);
        // The events end with the row. The subtrees of its ancestors already have them.
        if word < BLOCKS && total != 0 {
            table.row(parent).note_totals();
            table.total(parent, word).fetch_add(total, Ordering::Relaxed);
        }
    }
    row.forget_statistics();
}

/// Moves all totals of an ended process's row to another row below the same parent, as that row's own.
pub(super) fn hand_over(table: &Table, from: u32, to: u32) {
    if !table.row(from).has_statistics() {
        return;
    }
    let words = total_words(table.plan.items);
    table.row(to).note_totals();
    for word in 0..words / 2 {
        let own = table.total(from, word).swap(0, Ordering::AcqRel);
        table.total(from, words / 2 + word).store(0, Ordering::Relaxed);
        if own != 0 {
            table.total(to, word).fetch_add(own, Ordering::Relaxed);
            table.total(to, words / 2 + word).fetch_add(own, Ordering::Relaxed);
        }
    }
    table.row(from).forget_statistics();
}

/// Reads the totals of a row, and adds the counts that rows of other processes have not collected yet.
pub(crate) fn read_totals(table: &Table, top: u32, totals: &mut [i64]) {
    let words = totals.len() / 2;
    for (word, total) in totals.iter_mut().enumerate() {
        *total = table.total(top, word).load(Ordering::Acquire) as i64;
    }
    if !table.is_shared() {
        return;
    }
    let rows = |column| table.changed(column).iter().chain(table.stocked(column).iter());
    let (own, subtree) = totals.split_at_mut(words);
    let mut more = [0; COUNTED + FIXED + ITEMS_MAX];
    let more = &mut more[..words];
    for row in of_others(table, top, rows) {
        more.fill(0);
        // Changes of groups that are gone belong to the subtrees, not to any row.
        let below = read_uncollected(table, row, more);
        subtree[CHANGES] = subtree[CHANGES].wrapping_add(below);
        for (word, &more) in more.iter().enumerate() {
            if row == top {
                own[word] = own[word].wrapping_add(more);
            }
            subtree[word] = subtree[word].wrapping_add(more);
        }
    }
}

/// Reads into `words`, which are zeros, the counts of a row that its totals do not have yet. Returns the changes of limits
/// of groups below it that are gone, which belong to its subtree but not to the row.
pub(crate) fn read_uncollected(table: &Table, row: u32, words: &mut [i64]) -> i64 {
    for (word, counted) in counted(table, row).into_iter().enumerate() {
        words[word] = counted.wrapping_sub(collected(table, row, word)) as i64;
    }
    for column in 0..table.columns.count() {
        if table.row(row).has_sums_in(column) {
            for (sum, word) in words[COUNTED..].iter_mut().enumerate() {
                let cell = table.statistics.word(column, row, 1 + sum);
                *word = word.wrapping_add(cell.load(Ordering::Acquire) as i64);
            }
        }
    }
    let changes = table.row(row).counter.uncollected();
    words[CHANGES] = changes.own as i64;
    changes.below as i64
}

/// Reads the fixed words of a row without the blocks: the counts that its totals do not have yet, and its subtree's totals.
/// Both slices hold zeros before. A reader that meets a collection reads again.
pub(crate) fn read_words(
    table: &Table,
    index: u32,
    uncollected: &mut [i64; COUNTED + FIXED],
    subtree: &mut [i64; COUNTED + FIXED],
) {
    let row = table.row(index);
    let changes = row.counter.uncollected();
    // Changes of groups that are gone belong to no row. Here both parts are added to the subtree.
    uncollected[CHANGES] = changes.all() as i64;
    let track = &row.counter.track;
    for (word, events) in [(BLOCKS, &track.max_events), (BLOCKS + 1, &track.high_events)] {
        // The collected number is read first, so that the row's own count is at least as large.
        let collected = collected(table, index, word);
        uncollected[word] = events.load(Ordering::Relaxed).wrapping_sub(collected) as i64;
    }
    if !row.has_statistics() {
        return;
    }
    for column in (0..table.columns.count()).filter(|&column| row.has_sums_in(column)) {
        for (sum, word) in uncollected[COUNTED..].iter_mut().enumerate() {
            let cell = table.statistics.word(column, index, 1 + sum);
            *word = word.wrapping_add(cell.load(Ordering::Acquire) as i64);
        }
    }
    let words = total_words(table.plan.items) / 2;
    for (word, sum) in subtree.iter_mut().enumerate().skip(BLOCKS) {
        *sum = table.total(index, words + word).load(Ordering::Acquire) as i64;
    }
}

/// Returns the totals of a row and of its subtree, or empty slices if it has none. For a table that does not change.
pub(crate) fn totals(table: &Table, row: u32) -> [&[AtomicU64]; 2] {
    if table.row(row).has_statistics() {
        let totals = table.totals(row);
        totals.split_at(totals.len() / 2).into()
    } else {
        [&[]; 2]
    }
}

//! Looks into the cells of a small group, to learn how much of its usage is certainly not idle.
//!
//! ```text
//! read the cells' words and what is in flight; the usage; the words and what is in flight again
//! ```
//!
//! If nothing has changed, all of it was so at one moment. The words count charges, and the words of a
//! [`Tally`](crate::counter::Tally) count what was subtracted from them (`counter/idle.rs`): from what is
//! in flight, and from the caps of children's cells. And the group has no child now. What a drain has taken
//! out of a cell stays in the usage until the cell is opened again, so a frozen cell spoils the look.

use crate::counter::PageCounter;
use crate::counter::walk;
use crate::percpu::word;
use crate::sync::{Ordering, fence};
use crate::table::Table;
use crate::table::path::{DEPTH_MAX, RowPath};

/// The most columns that are looked at: each may be a line that another CPU writes.
const CELLS: usize = 4;

/// After a grant: raises the lower watermarks of the levels to what the leaf's cells say, where the caps
/// say much less.
pub(crate) fn note(table: &Table, path: &RowPath<'_>, levels: &walk::Path<'_>) {
    let Some(leaf) = levels.first() else { return };
    let usage = leaf.usage();
    let news = |counter: &PageCounter| PageCounter::is_news(counter.lower_watermark(), usage);
    // (If it is news neither to the leaf nor to an ancestor, there is nothing to raise.)
    if leaf.idle_at_most() <= usage / 32 || !levels.iter().any(|counter| news(counter)) {
        return;
    }
    look_into_cells(table, path, levels);
}

#[inline(never)]
fn look_into_cells(table: &Table, path: &RowPath<'_>, levels: &walk::Path<'_>) {
    let seen: [u64; DEPTH_MAX] = std::array::from_fn(|level| {
        levels.get(level).map_or(0, |counter| counter.lower_watermark())
    });
    let Some(charged) = charged_by_cells(table, path.leaf()) else { return };
    for (counter, seen) in levels.iter().zip(seen) {
        // An ancestor held as much at that moment.
        counter.raise_lower_watermark(seen, charged);
    }
}

/// How much was charged to a row at some moment of the call, if it has no child and no thread disturbed the
/// look.
fn charged_by_cells(table: &Table, index: u32) -> Option<u64> {
    let row = table.row(index);
    let generation = table.cell_generation(row);
    let track = &row.counter.track;
    let (caps, flight) = (track.prepaid.word(), track.in_flight.word());
    let noted = row.columns_noted();
    let mut words = [0u64; CELLS];
    let read = |into: &mut [u64; CELLS]| {
        let mut cells = row.noted_columns(table.columns.count());
        let mut free = into.iter_mut();
        cells.all(|column| {
            let word = table.columns.cell(column, index).word.load(Ordering::Acquire);
            let Some(place) = free.next() else { return false };
            *place = word;
            word & word::FROZEN == 0
        })
    };
    if !read(&mut words) {
        return None;
    }
    let usage = row.counter.usage();
    // Orders the two rounds of loads. Partner of the Release with which a thread writes a word, what is in
    // flight, or the usage.
    fence(Ordering::Acquire);
    let mut again = [0u64; CELLS];
    if !read(&mut again) || again != words || row.columns_noted() != noted {
        return None;
    }
    let in_flight = track.in_flight.since(flight)?;
    // (The caps of a child that is gone went with it.)
    if row.children() > 0 || track.prepaid.since(caps).is_none() {
        return None;
    }
    let idle: u64 = words
        .into_iter()
        .filter(|&word| word::generation(word) == generation)
        .map(word::stock)
        .sum();
    Some(usage.saturating_sub(idle + in_flight))
}

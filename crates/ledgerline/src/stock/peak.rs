//! Looks into the cells of a small group, and into threads' caches, to find how much of its usage is certainly not
//! idle.
//!
//! ```text
//! read the cells' words and what is in flight; the usage; the words and what is in flight again
//! ```
//!
//! If nothing has changed, all values were valid at one moment. The cells' words count charges. The words of a
//! [`Tally`](crate::counter::Tally) count subtractions (`counter/idle.rs`): from the units in flight, and from the
//! caps of children's cells. And the group has no child now. Units that a drain has taken out of a cell stay in
//! the usage until the cell is opened again, so a frozen cell spoils the look.

use crate::counter::{PageCounter, walk};
use crate::percpu::thread_cache::places;
use crate::percpu::{thread_cache, word};
use crate::sync::{Ordering, fence};
use crate::table::path::{DEPTH_MAX, RowPath};
use crate::table::{Table, thread_caches};

/// The most cells that a look reads: each may be a line that another CPU writes.
const CELLS: usize = 4;
/// One more than the most thread caches that a look reads, likewise.
const THREAD_CACHES: usize = 17;

/// Raises the lower watermarks of the levels after a grant. Reads the leaf's cells if the caps allow much more
/// idle than the cells may hold.
pub(crate) fn note(table: &Table, path: &RowPath<'_>, levels: &walk::Path<'_>) {
    let Some(leaf) = levels.first() else { return };
    let usage = leaf.usage();
    let news = |counter: &PageCounter| PageCounter::is_news(counter.lower_watermark(), usage);
    // If the usage is news neither to the leaf nor to an ancestor, there is nothing to raise.
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
    let look = || charged_by_cells(table, path.leaf());
    let Some(charged) = places::undisturbed(look).flatten() else { return };
    for (counter, seen) in levels.iter().zip(seen) {
        // An ancestor held at least as much at that moment.
        counter.raise_lower_watermark(seen, charged);
    }
}

/// Returns how much was charged to a row at some moment of the call, if it has no child and no thread disturbed
/// the look.
fn charged_by_cells(table: &Table, index: u32) -> Option<u64> {
    let row = table.row(index);
    let generation = table.cell_generation(row);
    let track = &row.counter.track;
    let (caps, flight) = (track.prepaid.word(), track.in_flight.word());
    let noted = row.columns_noted();
    // Reads the cells' words, a hash of the thread caches' words, and the idle units of both. `None` if they are too
    // many, or a drain has one.
    let read = || {
        let (mut words, mut idle) = ([0u64; CELLS], 0);
        let mut free = words.iter_mut();
        for column in row.noted_columns(table.columns.count()) {
            let word = table.columns.cell(column, index).word.load(Ordering::Acquire);
            *free.next().filter(|_| word & word::FROZEN == 0)? = word;
            if word::generation(word) == generation {
                idle += word::stock(word);
            }
        }
        let (mut left, mut trace) = (THREAD_CACHES, 0u64);
        thread_caches::each_of_row(table, index, |thread_cache| {
            let word = thread_cache.word();
            left = if thread_cache::is_frozen(word) { 0 } else { left.saturating_sub(1) };
            trace = (trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
            idle += thread_cache::units(word);
        });
        (left > 0).then_some((words, trace, idle))
    };
    let seen = read()?;
    let usage = row.counter.usage();
    // Orders the two rounds of loads. Partner of the Release with which a thread writes a word, the units in
    // flight, or the usage.
    fence(Ordering::Acquire);
    if read()? != seen || row.columns_noted() != noted {
        return None;
    }
    let in_flight = track.in_flight.since(flight)?;
    // A child that was removed has taken its caps back.
    if row.children() > 0 || track.prepaid.since(caps).is_none() {
        return None;
    }
    Some(usage.saturating_sub(seen.2 + in_flight))
}

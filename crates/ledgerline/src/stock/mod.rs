//! The stock is the prepaid units in cells. This module serves a charge that its CPU's cell cannot serve.
//!
//! ```text
//! charge(group, n)                                    uncharge(group, n)
//!   take n from the running CPU's cell: done            put n into the running CPU's cell: done
//!   the count is full: fold it, take again              the count is full: fold it, put again
//!   fetch n + surplus from the counters,                no cell yet: open one, put again
//!     leave the surplus in the cell: done               its group has shrunk: empty it, make its cap smaller
//!   fetch exactly n: done                               the cell is full: keep half of its cap, or nothing,
//!   drain the lowest subtree that is full,                and return the rest to the counters
//!     fetch exactly n
//!   refuse, and name the lowest full level
//! ```
//!
//! **How much may lie idle.** A cell holds at most its *cap*, and each level knows the sum of the caps below it,
//! `prepaid` (`caps.rs`). Before a walk is granted, it drains each level whose `prepaid` is too much for the headroom
//! below its limit. After a walk that returned units, it drains each level whose `prepaid` is too much for its usage.
//! So at every level
//!
//! > idle stock  <=  prepaid  <=  truth / 4 + slack,  and  (max - usage) / 16
//!
//! where the slack is 64 batches, at most 16 Mi units. A cell holds at most a sixteenth of its own group's usage and at
//! most two batches. A small group's cell may hold an eighth of a batch, and a cell that serves large charges may hold
//! more (`caps.rs`). There are two exceptions to the bounds above, both of at most one cap per cell: a walk inside a
//! signal handler that interrupted a drain cannot drain; and in a ledger that processes share, a process can only drain
//! its own cells.
//!
//! **A small group's stock is small.** A new group's first fetch takes a quarter more than was requested. Each later
//! fetch takes as much as the group holds, and for large charges 15 of them if that is more. It fills at most half of a
//! cell's room, or all of it if the last walk from that cell was a charge, too. Likewise an uncharge leaves half of the
//! cap in a full cell, or nothing if the last walk was an uncharge.
//!
//! **Idle stock never causes a refusal.** Before a refusal the full subtree is drained, with new caps held off
//! (`draining`), and exactly `n` is requested again.

pub(crate) mod caps;
pub(crate) mod cell;
pub(crate) mod drain;
mod in_flight;
mod peak;
pub(crate) mod precise;
pub(crate) mod refusal;
mod returns;
pub(crate) mod settle;
mod settler;
pub(crate) mod thread_caches;
pub(crate) mod totals;
pub(crate) mod transfer;

use crate::counter::COUNTER_MAX;
pub(crate) use crate::counter::walk::AtLimit;
use crate::counter::walk::{self, Levels, NotGranted};
use crate::gate::lock::{self, Inside};
use crate::percpu::word::{self, Walk};
use crate::sync::{Ordering, fence};
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::{Table, allocate, counts};
use in_flight::InFlight;
use refusal::Refusal;

/// Tries once to charge `n` units that the running CPU's cell could not serve. Returns the levels at which its walk met
/// a limit. The watchers of those levels are not notified yet, and a refusal is not counted yet: another try may
/// follow.
#[inline(never)]
pub(crate) fn charge(table: &Table, id: GroupId, n: u64, at: AtLimit) -> Result<Levels, Refusal> {
    if cell::take_unlooked(table, id, n) { Ok(0) } else { charge_otherwise(table, id, n, at) }
}

/// Returns units for which the running CPU's cell had no room. The result is `false` if there was nothing to return.
#[inline(never)]
pub(crate) fn uncharge(table: &Table, id: GroupId, n: u64) -> bool {
    cell::put_unlooked(table, id, n) || uncharge_otherwise(table, id, n)
}

/// Serves a charge from the counters. Not inlined: its frame is large, and a ledger that keeps flows seldom needs it.
#[inline(never)]
fn charge_otherwise(table: &Table, id: GroupId, n: u64, at: AtLimit) -> Result<Levels, Refusal> {
    let take = || n <= word::STOCK_MAX && table.columns.take(table.cell_id(id), n);
    if cell::fold_if_full(table, id) && take() {
        return Ok(0);
    }
    let inside = lock::pass();
    let mut path = RowPath::blank(table);
    if !path.find(table, id) || !table.is_live(path.leaf()) {
        return Err(Refusal::gone(id, n));
    }
    if n > COUNTER_MAX {
        return Err(refusal::of(table, &path, id, n, NotGranted::Full { level: 0 }));
    }
    let column = table.columns.current();
    let mut room = caps::open_cell(table, &path, id, column, n);
    if caps::is_large(table, n) && caps::is_above_high(&path, n) {
        // A smaller stock makes the next charges walk, too, and meet the level's high. The cap may be from before.
        room = room.min(caps::ordinary_most(table));
    }
    // A charge of nothing is no sign that others follow.
    let in_a_row = n > 0 && table.columns.cell(column, path.leaf()).walks(Walk::Charge);
    let surplus = surplus(table, &path, n, room, in_a_row);
    if surplus > 0
        && let _in_flight = InFlight::new(&path, surplus)
        && let Ok((surplus, met)) = fetch(table, &path, n, surplus, &inside)
    {
        if surplus > 0 && !table.columns.deposit(table.cell_id(id), surplus) {
            // The thread moved to a column whose cell is closed or full.
            give_back(table, &path, surplus);
        }
        counts::note_charge(table, column, path.leaf());
        return Ok(met);
    }
    let met = fetch_exactly(table, &path, id, n, at, &inside)?;
    counts::note_charge(table, column, path.leaf());
    Ok(met)
}

/// Serves an uncharge from the counters. The result is `false` if there was nothing to return.
#[inline(never)]
fn uncharge_otherwise(table: &Table, id: GroupId, n: u64) -> bool {
    let put = || n <= word::STOCK_MAX && table.columns.put(table.cell_id(id), n);
    if cell::fold_if_full(table, id) && put() {
        return true;
    }
    let _pass = lock::pass();
    let mut path = RowPath::blank(table);
    if !path.find(table, id) {
        // A charge of zero units does not keep its group's row.
        if n > 0 {
            table.count_stray();
        }
        return false;
    }
    let column = table.columns.current();
    // The cap does not grow for `n`: units that are charged once and returned twice would be taken for idle stock.
    if caps::open_cell(table, &path, id, column, 0) >= n
        && n <= word::STOCK_MAX
        && table.columns.put(table.cell_id(id), n)
    {
        return true;
    }
    let shrunk = caps::shrinks(table, &path, column, n)
        .and_then(|cap| shrink(table, column, &path, id, cap));
    let in_flight = shrunk.or_else(|| skim(table, column, &path, id, n));
    let above = in_flight.as_ref().map_or(0, |skimmed| skimmed.units);
    counts::note_uncharge(table, column, path.leaf());
    let returned = returns::units(table, &path, n.saturating_add(above));
    if !returned && above > 0 {
        // `n` is more than was charged, so nothing of it is returned, but the units from the cell are.
        returns::units(table, &path, above);
    }
    // The note of the units in flight is dropped first: dropping it writes the very lines that the look reads.
    drop(in_flight);
    caps::trim_for_usage(table, &path, path.counters());
    returned
}

/// Requests `n` and `surplus` from the counters. Returns how much surplus was granted, and which levels met a limit.
/// Between the reservation and the grant, it drains levels whose idle units are too much for the smaller headroom. A
/// drain closes the cell that the surplus was meant for, so the surplus is then not granted.
fn fetch(
    table: &Table,
    path: &RowPath<'_>,
    n: u64,
    surplus: u64,
    inside: &Inside,
) -> Result<(u64, Levels), NotGranted> {
    let counters = path.counters();
    reserve(table, path, counters, n + surplus, AtLimit::Refuse, inside)?;
    let drained = caps::trim(table, path, counters);
    let surplus = if drained && surplus > 0 {
        allocate::recycle_emptied(table, path, walk::cancel(counters, 0, surplus));
        0
    } else {
        surplus
    };
    let met = walk::commit(counters, n + surplus, AtLimit::Refuse);
    peak::note(table, path, counters);
    Ok((surplus, met))
}

/// Reserves on the lowest levels of a path. Cancels the reservation if the row was destroyed, and perhaps reused for
/// another group, between the look at the path and the reservation. From the reservation on, the row cannot be reused.
#[inline]
fn reserve(
    table: &Table,
    path: &RowPath<'_>,
    levels: &walk::Path<'_>,
    n: u64,
    at: AtLimit,
    inside: &Inside,
) -> Result<(), NotGranted> {
    let (no, emptied) = match walk::reserve(levels, n, at, inside.patience()) {
        Ok(()) if path.is_current(table) => return Ok(()),
        Ok(()) => (NotGranted::Closed { level: 0 }, walk::cancel(levels, 0, n)),
        Err(stopped) => stopped,
    };
    allocate::recycle_emptied(table, path, emptied);
    Err(no)
}

/// Requests exactly `n` from the counters. A level that is full of idle stock is drained before it counts as full: the
/// lowest first, and a level above it once the lowest has room.
fn fetch_exactly(
    table: &Table,
    path: &RowPath<'_>,
    id: GroupId,
    n: u64,
    at: AtLimit,
    inside: &Inside,
) -> Result<Levels, Refusal> {
    let (mut held_off, mut waited) = (0u64, 0u64);
    let result = loop {
        match fetch(table, path, n, 0, inside) {
            Ok((_, met)) => break Ok(met),
            Err(NotGranted::Full { level }) if held_off >> level & 1 == 0 => {
                held_off |= 1 << level;
                let draining = &path.counters()[level].track.draining;
                draining.fetch_add(1, Ordering::SeqCst);
                // Partner of the fence in `PageCounter::allow`.
                fence(Ordering::SeqCst);
                drain::held_off(table, path.row(level));
            }
            // Units in flight stand in the way, or stood in the way and are in a cell by now.
            Err(NotGranted::Full { level })
                if waited >> level & 1 == 0 && path.counters()[level].fits_without_in_flight(n) =>
            {
                waited |= 1 << level;
                path.counters()[level].wait_for_in_flight(n, inside.patience());
            }
            Err(no) => break Err(no),
        }
    };
    for (level, counter) in path.counters().iter().enumerate() {
        if held_off >> level & 1 != 0 {
            counter.track.draining.fetch_sub(1, Ordering::SeqCst);
        }
    }
    match result {
        Ok(met) => Ok(met),
        Err(NotGranted::Full { .. }) if at != AtLimit::Refuse => {
            let counters = path.counters();
            let ask = || reserve(table, path, counters, n, at, inside);
            let root = counters.len() - 1;
            ask()
                .or_else(|no| match no {
                    // The loop above may have met only a lower level.
                    NotGranted::Full { level } if level == root => {
                        drain::held_off(table, path.row(root));
                        ask()
                    }
                    no => Err(no),
                })
                .map_err(|no| refusal::of(table, path, id, n, no))?;
            caps::trim(table, path, counters);
            Ok(walk::commit(counters, n, at))
        }
        Err(no) => Err(refusal::of(table, path, id, n, no)),
    }
}

/// Returns units to the counters, and drains the levels that have too much idle for the remaining usage. The result is
/// `false`, and nothing is returned, if the group holds fewer units.
fn give_back(table: &Table, path: &RowPath<'_>, n: u64) -> bool {
    let returned = returns::units(table, path, n);
    caps::trim_for_usage(table, path, path.counters());
    returned
}

/// Takes the units above half of the cap from a cell that an uncharge of `n` found full, and all of its units if
/// uncharges come in a row. The caller returns these units, too.
fn skim<'p>(
    table: &Table,
    column: u32,
    path: &'p RowPath<'_>,
    id: GroupId,
    n: u64,
) -> Option<InFlight<'p>> {
    let row = path.leaf();
    let cell = table.columns.cell(column, row);
    let word = cell.word.load(Ordering::Acquire);
    if !word::passes(word, table.cell_id(id)) {
        return None;
    }
    let cap = u64::from(cell.cap.load(Ordering::Relaxed));
    let keep = if cell.walks(Walk::Uncharge) { 0 } else { caps::in_charges(table, n, cap / 2) };
    let above = word::stock(word).saturating_sub(keep);
    // A large `n` alone does not mean that the stock is too large.
    if above == 0 || n > cap.max(1) {
        return None;
    }
    let in_flight = InFlight::new(path, above);
    table.columns.swap(column, row, word, word - above).then_some(in_flight)
}

/// Empties a cell whose group has shrunk, and makes its cap smaller, if the thread runs on the cell's CPU and gets the stock lock
/// at once. The caller returns the units.
fn shrink<'p>(
    table: &Table,
    column: u32,
    path: &'p RowPath<'_>,
    id: GroupId,
    smaller: u64,
) -> Option<InFlight<'p>> {
    let _held = lock::try_lock()?;
    let row = path.leaf();
    let cell = table.columns.cell(column, row);
    let word = cell.word.load(Ordering::Acquire);
    let cap = u64::from(cell.cap.load(Ordering::Relaxed));
    // As in a drain of the running CPU's own cell, no fence is needed: while the word is frozen no section stores over it.
    if cap <= smaller
        || !word::passes(word, table.cell_id(id))
        || !table.columns.swap(column, row, word, word | word::FROZEN)
    {
        return None;
    }
    let units = word::stock(word);
    let in_flight = InFlight::new(path, units);
    cell.cap.store(smaller as u32, Ordering::Relaxed);
    cell.open(word - units);
    // The row cannot be freed meanwhile: `destroy` closes its cells with the lock that this thread has.
    for counter in path.counters() {
        counter.disallow(cap - smaller);
    }
    Some(in_flight)
}

/// Returns how much more than `n` to fetch for a cell with this much room. It is half of the room, so that charges find
/// stock and uncharges find room. If charges come in a row, it is all of the room but `n`. It is at most as much as the
/// group holds, or 15 charges if these are large, and a quarter of `n` for a new group. Large charges get whole multiples.
fn surplus(table: &Table, path: &RowPath<'_>, n: u64, room: u64, in_a_row: bool) -> u64 {
    let usage = path.counters()[0].usage();
    let mut most = usage.saturating_add(n / 4);
    let mut half = room / 2;
    if caps::is_large(table, n) && n <= room && usage >= n {
        most = most.max(n.saturating_mul(caps::CHARGES_LEAST - 1));
        half = half.min(room - n);
    }
    let fill = if in_a_row { half.max(room.saturating_sub(n)) } else { half };
    let fill = fill.min(most);
    if n <= room { caps::in_charges(table, n, fill) } else { fill }
}

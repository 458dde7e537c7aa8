//! The cap is how much a cell may hold. Every level of the group's path must grant it.
//!
//! A cell wants a sixteenth of its group's usage, at least an eighth of a batch and at most two batches; a cell for
//! large charges wants more (`wanted_cap`). An eighth of a batch is 32 KiB unless the user chose another batch. With a
//! smaller minimum, an allocator's blocks of a few kilobytes in a group of a few dozen kilobytes would walk to the
//! counters one time in five: a pair took 28 ns more, and 98 ns with two threads, where it now takes 7 ns in both
//! cases. The cap shift of the ancestors makes the cap smaller, and each level of the path grants it: a level adds it to
//! `prepaid`, the sum of the caps below it, and refuses a cap that is too much for its headroom or its usage
//! (`counter/idle.rs`).
//!
//! ```text
//! open_cell(group, column):
//!   the cap is half of what it could be, or more: done
//!   a large charge asks, and every level has room for a cap that holds several: done
//!   every level grants the cap that cap shift and limits leave: done
//!   a limit refuses, or another thread holds the lock: go without
//!   a level refuses for its usage: it halves its caps and is drained; once more
//! trim, before a walk grants:             a limited level has more idle than its headroom tolerates: drain it
//! trim_for_usage, after one returned:     a level has more idle than its usage tolerates: drain it, halve caps
//! ```
//!
//! **Drains are rare.** After a drain because of too many cells, each cell gets half, so that twice as many fit. After
//! a drain for the usage or the headroom, the usage or headroom must halve again before the next drain. Caps are
//! doubled once cells have asked as often as would have filled a quarter of the allowed units.
//!
//! **Processes that share a ledger** drain only their own cells. At a level that belongs to another process (the root)
//! each may have a batch idle whatever the others have, and drains its own cells only if it has more. A process makes
//! such a level thrifty only if it has most of the idle units there.

use super::drain;
use crate::counter::{COUNTER_MAX, PageCounter, Unallowed, walk};
use crate::gate::lock;
use crate::percpu::word;
use crate::sync::{Ordering, fence};
use crate::table::Table;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::row::{Row, flag, state};

/// The largest slack of a level: how much may lie idle in addition to a quarter of the charged units.
const SLACK_MAX: u64 = 16 << 20;
/// The slack in batches.
const SLACK_BATCHES: u64 = 64;
/// The least number of charges of one size that a cell has room for.
pub(super) const CHARGES_LEAST: u64 = 16;
/// The greatest number of large charges of one size that a cell has room for.
const CHARGES_MOST: u64 = 32;

/// The part of a path that belongs to this process.
#[derive(Clone, Copy)]
struct Own {
    /// How many levels, from the leaf, have only cells of this process.
    levels: usize,
    /// How much these levels allowed to lie idle. `u64::MAX` if all levels belong to this process.
    prepaid: u64,
}

/// Returns how much may lie idle at a level in addition to a quarter of the charged units.
pub(crate) fn slack(table: &Table) -> u64 {
    (table.batch * SLACK_BATCHES).min(SLACK_MAX)
}

/// Opens the group's cell in the column, with a cap as large as the group's usage and its ancestors allow. Returns how
/// many more units it may hold: zero if it is closed.
pub(crate) fn open_cell(
    table: &Table,
    path: &RowPath<'_>,
    id: GroupId,
    column: u32,
    n: u64,
) -> u64 {
    let row = table.row(path.leaf());
    // A cell is written by one process, and a destroyed group needs no cell.
    if row.owner.load(Ordering::Relaxed) != table.process() || !table.is_live(path.leaf()) {
        return 0;
    }
    let cell = table.columns.cell(column, path.leaf());
    let cap = || {
        let open = word::passes(cell.word.load(Ordering::Acquire), table.cell_id(id));
        if open { u64::from(cell.cap.load(Ordering::Relaxed)) } else { 0 }
    };
    let room = |cap: u64| cap.saturating_sub(word::stock(cell.word.load(Ordering::Relaxed)));
    // If the cap would hardly grow, the ancestors' lines are not read, since other CPUs write them.
    let wanted = wanted_cap(table, row, n);
    if wanted < cap() + cap() / 2 || wanted <= ordinary_most(table) && wanted < cap() * 2 {
        return room(cap());
    }
    let cap_shift = || path.counters().iter().map(|counter| counter.cap_shift()).max().unwrap_or(0);
    if wanted > ordinary_most(table) {
        let wanted = wanted.checked_shr(cap_shift()).unwrap_or(0);
        let granted = wanted.min(large_cap(table, path, cap()));
        if granted >= (cap() + cap() / 2).max(n)
            && enlarge(table, path, id, column, granted).is_ok()
        {
            return room(cap());
        }
    }
    // Near a `high` large charges make the cap no larger than the group's usage does. Otherwise most of what is charged above
    // it could be idle, and no reclaimer would be asked.
    let near_high = path.counters().iter().map(|counter| within_high(counter)).min().unwrap_or(0);
    let wanted = wanted.min(ordinary_most(table)).min(near_high.max(wanted_cap(table, row, 0)));
    for saved in [false, true] {
        let cap_shift = cap_shift();
        let granted = grantable_cap(table, path, wanted, cap_shift);
        if granted < (cap() * 2).max(1) {
            break;
        }
        match enlarge(table, path, id, column, granted) {
            Err(Some(level)) if !saved && granted > 2 && save(table, path, level, cap_shift) => {}
            _ => break,
        }
    }
    room(cap())
}

/// Makes the path allow a cap for a thread's cache and returns it: at most `most`, or 0 if less than `least` is
/// available. It is twice a cell's cap: a task's blocks come and go by a few dozen kilobytes, and if these exceed the
/// thread cache, threads contend for the stock lock. With 32 KiB that happened once in 400 pairs of blocks of up to 4 KiB, and
/// with two threads such a pair took a nanosecond more. The caller has the stock lock.
pub(super) fn allow_thread_cache(table: &Table, path: &RowPath<'_>, least: u64, most: u64) -> u64 {
    let cap_shift = path.counters().iter().map(|counter| counter.cap_shift()).max().unwrap_or(0);
    let wanted = (wanted_cap(table, table.row(path.leaf()), 0) * 2).min(most);
    let granted = grantable_cap(table, path, wanted, cap_shift);
    if granted < least || allow(table, path, granted).is_err() { 0 } else { granted }
}

/// Gives a cell a larger cap, and opens it. If a level refuses that for its usage, the error names the
/// level.
fn enlarge(
    table: &Table,
    path: &RowPath<'_>,
    id: GroupId,
    column: u32,
    wanted: u64,
) -> Result<(), Option<usize>> {
    let row = table.row(path.leaf());
    let cell = table.columns.cell(column, path.leaf());
    let _held = lock::try_lock().ok_or(None)?;
    // The row's state is checked again under the lock: `destroy` retires the row before it takes the lock to close
    // cells. The row may also have been reused for another group since the path was followed. And a group that is not
    // accounted keeps no cell (`control/mode.rs`).
    if row.state.load(Ordering::SeqCst) != state::LIVE
        || !path.is_current(table)
        || row.has(flag::OFF)
    {
        return Err(None);
    }
    let open = word::passes(cell.word.load(Ordering::Acquire), table.cell_id(id));
    let had = if open { u64::from(cell.cap.load(Ordering::Relaxed)) } else { 0 };
    let more = wanted.saturating_sub(had);
    if more == 0 {
        return Ok(());
    }
    allow(table, path, more)?;
    row.note_column(column);
    table.columns.forget_handshake(column);
    cell.cap.store(wanted as u32, Ordering::Relaxed);
    if had == 0 {
        table.stocked(column).insert(path.leaf());
    }
    if !open {
        cell.open(word::empty(table.cell_generation(row)));
    }
    Ok(())
}

/// Returns the largest cap that a cell gets for its group's usage alone: two batches.
pub(super) fn ordinary_most(table: &Table) -> u64 {
    table.batch * 2
}

/// Reports whether a charge is large: more than a sixteenth of a batch.
pub(super) fn is_large(table: &Table, n: u64) -> bool {
    n > table.batch / 16
}

/// Rounds units down to whole charges of `n` if these are large: a part of one serves none.
pub(super) fn in_charges(table: &Table, n: u64, units: u64) -> u64 {
    if is_large(table, n) { units - units % n } else { units }
}

/// Reports whether `n` more units exceed the `high` of a level.
pub(super) fn is_above_high(path: &RowPath<'_>, n: u64) -> bool {
    let above = |counter: &&PageCounter| {
        let high = counter.limits.high.load(Ordering::Relaxed);
        high < COUNTER_MAX && counter.usage().saturating_add(n) > high
    };
    path.counters().iter().any(above)
}

/// Returns the cap that a cell should have for a charge of `n`. An uncharge passes zero.
///
/// That is a sixteenth of the group's usage, at least an eighth of a batch and at most two batches. A cell that serves
/// large charges gets a larger cap: it has room for at least 16 of them, and at most 32.
fn wanted_cap(table: &Table, row: &Row, n: u64) -> u64 {
    let usage = row.counter.usage().saturating_add(n);
    let large = if is_large(table, n) { n } else { 0 };
    let least = (table.batch / 8).max(2).max(large.saturating_mul(CHARGES_LEAST));
    let most = ordinary_most(table).max(large.saturating_mul(CHARGES_MOST));
    (usage / 16).clamp(least, most).min(word::STOCK_MAX)
}

/// Returns the smaller cap for a cell for large charges if an uncharge of `n` finds it full and its group has shrunk.
/// Returns `None` if that is nearly the present cap. So a group that returns a gigabyte makes its cells smaller on the
/// way, and its ancestors need not drain them.
pub(super) fn shrinks(table: &Table, path: &RowPath<'_>, column: u32, n: u64) -> Option<u64> {
    let cap = u64::from(table.columns.cell(column, path.leaf()).cap.load(Ordering::Relaxed));
    if cap <= ordinary_most(table) {
        return None;
    }
    let wanted = wanted_cap(table, table.row(path.leaf()), n).min(large_cap(table, path, cap));
    let smaller = wanted.max(ordinary_most(table)).max(n.saturating_mul(2));
    (smaller <= cap - cap / 4).then_some(smaller)
}

/// Returns the part of a wanted cap that the ancestors leave. Cap shift makes it smaller. It is at most an eighth of all
/// units that may lie idle, and at most half of what the tightest limit still allows, so that the next cell gets some,
/// too. It is a power of two, so that it changes seldom.
fn grantable_cap(table: &Table, path: &RowPath<'_>, wanted: u64, cap_shift: u32) -> u64 {
    let slack = slack(table);
    let mut cap = wanted.checked_shr(cap_shift).unwrap_or(0).max(2);
    for counter in path.counters() {
        if cap_shift > 0 && counter.cap_shift() > 0 {
            counter.note_calm(cap, slack);
        }
        cap = cap.min((counter.allowed(slack) / 8).max(2)).min(within_headroom(counter));
    }
    power_of_two(cap)
}

/// Returns the largest cap for large charges that the ancestors leave to a cell whose cap is `had`. At every level,
/// cells for large charges may use three quarters of the allowed idle units. A cell gets at most half of what the other
/// cells leave of these. So each such cell leaves room for the next, and the last quarter stays for cells that serve
/// small charges.
fn large_cap(table: &Table, path: &RowPath<'_>, had: u64) -> u64 {
    let slack = slack(table);
    let left = |counter: &&PageCounter| {
        let allowed = counter.allowed(slack);
        let others = counter.track.prepaid.units().saturating_sub(had);
        ((allowed - allowed / 4).saturating_sub(others) / 2)
            .min(within_headroom(counter))
            .min(within_high(counter))
    };
    path.counters().iter().map(left).min().unwrap_or(0)
}

/// Returns half of the units that the limit of a level still allows to lie idle.
fn within_headroom(counter: &PageCounter) -> u64 {
    if counter.max() == COUNTER_MAX {
        return COUNTER_MAX;
    }
    (counter.headroom() / 32).saturating_sub(counter.track.prepaid.units()) / 2
}

/// Returns the part of what is left below a level's `high` that a cell for large charges may hold: a group is above its `high` when
/// its usage without idle units is for sure.
fn within_high(counter: &PageCounter) -> u64 {
    let high = counter.limits.high.load(Ordering::Relaxed);
    if high == COUNTER_MAX {
        return COUNTER_MAX;
    }
    let left = high.saturating_sub(counter.usage());
    (left / 32).saturating_sub(counter.track.prepaid.units()) / 2
}

/// Returns the largest power of two that is not above `cap`, and zero for one and zero.
fn power_of_two(cap: u64) -> u64 {
    match cap.checked_ilog2() {
        Some(bits) if bits > 0 => 1 << bits,
        _ => 0,
    }
}

/// Requests `units` of cap from every level, and takes them from all or from none. If a level refuses for its usage,
/// the error names it. The root comes first, as in a walk: a process that is killed in between leaves no ancestor with
/// less than the levels below it.
fn allow(table: &Table, path: &RowPath<'_>, units: u64) -> Result<(), Option<usize>> {
    let counters = path.counters();
    let own = own(table, path);
    let entitled = own.prepaid.saturating_add(units) <= table.batch;
    for (level, counter) in counters.iter().enumerate().rev() {
        let slack = (level < own.levels || !entitled).then(|| slack(table));
        if let Err(why) = counter.allow(units, slack) {
            for above in &counters[level + 1..] {
                above.disallow(units);
            }
            return Err((why == Unallowed::Usage).then_some(level));
        }
    }
    Ok(())
}

/// Makes a level that refused a cap halve its caps, unless they are already smaller than `cap_shift` makes them. Returns
/// `false` if another try is useless.
fn save(table: &Table, path: &RowPath<'_>, level: usize, cap_shift: u32) -> bool {
    let counter = path.counters()[level];
    let own = own(table, path);
    let mostly_own = || own.prepaid >= counter.track.prepaid.units() / 2;
    // If the cap shift has grown, another thread was refused, too, and has halved the caps.
    counter.cap_shift() > cap_shift
        || (level < own.levels || mostly_own()) && save_once_more(table, path, level)
}

/// Halves the caps of a level and drains it, unless another thread just did.
fn save_once_more(table: &Table, path: &RowPath<'_>, level: usize) -> bool {
    let counter = path.counters()[level];
    // Two batches, halved this often, are two units.
    let saves = counter.save(counter.cap_shift(), table.batch.ilog2());
    if saves {
        drain::subtree(table, path.row(level));
    }
    saves
}

/// Finds the part of the path that belongs to this process.
fn own(table: &Table, path: &RowPath<'_>) -> Own {
    let process = table.process();
    // This is a ledger of one process, or the process that made the ledger and is not attached: its groups share only
    // the root's row with others.
    if process == 0 {
        return Own { levels: path.rows().len(), prepaid: u64::MAX };
    }
    let owned = |row: &&u32| table.row(**row).owner.load(Ordering::Relaxed) == process;
    let levels = path.rows().iter().take_while(owned).count();
    let top = levels.checked_sub(1).map(|top| path.counters()[top]);
    Own { levels, prepaid: top.map_or(0, |top| top.track.prepaid.units()) }
}

/// Drains the levels that have more idle than their headroom tolerates, before a grant makes the headroom smaller.
/// Returns whether there were any. Only levels with a limit are checked, since a larger usage tolerates more.
/// Elsewhere the check would move a line that all CPUs write.
pub(crate) fn trim(table: &Table, path: &RowPath<'_>, counters: &walk::Path<'_>) -> bool {
    // Partner of the fence in `PageCounter::allow`.
    fence(Ordering::SeqCst);
    let mut drained = false;
    for (level, counter) in counters.iter().enumerate().rev() {
        if counter.overstocked_for_headroom() {
            drain::subtree(table, path.row(level));
            drained = true;
        }
    }
    drained
}

/// Drains the levels that have more idle than their usage tolerates, after units were returned. The headroom needs no
/// check, since it has grown.
pub(crate) fn trim_for_usage(table: &Table, path: &RowPath<'_>, counters: &walk::Path<'_>) {
    // As in `trim`.
    fence(Ordering::SeqCst);
    let slack = slack(table);
    for (level, counter) in counters.iter().enumerate().rev() {
        if counter.overstocked_for_usage(slack) {
            trim_level(table, path, level);
        }
    }
}

#[cold]
fn trim_level(table: &Table, path: &RowPath<'_>, level: usize) {
    let own = own(table, path);
    let counter = path.counters()[level];
    // Units in flight arrive without a drain.
    if counter.track.prepaid.units() == 0 {
        return;
    }
    if level < own.levels {
        // A thread that halves the caps at the same time drains, too, but this walk must not go on before a drain has
        // ended.
        if !save_once_more(table, path, level) {
            drain::subtree(table, path.row(level));
        }
    } else if own.prepaid > table.batch {
        drain::subtree(table, path.row(level));
    }
}

/// Drains a group whose limit was lowered, if more lies idle there than the headroom tolerates now.
pub(crate) fn trim_for_headroom(table: &Table, row: u32) {
    // Partner of the fence in `PageCounter::allow`.
    fence(Ordering::SeqCst);
    if table.row(row).counter.overstocked_for_headroom() {
        drain::subtree(table, row);
    }
}

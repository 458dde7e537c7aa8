//! The cap is how much a cell may hold. The group's whole path has a say in it.
//!
//! A cell wants a sixteenth of its group's usage, at least an eighth of a batch and at most two
//! batches. (With less than an eighth, which is 32 KiB unless the user chose another batch, an allocator's blocks of some
//! kilobytes in a group of a few dozen would walk to the counters one time in five: a pair took 28 ns more, and 98 with two
//! threads, where it now takes 7 in both.) The thrift of the ancestors makes that smaller, and the group's whole path grants it: each
//! level adds it to `prepaid`, the sum of the caps below it, and refuses what is too much for its headroom
//! or its usage (`counter/idle.rs`).
//!
//! ```text
//! open_cell(group, column):
//!   the cap is half of what it could be, or more: done
//!   every level grants the cap that thrift and limits leave: done
//!   a limit refuses, or another thread holds the lock: go without
//!   a level refuses for its usage: it halves its caps and is drained; once more
//! trim, before a walk grants:             a limited level has more idle than its headroom tolerates: drain it
//! trim_for_usage, after one returned:     a level has more idle than its usage tolerates: drain it, halve caps
//! ```
//!
//! **Drains are rare.** After a drain for too many cells each of them gets half, so that twice as many fit.
//! After a drain for the usage or the headroom, that must halve again before the next. Caps are doubled
//! when cells have asked as often as would have filled a quarter of what is allowed.
//!
//! **Processes that share a ledger** drain their own cells alone. At a level that belongs to another
//! process (the root) each may have a batch idle whatever the others have, and drains its own cells only if
//! it has more than that. It makes such a level thrifty only if it has most of what lies idle there.

use super::drain;
use crate::counter::{COUNTER_MAX, PageCounter, Unallowed, walk};
use crate::gate::lock;
use crate::percpu::word;
use crate::sync::{Ordering, fence};
use crate::table::Table;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::row::{Row, flag, state};

/// The largest slack of a level: how much may lie idle beside a quarter of what is charged.
const SLACK_MAX: u64 = 16 << 20;
/// The slack in batches.
const SLACK_BATCHES: u64 = 64;
/// How many charges of one size a cell has room for at least.
pub(super) const CHARGES_LEAST: u64 = 16;
/// How many charges of one size a cell has room for at most, where these are large.
const CHARGES_MOST: u64 = 32;

/// The part of a path that belongs to this process.
#[derive(Clone, Copy)]
struct Own {
    /// The levels whose cells all belong to it, from the leaf.
    levels: usize,
    /// How much they allowed to lie idle. (Unknown where all levels belong to it.)
    prepaid: u64,
}

/// How much may lie idle at a level beside a quarter of what is charged there.
pub(crate) fn slack(table: &Table) -> u64 {
    (table.batch * SLACK_BATCHES).min(SLACK_MAX)
}

/// Makes the group's cell in the column open, and its cap as large as the group's usage and its ancestors
/// allow. Returns how many more units it may hold: zero if it is closed.
pub(crate) fn open_cell(
    table: &Table,
    path: &RowPath<'_>,
    id: GroupId,
    column: u32,
    n: u64,
) -> u64 {
    let row = table.row(path.leaf());
    // A cell has one writing process, and a destroyed group needs none.
    if row.owner.load(Ordering::Relaxed) != table.process() || !table.is_live(path.leaf()) {
        return 0;
    }
    let cell = table.columns.cell(column, path.leaf());
    let cap = || {
        let open = word::passes(cell.word.load(Ordering::Acquire), table.cell_id(id));
        if open { u64::from(cell.cap.load(Ordering::Relaxed)) } else { 0 }
    };
    let room = |cap: u64| cap.saturating_sub(word::stock(cell.word.load(Ordering::Relaxed)));
    // The ancestors' lines, which other CPUs write, are not looked at where that is of no use.
    let wanted = wanted_cap(table, row, n);
    if wanted < cap() + cap() / 2 || wanted <= ordinary_most(table) && wanted < cap() * 2 {
        return room(cap());
    }
    let thrift = || path.counters().iter().map(|counter| counter.thrift()).max().unwrap_or(0);
    if wanted > ordinary_most(table) && !is_above_high(path, n) {
        let wanted = wanted.checked_shr(thrift()).unwrap_or(0);
        let granted = wanted.min(large_cap(table, path, cap()));
        if granted >= (cap() + cap() / 2).max(n)
            && enlarge(table, path, id, column, granted).is_ok()
        {
            return room(cap());
        }
    }
    let wanted = wanted.min(ordinary_most(table));
    for saved in [false, true] {
        let thrift = thrift();
        let granted = grantable_cap(table, path, wanted, thrift);
        if granted < (cap() * 2).max(1) {
            break;
        }
        match enlarge(table, path, id, column, granted) {
            Err(Some(level)) if !saved && granted > 2 && save(table, path, level, thrift) => {}
            _ => break,
        }
    }
    room(cap())
}

/// The cap of a thread's purse, which the path has allowed: at most `most`; 0 where less than `least` can be had. It is twice a
/// cell's: a task's blocks come and go by a few dozen kilobytes, and where these go beyond the purse, threads meet at the stock
/// lock (with 32 KiB once in 400 pairs of blocks of up to 4 KiB, and with two threads such a pair took a nanosecond more). The
/// caller has the stock lock.
pub(super) fn allow_purse(table: &Table, path: &RowPath<'_>, least: u64, most: u64) -> u64 {
    let thrift = path.counters().iter().map(|counter| counter.thrift()).max().unwrap_or(0);
    let wanted = (wanted_cap(table, table.row(path.leaf()), 0) * 2).min(most);
    let granted = grantable_cap(table, path, wanted, thrift);
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
    // The row's state is looked at again under the lock: `destroy` retires the row before it takes the lock
    // to close cells. The row may also have become another group's since the path was followed. And a group
    // that is not accounted keeps no cell (`control/mode.rs`).
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
    table.columns.forget_verdict(column);
    cell.cap.store(wanted as u32, Ordering::Relaxed);
    if had == 0 {
        table.stocked(column).insert(path.leaf());
    }
    if !open {
        cell.open(word::empty(table.cell_generation(row)));
    }
    Ok(())
}

/// The largest cap that a cell has for its group's usage alone: two batches.
pub(super) fn ordinary_most(table: &Table) -> u64 {
    table.batch * 2
}

/// Reports whether a charge is large: more than a sixteenth of a batch.
pub(super) fn is_large(table: &Table, n: u64) -> bool {
    n > table.batch / 16
}

/// Reports whether `n` more are above the `high` of a level.
pub(super) fn is_above_high(path: &RowPath<'_>, n: u64) -> bool {
    let above = |counter: &&PageCounter| {
        let high = counter.limits.high.load(Ordering::Relaxed);
        high < COUNTER_MAX && counter.usage().saturating_add(n) > high
    };
    path.counters().iter().any(above)
}

/// Returns the cap that a cell should have when a charge of `n` asks, or an uncharge, which asks for zero.
///
/// That is a sixteenth of the group's usage, at least an eighth of a batch and at most two batches. A cell that serves large
/// charges is larger: it has room for 16 of them at least, and for 32 at most.
fn wanted_cap(table: &Table, row: &Row, n: u64) -> u64 {
    let usage = row.counter.usage().saturating_add(n);
    let large = if is_large(table, n) { n } else { 0 };
    let least = (table.batch / 8).max(2).max(large.saturating_mul(CHARGES_LEAST));
    let most = ordinary_most(table).max(large.saturating_mul(CHARGES_MOST));
    (usage / 16).clamp(least, most).min(word::STOCK_MAX)
}

/// Returns the cap that a cell for large charges keeps when an uncharge of `n` finds it full and its group has shrunk; `None`
/// where that is nearly today's. So a group that returns a gigabyte makes its cells smaller on the way, and its
/// ancestors need not drain them.
pub(super) fn shrinks(table: &Table, path: &RowPath<'_>, column: u32, n: u64) -> Option<u64> {
    let cap = u64::from(table.columns.cell(column, path.leaf()).cap.load(Ordering::Relaxed));
    if cap <= ordinary_most(table) {
        return None;
    }
    let wanted = wanted_cap(table, table.row(path.leaf()), n).min(large_cap(table, path, cap));
    let smaller = wanted.max(ordinary_most(table)).max(n.saturating_mul(2));
    (smaller <= cap - cap / 4).then_some(smaller)
}

/// Returns the part of a wanted cap that the ancestors leave. Thrift makes it smaller. It is no more than an eighth
/// of what may lie idle in all, and half of what the tightest limit still allows (so that the next cell
/// gets some too). It is a power of two, so that it changes seldom.
fn grantable_cap(table: &Table, path: &RowPath<'_>, wanted: u64, thrift: u32) -> u64 {
    let slack = slack(table);
    let mut cap = wanted.checked_shr(thrift).unwrap_or(0).max(2);
    for counter in path.counters() {
        if thrift > 0 && counter.thrift() > 0 {
            counter.note_calm(cap, slack);
        }
        cap = cap.min((counter.allowed(slack) / 8).max(2)).min(within_headroom(counter));
    }
    power_of_two(cap)
}

/// Returns the largest cap for large charges that the ancestors leave to a cell that has a cap of `had`. At every level it is at
/// most half of what the other cells leave of three quarters of the idle units that are allowed there. So each such cell leaves
/// room for the next, and all of them leave the last quarter to cells that serve small charges.
fn large_cap(table: &Table, path: &RowPath<'_>, had: u64) -> u64 {
    let slack = slack(table);
    let left = |counter: &&PageCounter| {
        let allowed = counter.allowed(slack);
        let others = counter.track.prepaid.units().saturating_sub(had);
        ((allowed - allowed / 4).saturating_sub(others) / 2).min(within_headroom(counter))
    };
    path.counters().iter().map(left).min().unwrap_or(0)
}

/// Returns half of what the limit of a level still allows to lie idle.
fn within_headroom(counter: &PageCounter) -> u64 {
    if counter.max() == COUNTER_MAX {
        return COUNTER_MAX;
    }
    (counter.headroom() / 32).saturating_sub(counter.track.prepaid.units()) / 2
}

/// Returns the largest power of two that is not above `cap`, and zero for one and zero.
fn power_of_two(cap: u64) -> u64 {
    match cap.checked_ilog2() {
        Some(bits) if bits > 0 => 1 << bits,
        _ => 0,
    }
}

/// Asks every level for `units` of cap, and takes them from all or from none. If a level refuses for its
/// usage, the error names it. The root comes first, as in a walk: a process that is killed in between
/// leaves no ancestor with less than the levels below it.
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

/// Makes a level that refused a cap allow smaller caps than `thrift` gives. Says `false` if that is of no
/// use.
fn save(table: &Table, path: &RowPath<'_>, level: usize, thrift: u32) -> bool {
    let counter = path.counters()[level];
    let own = own(table, path);
    let mostly_own = || own.prepaid >= counter.track.prepaid.units() / 2;
    // Another thread was refused, too, and has halved the caps.
    counter.thrift() > thrift
        || (level < own.levels || mostly_own()) && save_once_more(table, path, level)
}

/// Halves the caps of a level and drains it, unless another thread is doing that.
fn save_once_more(table: &Table, path: &RowPath<'_>, level: usize) -> bool {
    let counter = path.counters()[level];
    // Two batches, halved so often, are two units.
    let saves = counter.save(counter.thrift(), table.batch.ilog2());
    if saves {
        drain::subtree(table, path.row(level));
    }
    saves
}

/// Finds the part of the path that belongs to this process.
fn own(table: &Table, path: &RowPath<'_>) -> Own {
    let process = table.process();
    // This is a ledger of one process, or the process that made it and is not attached: its groups share no
    // row with others but the root.
    if process == 0 {
        return Own { levels: path.rows().len(), prepaid: u64::MAX };
    }
    let owned = |row: &&u32| table.row(**row).owner.load(Ordering::Relaxed) == process;
    let levels = path.rows().iter().take_while(owned).count();
    let top = levels.checked_sub(1).map(|top| path.counters()[top]);
    Own { levels, prepaid: top.map_or(0, |top| top.track.prepaid.units()) }
}

/// Drains the levels that have more idle than their headroom tolerates, before a grant makes the headroom
/// smaller. Says whether there were any. (A usage tolerates more after a grant, so only levels with a limit
/// are looked at. Elsewhere the look would move a line that all CPUs write.)
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

/// Drains the levels that have more idle than their usage tolerates, after units were returned (which
/// leaves more headroom).
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
    // Units in flight arrive by themselves.
    if counter.track.prepaid.units() == 0 {
        return;
    }
    if level < own.levels {
        // A thread that halves the caps at the same time drains, too; but this walk must not go on before
        // the drain.
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

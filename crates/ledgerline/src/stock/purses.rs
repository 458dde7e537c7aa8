//! Threads' purses: how they get units of a group, and give them back.
//!
//! ```text
//! open(group):      the thread's purse was of another group: close it
//!                   every level allows a cap (as for a cell): the purse is open, and empty
//! fetch(group, n):  the running CPU's cell has n and more: n is charged, some of the rest goes to the purse
//! bring(group, n):  what is above half of the purse's cap goes to the running CPU's cell, and n with it
//! close:            by its thread, when it ends or opens it for another group; by a drain; when the group is destroyed
//! ```
//!
//! A purse's cap counts as a cell's, at every level. What moves between a purse and a cell moves under the stock lock: so a
//! drain, and whoever drains before it refuses a charge, finds it in one of them. A thread that does not get the lock at once
//! goes on with the cell.

use super::{caps, drain};
use crate::gate::lock::{self, Held, Inside};
use crate::os::at_end::AtEnd;
use crate::percpu::purse::places::{self, Moving};
use crate::percpu::purse::{self, Purse};
use crate::percpu::word;
use crate::sync::{Ordering, are_calls_forbidden};
use crate::table::handle::Packed;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::row::{flag, state};
use crate::table::{Table, counts, purses};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicBool;

/// The smallest purse worth having, in units.
const LEAST: u64 = 1 << 12;
/// How many allocations that its purse does not serve a thread makes before it opens the purse for the group of one: that takes as
/// long as a hundred of them, and a lock. (So tasks of a few blocks, each of another group, leave it as it is.)
const EVERY: u32 = 128;
/// Where the purse has served fewer than `PAID` times as many since, it waits twice as long for the next group, up to `AT_MOST`.
const AT_MOST: u32 = 2048;
/// See [`AT_MOST`].
const PAID: u32 = 4;
/// How many more it makes where the lock was another's.
const AGAIN: u32 = 16;
/// Closes a thread's purse when the thread ends.
static AT_END: AtEnd = AtEnd::new();

/// When a thread opens its purse.
#[derive(Clone, Copy)]
struct Due {
    /// After so many allocations that it does not serve, being another group's or closed.
    left: u32,
    /// How many that are from one time to the next.
    every: u32,
}

thread_local! {
    static DUE: Cell<Due> = const { Cell::new(Due { left: EVERY, every: EVERY }) };
}

/// Whether threads may have purses of a table's groups: where sections are fast, and in no ledger that processes share (a
/// killed process's purse would be lost) or that keeps flows or is audited; and where drains may fence.
pub(crate) fn are_for(table: &Table) -> bool {
    table.columns.is_fast() && table.detour == 0 && !table.is_shared() && !are_calls_forbidden()
}

/// The thread's purse is another group's, or closed, and does not serve an allocation. Says whether it is to be opened for that
/// group by now.
#[inline]
pub(crate) fn misses() -> bool {
    let due = DUE.get();
    DUE.set(Due { left: due.left.saturating_sub(1), ..due });
    due.left <= 1
}

/// There is no purse to be had: the thread asks again a long while later.
pub(crate) fn put_off() {
    DUE.set(Due { left: AT_MOST, every: DUE.get().every });
}

/// Opens the calling thread's purse for a group that it charges, if that can be done at once. `number` is the allocator's of
/// the group.
#[cold]
#[inline(never)]
pub(crate) fn open(table: &'static Table, group: Packed, number: u16) {
    let id = group.unpack().id();
    let _inside = lock::pass();
    let every = DUE.get().every;
    DUE.set(Due { left: AGAIN, every });
    let Some(_held) = lock::try_lock() else { return };
    put_off();
    let Some((purse, had)) = places::claim(lock::thread(), hear_its_end) else { return };
    // (Of those that it served the purse counts the last.)
    let served = purse::counts(purse.word()).0;
    let paid = !had || !places::is_open(purse) || served >= u64::from(PAID * every);
    let every = if paid { EVERY } else { (2 * every).min(AT_MOST) };
    DUE.set(Due { left: every, every });
    if places::is_open(purse) {
        if had && purse.group() == group.raw() {
            return;
        }
        // (Another thread may have left it in the middle of a section, and live: a forked child that attaches forgets its
        // threads.)
        purse.freeze();
        if !had && !is_frozen_for_all(table, purse) || !close_own(purse) {
            return;
        }
    }
    let row = table.row(id.index());
    let mut path = RowPath::blank(table);
    // As in `caps::enlarge`: `destroy` retires the row before it takes the lock.
    if !path.find(table, id)
        || row.state.load(Ordering::SeqCst) != state::LIVE
        || !path.is_current(table)
        || row.has(flag::OFF)
    {
        return;
    }
    let most = caps::allow_purse(table, &path, LEAST, purse::MOST);
    if most > 0 {
        purse.open(group.raw(), number.into(), purses::address(table), most);
        places::note(purse, true);
    }
}

/// Whether no section of any thread will store over a purse that is frozen.
fn is_frozen_for_all(table: &Table, purse: &Purse) -> bool {
    (0..drain::ROUNDS).any(|_| {
        let fenced = table.columns.fence();
        let frozen = purse::is_frozen(purse.word());
        purse.freeze();
        fenced && frozen
    })
}

/// Charges `n` units that the thread's purse, which is the group's, does not have: from the cell, of which the purse gets
/// some more. Says `false` where that is not to be had at once.
#[cold]
#[inline(never)]
pub(crate) fn fetch(table: &Table, group: Packed, purse: &Purse, n: u64) -> bool {
    let usable = n <= purse.most() / 4 && !purse::is_frozen(purse.word());
    if !usable || !purse.is_of(lock::thread()) {
        return false;
    }
    let Some((_inside, _held, units)) = hold(purse, group) else { return false };
    let (id, columns) = (group.unpack().id(), &table.columns);
    let cell = columns.cell(columns.current(), id.index());
    let there = word::stock(cell.word.load(Ordering::Relaxed));
    let want = (purse.most() / 2).saturating_sub(units);
    let more = want.min(there.saturating_sub(n) / 2);
    if more == 0 {
        return false;
    }
    let _moving = Moving::begin();
    if !columns.take(table.cell_id(id), n + more) {
        return false;
    }
    match purse.change(more as i64) {
        Some(counted) => counts::add(table, columns.current(), id.index(), counted),
        // A signal handler has put so much into the purse meanwhile. Then the cell has just lost as much.
        None if columns.deposit(table.cell_id(id), more) => {}
        None => give_back(table, id, more),
    }
    true
}

/// Uncharges `n` units for which the thread's purse, which is the group's, has no room: to the cell, with what is above half of
/// the purse's cap. Says `false` where that cannot be done at once.
#[cold]
#[inline(never)]
pub(crate) fn bring(table: &Table, group: Packed, purse: &Purse, n: u64) -> bool {
    if purse::is_frozen(purse.word()) || !purse.is_of(lock::thread()) {
        return false;
    }
    let Some((_inside, _held, units)) = hold(purse, group) else { return false };
    let (id, columns) = (group.unpack().id(), &table.columns);
    let count = |counted| counts::add(table, columns.current(), id.index(), counted);
    let above = units.saturating_sub(purse.most() / 2);
    if n + above > word::STOCK_MAX {
        return false;
    }
    let _moving = Moving::begin();
    let Some(counted) = purse.change(-(above as i64)) else { return false };
    count(counted);
    if columns.put(table.cell_id(id), n + above) {
        return true;
    }
    match purse.change(above as i64) {
        Some(counted) => count(counted),
        None => give_back(table, id, above),
    }
    false
}

/// Passes the gate and takes the stock lock, if both the lock and the thread's purse are to be had at once and the purse is the
/// group's. Returns its units, too. (A signal handler may have opened it for another group. With the lock held, none does.)
fn hold(purse: &Purse, group: Packed) -> Option<(Inside, Held, u64)> {
    let inside = lock::pass();
    let held = lock::try_lock()?;
    let word = purse.word();
    if purse::is_frozen(word) || purse.group() != group.raw() {
        return None;
    }
    Some((inside, held, purse::units(word)))
}

/// Closes the calling thread's open purse. Says `false` if its group's row leads nowhere (another program wrote over it). The
/// caller has the stock lock.
fn close_own(purse: &Purse) -> bool {
    purse.freeze();
    // SAFETY: the address of the table of a ledger that lives for good (`open`).
    let table = unsafe { &*ptr::with_exposed_provenance::<Table>(purse.table()) };
    let group = Packed::from_raw(purse.group());
    let path = group.and_then(|group| RowPath::new(table, group.unpack().id().index()));
    let Some(path) = path else { return false };
    let (units, cap) = drain::empty_purse(table, &path, purse);
    drain::return_idle(table, &path, units, cap);
    places::note(purse, false);
    true
}

/// Returns units for which there is room nowhere else.
#[cold]
fn give_back(table: &Table, id: GroupId, units: u64) {
    if let Some(path) = RowPath::of(table, id) {
        super::give_back(table, &path, units);
    }
}

/// Has the thread's end close its purse. The caller has the stock lock.
fn hear_its_end(purse: &'static Purse) -> bool {
    static TRIED: AtomicBool = AtomicBool::new(false);
    if !TRIED.swap(true, Ordering::Relaxed) {
        AT_END.begin(ends);
    }
    AT_END.set(ptr::from_ref(purse).cast())
}

/// The thread that has a purse ends. What it still charges takes its units from the cells.
extern "C" fn ends(purse: *mut c_void) {
    // SAFETY: the key's value is a purse, which is static.
    let purse = unsafe { &*purse.cast_const().cast::<Purse>() };
    if !purse.is_of(lock::thread()) {
        return;
    }
    // (First: a signal handler opens it no more.)
    places::end();
    let _inside = lock::pass();
    // (A signal handler that ends a thread in the middle of a drain leaves the purse open. Whoever gets the place closes it.)
    if let Some(_held) = lock::lock()
        && places::is_open(purse)
    {
        close_own(purse);
    }
    places::give_back(purse);
}

#[cfg(test)]
mod tests;

//! Fills and empties threads' purses with units of a group.
//!
//! ```text
//! open(group):      the thread's purse was of another group: close it
//!                   every level allows a cap (as for a cell): the purse is open, and empty
//! fetch(group, n):  the running CPU's cell has n and more: n is charged, some of the rest goes to the purse
//! bring(group, n):  what is above half of the purse's cap goes to the running CPU's cell, and n with it
//! close:            by its thread, when it ends or opens it for another group; by a drain; when the group is destroyed
//! ```
//!
//! A purse's cap counts at every level like a cell's. Units move between a purse and a cell only under the stock lock,
//! so a drain, including the drain before a refusal, finds them in one of the two. A thread that does not get the lock
//! at once goes on with the cell.

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
/// After this many allocations that its purse does not serve, a thread opens the purse for the group of the last one.
/// Opening takes as long as a hundred allocations, and a lock. So tasks of a few blocks, each of another group, leave
/// the purse as it is.
const EVERY: u32 = 128;
/// If the purse has served fewer than `PAID` times as many since, the thread waits twice as long before it opens it for
/// the next group, up to `AT_MOST`.
const AT_MOST: u32 = 2048;
/// See [`AT_MOST`].
const PAID: u32 = 4;
/// The number of further allocations before the next try, if another thread had the lock.
const AGAIN: u32 = 16;
/// Closes a thread's purse when the thread ends.
static AT_END: AtEnd = AtEnd::new();

/// Decides when a thread opens its purse.
#[derive(Clone, Copy)]
struct Due {
    /// The remaining allocations that the purse does not serve, because it is another group's or closed.
    left: u32,
    /// The number of such allocations between two openings.
    every: u32,
}

thread_local! {
    static DUE: Cell<Due> = const { Cell::new(Due { left: EVERY, every: EVERY }) };
}

/// Returns whether threads may have purses for a table's groups. This needs fast sections, and drains that may fence. A
/// ledger that processes share has none, since a killed process's purse would be lost, nor has a ledger that keeps
/// flows or is audited.
pub(crate) fn are_for(table: &Table) -> bool {
    table.columns.is_fast() && table.detour == 0 && !table.is_shared() && !are_calls_forbidden()
}

/// Counts an allocation that the thread's purse does not serve, because it is another group's or closed. Returns
/// whether it is time to open it for that group.
#[inline]
pub(crate) fn misses() -> bool {
    let due = DUE.get();
    DUE.set(Due { left: due.left.saturating_sub(1), ..due });
    due.left <= 1
}

/// Postpones the next try for a long while, since no purse is available.
pub(crate) fn put_off() {
    DUE.set(Due { left: AT_MOST, every: DUE.get().every });
}

/// Opens the calling thread's purse for a group that it charges, if that can be done at once. `number` is the
/// allocator's number of the group.
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
    // `served` covers only the latest of the allocations that the purse served.
    let served = purse::counts(purse.word()).0;
    let paid = !had || !places::is_open(purse) || served >= u64::from(PAID * every);
    let every = if paid { EVERY } else { (2 * every).min(AT_MOST) };
    DUE.set(Due { left: every, every });
    if places::is_open(purse) {
        if had && purse.group() == group.raw() {
            return;
        }
        // Another thread may have left the purse in the middle of a section and still be alive: a forked child that
        // attaches forgets its threads.
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

/// Returns whether no section of any thread will store over a frozen purse.
fn is_frozen_for_all(table: &Table, purse: &Purse) -> bool {
    (0..drain::ROUNDS).any(|_| {
        let fenced = table.columns.fence();
        let frozen = purse::is_frozen(purse.word());
        purse.freeze();
        fenced && frozen
    })
}

/// Charges `n` units that the thread's purse for the group does not have: takes them from the cell, and some more for
/// the purse. Returns `false` if that cannot be done at once.
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
        // A signal handler has filled the purse meanwhile. The cell has room, since it just lost these units.
        None if columns.deposit(table.cell_id(id), more) => {}
        None => give_back(table, id, more),
    }
    true
}

/// Uncharges `n` units for which the thread's purse for the group has no room: puts them into the cell, together with
/// the units above half of the purse's cap. Returns `false` if that cannot be done at once.
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

/// Passes the gate and takes the stock lock, if both the lock and the thread's purse are available at once and the
/// purse is the group's. Returns its units, too. The group is checked under the lock, since a signal handler may have
/// opened the purse for another group. With the lock held, none does.
fn hold(purse: &Purse, group: Packed) -> Option<(Inside, Held, u64)> {
    let inside = lock::pass();
    let held = lock::try_lock()?;
    let word = purse.word();
    if purse::is_frozen(word) || purse.group() != group.raw() {
        return None;
    }
    Some((inside, held, purse::units(word)))
}

/// Closes the calling thread's open purse. Returns `false` if its group's row has no valid path, because another
/// program wrote over it. The caller has the stock lock.
fn close_own(purse: &Purse) -> bool {
    purse.freeze();
    // SAFETY: the address is that of a table of a ledger that lives for good (`open`).
    let table = unsafe { &*ptr::with_exposed_provenance::<Table>(purse.table()) };
    let group = Packed::from_raw(purse.group());
    let path = group.and_then(|group| RowPath::new(table, group.unpack().id().index()));
    let Some(path) = path else { return false };
    let (units, cap) = drain::empty_purse(table, &path, purse);
    drain::return_idle(table, &path, units, cap);
    places::note(purse, false);
    true
}

/// Returns units to the counters, for which neither cell nor purse has room.
#[cold]
fn give_back(table: &Table, id: GroupId, units: u64) {
    if let Some(path) = RowPath::of(table, id) {
        super::give_back(table, &path, units);
    }
}

/// Registers the purse to be closed when the thread ends. The caller has the stock lock.
fn hear_its_end(purse: &'static Purse) -> bool {
    static TRIED: AtomicBool = AtomicBool::new(false);
    if !TRIED.swap(true, Ordering::Relaxed) {
        AT_END.begin(ends);
    }
    AT_END.set(ptr::from_ref(purse).cast())
}

/// Closes the purse of a thread that ends. Later charges of the thread take their units from the cells.
extern "C" fn ends(purse: *mut c_void) {
    // SAFETY: the key's value is a purse, which is static.
    let purse = unsafe { &*purse.cast_const().cast::<Purse>() };
    if !purse.is_of(lock::thread()) {
        return;
    }
    // This comes first, so that a signal handler no longer opens the purse.
    places::end();
    let _inside = lock::pass();
    // A signal handler that ends a thread in the middle of a drain leaves the purse open. The next thread that gets the
    // place closes it.
    if let Some(_held) = lock::lock()
        && places::is_open(purse)
    {
        close_own(purse);
    }
    places::give_back(purse);
}

#[cfg(test)]
mod tests;

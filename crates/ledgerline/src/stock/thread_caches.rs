//! Fills and empties threads' caches with units of a group.
//!
//! ```text
//! open(group):      the thread's cache was of another group: close it
//!                   every level allows a cap (as for a cell): the thread cache is open, and empty
//! fetch(group, n):  the running CPU's cell has n and more: n is charged, some of the rest goes to the thread cache
//! bring(group, n):  what is above half of the thread cache's cap goes to the running CPU's cell, and n with it
//! close:            by its thread, when it ends or opens it for another group; by a drain; when the group is destroyed
//! ```
//!
//! A thread cache's cap counts at every level like a cell's. Units move between a thread cache and a cell only under the stock
//! lock,
//! so a drain, including the drain before a refusal, finds them in one of the two. A thread that does not get the lock
//! at once goes on with the cell.

use super::{caps, drain};
use crate::gate::lock::{self, Held, Inside};
use crate::os::at_end::AtEnd;
use crate::percpu::thread_cache::places::{self, Moving};
use crate::percpu::thread_cache::{self, ThreadCache};
use crate::percpu::word;
use crate::sync::{Ordering, are_calls_forbidden};
use crate::table::handle::Packed;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::row::{flag, state};
use crate::table::{Table, counts, thread_caches};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicBool;

/// The smallest thread cache worth having, in units.
const LEAST: u64 = 1 << 12;
/// After this many allocations that its thread cache does not serve, a thread opens the thread cache for the group of the last
/// one.
/// Opening takes as long as a hundred allocations, and a lock. So tasks of a few blocks, each of another group, leave
/// the thread cache as it is.
const EVERY: u32 = 128;
/// If the thread cache has served fewer than `PAID` times as many since, the thread waits twice as long before it opens it for
/// the next group, up to `AT_MOST`.
const AT_MOST: u32 = 2048;
/// See [`AT_MOST`].
const PAID: u32 = 4;
/// The number of further allocations before the next try, if another thread had the lock.
const AGAIN: u32 = 16;
/// Closes a thread's cache when the thread ends.
static AT_END: AtEnd = AtEnd::new();

/// Decides when a thread opens its thread cache.
#[derive(Clone, Copy)]
struct Due {
    /// The remaining allocations that the thread cache does not serve, because it is another group's or closed.
    left: u32,
    /// The number of such allocations between two openings.
    every: u32,
}

thread_local! {
    static DUE: Cell<Due> = const { Cell::new(Due { left: EVERY, every: EVERY }) };
}

/// Returns whether threads may have thread caches for a table's groups. This needs fast sections, and drains that may fence. A
/// ledger that processes share has none, since a killed process's thread cache would be lost, nor has a ledger that keeps
/// flows or is audited.
pub(crate) fn are_for(table: &Table) -> bool {
    table.columns.is_fast() && table.detour == 0 && !table.is_shared() && !are_calls_forbidden()
}

/// Counts an allocation that the thread's cache does not serve, because it is another group's or closed. Returns
/// whether it is time to open it for that group.
#[inline]
pub(crate) fn misses() -> bool {
    let due = DUE.get();
    DUE.set(Due { left: due.left.saturating_sub(1), ..due });
    due.left <= 1
}

/// Postpones the next try for a long while, since no thread cache is available.
pub(crate) fn put_off() {
    DUE.set(Due { left: AT_MOST, every: DUE.get().every });
}

/// Opens the calling thread's cache for a group that it charges, if that can be done at once. `number` is the
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
    let Some((thread_cache, had)) = places::claim(lock::thread(), hear_its_end) else { return };
    // `served` covers only the latest of the allocations that the thread cache served.
    let served = thread_cache::counts(thread_cache.word()).0;
    let paid = !had || !places::is_open(thread_cache) || served >= u64::from(PAID * every);
    let every = if paid { EVERY } else { (2 * every).min(AT_MOST) };
    DUE.set(Due { left: every, every });
    if places::is_open(thread_cache) {
        if had && thread_cache.group() == group.raw() {
            return;
        }
        // Another thread may have left the thread cache in the middle of a section and still be alive: a forked child that
        // attaches forgets its threads.
        thread_cache.freeze();
        if !had && !is_frozen_for_all(table, thread_cache) || !close_own(thread_cache) {
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
    let most = caps::allow_thread_cache(table, &path, LEAST, thread_cache::MOST);
    if most > 0 {
        thread_cache.open(group.raw(), number.into(), thread_caches::address(table), most);
        places::note(thread_cache, true);
    }
}

/// Returns whether no section of any thread will store over a frozen thread cache.
fn is_frozen_for_all(table: &Table, thread_cache: &ThreadCache) -> bool {
    (0..drain::ROUNDS).any(|_| {
        let fenced = table.columns.fence();
        let frozen = thread_cache::is_frozen(thread_cache.word());
        thread_cache.freeze();
        fenced && frozen
    })
}

/// Charges `n` units that the thread's cache for the group does not have: takes them from the cell, and some more for
/// the thread cache. Returns `false` if that cannot be done at once.
#[cold]
#[inline(never)]
pub(crate) fn fetch(table: &Table, group: Packed, thread_cache: &ThreadCache, n: u64) -> bool {
    let usable = n <= thread_cache.most() / 4 && !thread_cache::is_frozen(thread_cache.word());
    if !usable || !thread_cache.is_of(lock::thread()) {
        return false;
    }
    let Some((_inside, _held, units)) = hold(thread_cache, group) else { return false };
    let (id, columns) = (group.unpack().id(), &table.columns);
    let cell = columns.cell(columns.current(), id.index());
    let there = word::stock(cell.word.load(Ordering::Relaxed));
    let want = (thread_cache.most() / 2).saturating_sub(units);
    let more = want.min(there.saturating_sub(n) / 2);
    if more == 0 {
        return false;
    }
    let _moving = Moving::begin();
    if !columns.take(table.cell_id(id), n + more) {
        return false;
    }
    match thread_cache.change(more as i64) {
        Some(counted) => counts::add(table, columns.current(), id.index(), counted),
        // A signal handler has filled the thread cache meanwhile. The cell has room, since it just lost these units.
        None if columns.deposit(table.cell_id(id), more) => {}
        None => give_back(table, id, more),
    }
    true
}

/// Uncharges `n` units for which the thread's cache for the group has no room: puts them into the cell, together with
/// the units above half of the thread cache's cap. Returns `false` if that cannot be done at once.
#[cold]
#[inline(never)]
pub(crate) fn bring(table: &Table, group: Packed, thread_cache: &ThreadCache, n: u64) -> bool {
    if thread_cache::is_frozen(thread_cache.word()) || !thread_cache.is_of(lock::thread()) {
        return false;
    }
    let Some((_inside, _held, units)) = hold(thread_cache, group) else { return false };
    let (id, columns) = (group.unpack().id(), &table.columns);
    let count = |counted| counts::add(table, columns.current(), id.index(), counted);
    let above = units.saturating_sub(thread_cache.most() / 2);
    if n + above > word::STOCK_MAX {
        return false;
    }
    let _moving = Moving::begin();
    let Some(counted) = thread_cache.change(-(above as i64)) else { return false };
    count(counted);
    if columns.put(table.cell_id(id), n + above) {
        return true;
    }
    match thread_cache.change(above as i64) {
        Some(counted) => count(counted),
        None => give_back(table, id, above),
    }
    false
}

/// Passes the gate and takes the stock lock, if both the lock and the thread's cache are available at once and the
/// thread cache is the group's. Returns its units, too. The group is checked under the lock, since a signal handler may have
/// opened the thread cache for another group. With the lock held, none does.
fn hold(thread_cache: &ThreadCache, group: Packed) -> Option<(Inside, Held, u64)> {
    let inside = lock::pass();
    let held = lock::try_lock()?;
    let word = thread_cache.word();
    if thread_cache::is_frozen(word) || thread_cache.group() != group.raw() {
        return None;
    }
    Some((inside, held, thread_cache::units(word)))
}

/// Closes the calling thread's open thread cache. Returns `false` if its group's row has no valid path, because another
/// program wrote over it. The caller has the stock lock.
fn close_own(thread_cache: &ThreadCache) -> bool {
    thread_cache.freeze();
    // SAFETY: the address is that of a table of a ledger that lives for good (`open`).
    let table = unsafe { &*ptr::with_exposed_provenance::<Table>(thread_cache.table()) };
    let group = Packed::from_raw(thread_cache.group());
    let path = group.and_then(|group| RowPath::new(table, group.unpack().id().index()));
    let Some(path) = path else { return false };
    let (units, cap) = drain::empty_thread_cache(table, &path, thread_cache);
    drain::return_idle(table, &path, units, cap);
    places::note(thread_cache, false);
    true
}

/// Returns units to the counters, for which neither cell nor thread cache has room.
#[cold]
fn give_back(table: &Table, id: GroupId, units: u64) {
    if let Some(path) = RowPath::of(table, id) {
        super::give_back(table, &path, units);
    }
}

/// Registers the thread cache to be closed when the thread ends. The caller has the stock lock.
fn hear_its_end(thread_cache: &'static ThreadCache) -> bool {
    static TRIED: AtomicBool = AtomicBool::new(false);
    if !TRIED.swap(true, Ordering::Relaxed) {
        AT_END.begin(ends);
    }
    AT_END.set(ptr::from_ref(thread_cache).cast())
}

/// Closes the thread cache of a thread that ends. Later charges of the thread take their units from the cells.
extern "C" fn ends(thread_cache: *mut c_void) {
    // SAFETY: the key's value is a thread cache, which is static.
    let thread_cache = unsafe { &*thread_cache.cast_const().cast::<ThreadCache>() };
    if !thread_cache.is_of(lock::thread()) {
        return;
    }
    // This comes first, so that a signal handler no longer opens the thread cache.
    places::end();
    let _inside = lock::pass();
    // A signal handler that ends a thread in the middle of a drain leaves the thread cache open. The next thread that gets the
    // place closes it.
    if let Some(_held) = lock::lock()
        && places::is_open(thread_cache)
    {
        close_own(thread_cache);
    }
    places::give_back(thread_cache);
}

#[cfg(test)]
mod tests;

//! Determines the owner of a new block, and charges it on the slow path.

use super::limit::{self, Granted};
use crate::control::slow_path;
use crate::current;
use crate::current::slots::{self, Slot, Without};
use crate::group::Group;
use crate::percpu::thread_cache::{self, places};
use crate::percpu::{self, word};
use crate::stock::AtLimit;
use crate::stock::refusal::{Reason, Refusal};
use crate::stock::thread_caches;
use crate::sync::Ordering;
use crate::table::handle::Packed;
use crate::table::path::DEPTH_MAX;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Whether new blocks are charged at all.
static ON: AtomicBool = AtomicBool::new(true);
/// The group that is charged if there is no current group; zero for none.
static DEFAULT: AtomicU64 = AtomicU64::new(0);
/// Reported by [`counts`](super::counts).
pub(super) static ABOVE: AtomicU64 = AtomicU64::new(0);
pub(super) static UNOWNED: AtomicU64 = AtomicU64::new(0);

/// The outcome of a charge.
pub(super) enum Charged {
    /// The block bears the number of this slot.
    To(&'static Slot),
    Nobody,
    /// A limit refused; [`limit`] has the reason.
    Refused,
}

/// Returns whether a new block is charged here and now. A panicking thread is not charged for its message, for the
/// table of symbols that std keeps for backtraces, or for allocations in destructors.
#[inline(always)]
pub(super) fn is_on() -> bool {
    // Relaxed: no other data depends on the flag.
    ON.load(Ordering::Relaxed) && !std::thread::panicking()
}

/// Switches the accounting of new blocks on or off, for the whole process, at once. While it is off, new blocks are
/// not accounted, and a pair still costs a call and a few loads. Older blocks are credited as before when they are
/// freed, and charged when they grow. Accounting is on at first.
///
/// To measure and refuse nothing, set the [mode](Group::set_mode) of a group to
/// [`Measure`](crate::ControlMode::Measure) instead.
pub fn set_accounting(on: bool) {
    ON.store(on, Ordering::SeqCst);
    thread_cache::serve(on);
}

/// Sets the group that is charged if there is no current group: for the program's own allocations. Returns the
/// previous one. Such a block takes some ten nanoseconds more than one of a current group.
pub fn set_default(group: Option<Group<'static>>) -> Option<Group<'static>> {
    let raw = group.map_or(0, |group| group.pack().raw());
    Packed::from_raw(DEFAULT.swap(raw, Ordering::Relaxed)).map(Group::unpack)
}

#[inline(always)]
pub(super) fn has_default() -> bool {
    DEFAULT.load(Ordering::Relaxed) != 0
}

/// Charges a block of the thread's current group if that is one step: with units from the running CPU's cell. The
/// thread's cache gets some of them when it has too few.
#[inline(always)]
pub(super) fn take(units: u64) -> Option<&'static Slot> {
    let current = current::get();
    let (slot, group) = (current.slot?, current.group?);
    // Reads the parts first: if the slot is the group's afterwards, the parts are the group's.
    let (cell, generation_bits) = slot.parts();
    if !slot.holds(group) || !is_on() {
        return None;
    }
    let thread_cache = places::mine();
    let is_groups = thread_cache.is_open_for(group.raw());
    if !is_groups && thread_caches::misses() {
        // `charge` opens the thread cache.
        return None;
    }
    let fetched = is_groups
        && thread_caches::fetch(
            Group::<'static>::unpack(group).table(),
            group,
            thread_cache,
            units,
        );
    // SAFETY: the parts are those of a group's handle (R2), and a thread notes slots only where sections are fast. Guarded by
    // `tests/alloc/alloc_oracle.rs`.
    (fetched || unsafe { percpu::take_known(cell, generation_bits, units) }).then_some(slot)
}

/// Uncharges a block's owner if that is one step: into the running CPU's cell, together with some of the thread's
/// thread cache when that has too many.
#[inline(always)]
pub(super) fn put(slot: &Slot, units: u64) -> bool {
    let (cell, generation_bits) = slot.parts();
    // Null in the slot of another process's group.
    if cell.is_null() || units > word::STOCK_MAX {
        return false;
    }
    let thread_cache = places::mine();
    let brought = thread_cache.number() == u64::from(slot.number())
        && slot.group().is_some_and(|group| {
            thread_caches::bring(group.table(), group.pack(), thread_cache, units)
        });
    // SAFETY: the parts are those of a group's handle (R2).
    brought || unsafe { percpu::put_fast(cell, generation_bits, units) }
}

/// Charges a block to the thread's current group, or to the default one.
#[cold]
#[inline(never)]
pub(super) fn charge(units: u64) -> Charged {
    let default = || Packed::from_raw(DEFAULT.load(Ordering::Relaxed)).map(Group::unpack);
    let Some(group) = current::group().or_else(default).filter(|_| is_on()) else {
        return Charged::Nobody;
    };
    charge_from(group, units)
}

/// Charges a group, or the nearest ancestor that can be charged. A destroyed group is replaced by an existing
/// ancestor, and a group without a number by an ancestor that has one.
#[cold]
#[inline(never)]
pub(super) fn charge_from(wanted: Group<'static>, units: u64) -> Charged {
    let mut group = wanted;
    let mut without_number = false;
    // A level may be destroyed during the look-up; then the root is next.
    for _ in 0..2 * DEPTH_MAX {
        // Once a group found no number, its ancestors are not given new ones.
        let slot = match without_number {
            false => slots::of(group),
            true => slots::known(group).ok_or(Without::Full),
        };
        match slot {
            // An audit allocates, and that must not be charged.
            Ok(slot) => match current::unattributed(|| ask(group, units)) {
                Ok(()) => {
                    if group == wanted {
                        note(group, slot);
                    } else if without_number {
                        ABOVE.fetch_add(1, Ordering::Relaxed);
                    }
                    return Charged::To(slot);
                }
                Err(Refusal { reason: Reason::Gone, .. }) => {}
                // Damage is not a limit, and not the program's fault.
                Err(Refusal { reason: Reason::Damaged, .. }) => break,
                Err(refusal) => match limit::grants(group, units, refusal) {
                    Granted::Yes => return Charged::To(slot),
                    Granted::No => return Charged::Refused,
                    Granted::Gone => {}
                },
            },
            Err(Without::Gone) => {}
            Err(Without::Full) => without_number = true,
            Err(Without::Foreign) => break,
        }
        match above(group) {
            Some(next) => group = next,
            None => break,
        }
    }
    UNOWNED.fetch_add(1, Ordering::Relaxed);
    Charged::Nobody
}

/// Charges a group within its limits. A refusal is not counted yet.
fn ask(group: Group<'static>, units: u64) -> Result<(), Refusal> {
    slow_path::ask_units(group, units, AtLimit::Refuse, Location::caller())
}

/// Caches the slot of a group that the thread was charged to, if it is the thread's current group. After enough
/// misses, opens the thread cache for that group.
fn note(group: Group<'static>, slot: &'static Slot) {
    let (table, packed) = (group.table(), group.pack());
    let noted = table.columns.is_fast() && current::note_slot(packed, slot);
    let is_due = || !places::mine().is_open_for(packed.raw()) && thread_caches::misses();
    if !noted || !is_due() {
        return;
    }
    if !thread_caches::are_for(table) {
        // Without this, `misses` stays true and `take` no longer uses the cell.
        return thread_caches::put_off();
    }
    thread_caches::open(table, packed, slot.number());
    thread_cache::serve(true);
    // SeqCst, here and in `set_accounting`: a thread that switches accounting off either did so before this load, or
    // disables the thread caches afterwards.
    if !ON.load(Ordering::SeqCst) {
        thread_cache::serve(false);
    }
}

/// Returns the parent of a group, whether it was destroyed or not; the root if the parent is no longer known
/// ([`slots::parent_of`]); `None` for the root.
fn above(group: Group<'static>) -> Option<Group<'static>> {
    let root = group.ledger().root();
    (group != root).then(|| slots::parent_of(group).unwrap_or(root))
}

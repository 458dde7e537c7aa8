//! Whose a new block is, and the slow way of charging it.

use super::limit::{self, Granted};
use crate::control::slow_path;
use crate::current;
use crate::current::slots::{self, Slot, Without};
use crate::group::Group;
use crate::percpu::purse::{self, places};
use crate::percpu::{self, word};
use crate::stock::AtLimit;
use crate::stock::purses;
use crate::stock::refusal::{Reason, Refusal};
use crate::sync::Ordering;
use crate::table::handle::Packed;
use crate::table::path::DEPTH_MAX;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Whether new blocks are charged at all.
static ON: AtomicBool = AtomicBool::new(true);
/// Who is charged where nobody is current; zero for nobody.
static DEFAULT: AtomicU64 = AtomicU64::new(0);
/// What [`counts`](super::counts) tells.
pub(super) static ABOVE: AtomicU64 = AtomicU64::new(0);
pub(super) static UNOWNED: AtomicU64 = AtomicU64::new(0);

/// What became of a charge.
pub(super) enum Charged {
    /// The block bears the number of this slot.
    To(&'static Slot),
    Nobody,
    /// A limit said no; [`limit`] knows why.
    Refused,
}

/// Whether a new block is charged here and now. A panicking thread charges nobody for its message, for a backtrace with
/// std's table of symbols, which stays, or for the needs of destructors.
#[inline(always)]
pub(super) fn is_on() -> bool {
    // Relaxed: the flag is all there is to see.
    ON.load(Ordering::Relaxed) && !std::thread::panicking()
}

/// Switches the accounting of new blocks on or off, for the whole process, at once. While it is off, new blocks are
/// nobody's, at the cost of a call and a few loads a pair; blocks from before are credited as ever when they are freed, and charged
/// when they grow. It is on at first.
///
/// To measure and refuse nothing, set the [mode](Group::set_mode) of a group to
/// [`Measure`](crate::ControlMode::Measure) instead.
pub fn set_accounting(on: bool) {
    ON.store(on, Ordering::SeqCst);
    purse::serve(on);
}

/// Sets who is charged where nobody is current: what the program does for itself. Returns the one before. Such a block
/// takes some ten nanoseconds more than one of a current group.
pub fn set_default(group: Option<Group<'static>>) -> Option<Group<'static>> {
    let raw = group.map_or(0, |group| group.pack().raw());
    Packed::from_raw(DEFAULT.swap(raw, Ordering::Relaxed)).map(Group::unpack)
}

#[inline(always)]
pub(super) fn has_default() -> bool {
    DEFAULT.load(Ordering::Relaxed) != 0
}

/// Charges a block of the thread's current group, where that is one step: with units from the running CPU's cell, of which
/// the thread's purse gets some when it has too few.
#[inline(always)]
pub(super) fn take(units: u64) -> Option<&'static Slot> {
    let current = current::get();
    let (slot, group) = (current.slot?, current.group?);
    // The parts first: if the slot is the group's afterwards, they were.
    let (cell, generation_bits) = slot.parts();
    if !slot.holds(group) || !is_on() {
        return None;
    }
    let purse = places::mine();
    let is_groups = purse.is_open_for(group.raw());
    if !is_groups && purses::misses() {
        // (`charge` opens it.)
        return None;
    }
    let fetched =
        is_groups && purses::fetch(Group::<'static>::unpack(group).table(), group, purse, units);
    // SAFETY: the parts are those of a group's handle (R2), and a thread notes slots only where sections are fast. Guarded by
    // `tests/alloc/alloc_oracle.rs`.
    (fetched || unsafe { percpu::take_known(cell, generation_bits, units) }).then_some(slot)
}

/// Uncharges a block's owner, where that is one step: into the running CPU's cell, with some of the thread's purse when that has
/// too many.
#[inline(always)]
pub(super) fn put(slot: &Slot, units: u64) -> bool {
    let (cell, generation_bits) = slot.parts();
    // (Null in the slot of another process's group.)
    if cell.is_null() || units > word::STOCK_MAX {
        return false;
    }
    let purse = places::mine();
    let brought = purse.number() == u64::from(slot.number())
        && slot
            .group()
            .is_some_and(|group| purses::bring(group.table(), group.pack(), purse, units));
    // SAFETY: the parts are those of a group's handle (R2).
    brought || unsafe { percpu::put_fast(cell, generation_bits, units) }
}

/// Charges a block of the thread's current group, or of the default one.
#[cold]
#[inline(never)]
pub(super) fn charge(units: u64) -> Charged {
    let default = || Packed::from_raw(DEFAULT.load(Ordering::Relaxed)).map(Group::unpack);
    let Some(group) = current::group().or_else(default).filter(|_| is_on()) else {
        return Charged::Nobody;
    };
    charge_from(group, units)
}

/// Charges a group, or the nearest ancestor that can be charged: where the group was destroyed, one that still exists;
/// where no number is left, one that has one.
#[cold]
#[inline(never)]
pub(super) fn charge_from(wanted: Group<'static>, units: u64) -> Charged {
    let mut group = wanted;
    let mut without_number = false;
    // (A level may go while it is looked at; then the root is next.)
    for _ in 0..2 * DEPTH_MAX {
        // Who has no number by now gets none of those that are wanted below.
        let slot = match without_number {
            false => slots::of(group),
            true => slots::known(group).ok_or(Without::Full),
        };
        match slot {
            // (An audit allocates. That is nobody's.)
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
                // No limit said so, and the program is not at fault.
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

/// Has the thread remember the slot of a group that it was charged to, and carry units of it in its purse (as soon as that did not
/// serve for a while), if that is its current group.
fn note(group: Group<'static>, slot: &'static Slot) {
    let (table, packed) = (group.table(), group.pack());
    let noted = table.columns.is_fast() && current::note_slot(packed, slot);
    let is_due = || !places::mine().is_open_for(packed.raw()) && purses::misses();
    if !noted || !is_due() {
        return;
    }
    if !purses::are_for(table) {
        // (Else the cell would serve this thread no more: `take`.)
        return purses::put_off();
    }
    purses::open(table, packed, slot.number());
    purse::serve(true);
    // (SeqCst, here and in `set_accounting`: whoever switches it off comes before this look, or has purses serve no more.)
    if !ON.load(Ordering::SeqCst) {
        purse::serve(false);
    }
}

/// The parent of a group, whether it was destroyed or not; the root where it is not known any more ([`slots::parent_of`]);
/// `None` for the root.
fn above(group: Group<'static>) -> Option<Group<'static>> {
    let root = group.ledger().root();
    (group != root).then(|| slots::parent_of(group).unwrap_or(root))
}

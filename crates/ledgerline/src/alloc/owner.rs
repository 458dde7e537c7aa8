//! Whose a new block is, and the slow way of charging it.

use super::limit;
use crate::current;
use crate::current::slots::{self, Slot, Without};
use crate::group::Group;
use crate::stock::refusal::{Reason, Refusal};
use crate::sync::Ordering;
use crate::table::follow;
use crate::table::handle::Packed;
use crate::table::path::DEPTH_MAX;
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

#[inline(always)]
pub(super) fn is_on() -> bool {
    // Relaxed: the flag is all there is to see.
    ON.load(Ordering::Relaxed)
}

pub(super) fn set_on(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

pub(super) fn set_default(group: Option<Group<'static>>) -> Option<Group<'static>> {
    let raw = group.map_or(0, |group| group.pack().raw());
    Packed::from_raw(DEFAULT.swap(raw, Ordering::Relaxed)).map(Group::unpack)
}

#[inline(always)]
pub(super) fn has_default() -> bool {
    DEFAULT.load(Ordering::Relaxed) != 0
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
            Ok(slot) => match current::uncharged(|| group.try_charge_units(units)) {
                Ok(()) => {
                    if group == wanted {
                        if group.table().columns.is_fast() {
                            current::note_slot(group.pack(), slot);
                        }
                    } else if without_number {
                        ABOVE.fetch_add(1, Ordering::Relaxed);
                    }
                    return Charged::To(slot);
                }
                Err(Refusal { reason: Reason::Gone, .. }) => {}
                // No limit said so, and the program is not at fault.
                Err(Refusal { reason: Reason::Damaged, .. }) => break,
                Err(refusal) if limit::grants(group, units, refusal) => {
                    return Charged::To(slot);
                }
                Err(_) => return Charged::Refused,
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

/// The parent of a group, whether it was destroyed or not; the root for one whose row is another's by now; `None` for
/// the root.
fn above(group: Group<'static>) -> Option<Group<'static>> {
    let (ledger, table, id) = (group.ledger(), group.table(), group.id());
    if group == ledger.root() {
        return None;
    }
    // A row that still holds something keeps its ancestors' rows.
    let parent = follow::read_held(table, id, |row| {
        table.id(row.parent.load(Ordering::Relaxed).min(table.capacity() - 1))
    });
    Some(parent.map_or(ledger.root(), |parent| ledger.group(parent)))
}

/// Charges a block that grows: its owner, or who is above it when that was destroyed.
#[cold]
#[inline(never)]
pub(super) fn grow(owner: Group<'static>, units: u64) -> Charged {
    charge_from(owner, units)
}

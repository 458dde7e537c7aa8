//! The charges of blocks and mappings.
//!
//! ```text
//! a mapping:  the row of its slot
//! a block:    this process's row in the second ledger, if there is one (process/heap.rs); then the row of its slot
//! ```
//!
//! If one of the two limits refuses a block, it is charged in neither.

use crate::process::{self, heap};
use crate::refuse::{self, Limit};
use ledgerline::{Group, Reason, Refusal};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::MOST_BYTES;

/// Charges a slot for a mapping; `false` if a limit refuses. A mapping without an owner is not charged.
pub(crate) fn mapping(slot: u32, units: usize) -> bool {
    process::group(slot).is_none_or(|group| charge(slot, group, units, Limit::All))
}

/// Charges a slot for a block; `false` if a limit refuses.
pub(crate) fn block(slot: u32, units: usize) -> bool {
    let Some(group) = process::group(slot) else { return true };
    let Some(heap) = heap::group() else { return charge(slot, group, units, Limit::All) };
    if !charge(slot, heap, units, Limit::Heap) {
        return false;
    }
    let charged = charge(slot, group, units, Limit::All);
    if !charged {
        heap.uncharge_units(units as u64);
    }
    charged
}

fn charge(slot: u32, group: Group<'_>, units: usize, limit: Limit) -> bool {
    match group.try_charge_units(units as u64) {
        Ok(()) => true,
        // No limit refused, and the program is not at fault.
        Err(refusal) if is_of_damage(&refusal) => {
            process::leave();
            true
        }
        Err(refusal) => refuse::try_again(slot, group, refusal, limit),
    }
}

/// Returns whether a refusal comes from a ledger that a program overwrote. The row of a living process accepts charges,
/// and no machine holds 64 PiB. An overwritten value that is plausible is taken as true: it may be a limit, and
/// refuses.
#[cold]
fn is_of_damage(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::Gone | Reason::Damaged) || refusal.usage > MOST_BYTES
}

/// Returns the units of a block to a slot, if it is one of this process's.
pub(crate) fn return_block(slot: u32, units: usize) {
    rows(slot).for_each(|row| row.uncharge_units(units as u64));
}

/// Returns the rows that a slot's block is charged in; none for a slot that is not this process's.
fn rows(slot: u32) -> impl Iterator<Item = Group<'static>> {
    let own = process::group(slot);
    own.into_iter().chain(own.and_then(|_| heap::group()))
}

/// The fast half of [`block`]. Returns `false` if nothing was charged.
#[inline(always)]
pub(crate) fn take_block(group: Group<'_>, units: usize) -> bool {
    let Some(heap) = heap::group() else { return group.take_prepaid(units as u64) };
    if !heap.take_prepaid(units as u64) {
        return false;
    }
    let taken = group.take_prepaid(units as u64);
    if !taken {
        heap.uncharge_units(units as u64);
    }
    taken
}

/// The fast half of [`return_block`]. Returns `false` if nothing was returned.
#[inline(always)]
pub(crate) fn put_block(group: Group<'_>, units: usize) -> bool {
    let put = group.put_prepaid(units as u64);
    if put
        && let Some(heap) = heap::group()
        && !heap.put_prepaid(units as u64)
    {
        let before = errno();
        heap.uncharge_units(units as u64);
        set_errno(before);
    }
    put
}

/// Moves the charge of a block from one slot to another, which is to hold `then` for it. Returns `false` if nothing was
/// moved. Only the new slot's own limit is asked, for `then`: the common ancestors and the second ledger hold as much
/// before as after. Counts as a charge and an uncharge of a block.
pub(crate) fn move_block(from: u32, to: u32, held: usize, then: usize) -> bool {
    let Some((old, new)) = process::group(from).zip(process::group(to)) else { return false };
    // The process's own row is the parent of all its other slots' rows, so it is common to both.
    let max = new.max().get().filter(|_| to != process::OWN);
    let has_room = |max| new.approximate().value.saturating_add(then as u64) <= max;
    max.is_none_or(has_room) && old.transfer_units(new, held as u64).is_ok()
}

/// Charges a slot for an existing block, whatever the limits are.
pub(crate) fn force_block(slot: u32, units: usize) {
    for row in rows(slot) {
        let _ = row.charge_units(units as u64);
    }
}

/// Changes a block's charge from `charged` to `units`.
pub(crate) fn correct_block(slot: u32, charged: usize, units: usize) {
    rows(slot).for_each(|row| correct(row, charged, units));
}

/// Changes a mapping's charge from `charged` to `units`.
pub(crate) fn correct_mapping(slot: u32, charged: usize, units: usize) {
    if let Some(group) = process::group(slot) {
        correct(group, charged, units);
    }
}

fn correct(group: Group<'_>, charged: usize, units: usize) {
    if units > charged {
        // This is the rest of a page at most, and the block exists already: it is charged in any case.
        let _ = group.charge_units((units - charged) as u64);
        group.uncharge_units(0);
    } else if units < charged {
        let _ = group.charge_units(0);
        group.uncharge_units((charged - units) as u64);
    }
}

//! Charges the growth of a block to its owner, before the allocator beneath resizes it.

use super::owner::{self, Charged};
use super::uncharge;
use crate::control::slow_path;
use crate::current;
use crate::current::slots::Slot;
use crate::group::Group;
use crate::stock::AtLimit;

/// A block's new size, which is charged; the old one still is.
#[must_use = "it is settled, or undone"]
pub(super) struct Growth {
    slot: &'static Slot,
    group: Group<'static>,
    old: u64,
    more: u64,
    less: u64,
    audited: bool,
    /// The new owner; `None` where there is none any more.
    charged: Option<&'static Slot>,
}

impl Growth {
    /// Charges the owner of a block, whose slot names a group; `None` where a limit refuses.
    pub(super) fn charge(slot: &'static Slot, old: u64, new: u64) -> Option<Growth> {
        let group = slot.group()?;
        // An audit follows each block as one charge; otherwise only the difference is asked for, so that a block may
        // grow up to the limit.
        let audited = group.ledger().audit().is_some();
        let (more, less) =
            if audited { (new, old) } else { (new.saturating_sub(old), old.saturating_sub(new)) };
        let charged = match group.take_prepaid(more) {
            true => Charged::To(slot),
            false => owner::charge_from(group, more),
        };
        let charged = match charged {
            Charged::To(charged) => Some(charged),
            Charged::Nobody => None,
            Charged::Refused => return None,
        };
        Some(Growth { slot, group, old, more, less, audited, charged })
    }

    /// Returns the owner from here on; `None` for no group.
    pub(super) fn owner(&self) -> Option<&'static Slot> {
        self.charged
    }

    /// The block is as before: the allocator beneath had no memory.
    pub(super) fn undo(self) {
        if let Some(charged) = self.charged {
            uncharge(charged, self.more);
        }
    }

    /// The block has its new size, and its new owner's number.
    pub(super) fn settle(self) {
        let Some(owner) = self.charged else { return uncharge(self.slot, self.old) };
        if owner.group() == Some(self.group) {
            // It counts as a charge and an uncharge, whatever the difference was.
            if !self.group.put_prepaid(self.less) {
                uncharge(self.slot, self.less);
            }
            return;
        }
        move_rest(self.group, owner, self.old, self.audited);
        if !self.audited && self.less > 0 {
            uncharge(owner, self.less);
        }
    }
}

/// Moves what a block held from its destroyed owner to the group that was charged for its growth.
#[cold]
fn move_rest(from: Group<'static>, slot: &Slot, held: u64, audited: bool) {
    let Some(to) = slot.group() else { return };
    // In an audited ledger it was charged for all of it.
    let moved = !audited && slow_path::transfer(from, to, held, AtLimit::Overrun, true).is_ok();
    if !moved {
        current::unattributed(|| from.uncharge_units(held));
        if !audited {
            // This fails if the group ended in this very moment: then it lacks as much until the block is freed.
            let _ = to.charge_units(held);
        }
    }
}

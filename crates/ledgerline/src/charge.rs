//! A charge that returns itself.

use crate::error::{Refusal, Refused};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::lock;
use crate::memory_stat::Sum;
use crate::mode::ControlMode;
use crate::row::GroupId;
use crate::walk::{self, No};

/// Units charged to a group, returned when this is dropped, by whichever thread that is.
///
/// `mem::forget` leaks the units (the group's `leftover` will show them).
#[derive(Debug)]
#[must_use = "a charge that is dropped at once is returned at once"]
pub struct Charge<'l> {
    group: Group<'l>,
    /// With [`UNCOUNTED`], of a charge of a group that was not accounted.
    units: u64,
}

/// The ledger does not know of these units (mode.rs).
const UNCOUNTED: u64 = 1 << 63;

impl<'l> Charge<'l> {
    #[inline(always)]
    pub(crate) fn new(group: Group<'l>, units: u64) -> Self {
        Charge { group, units }
    }

    /// A charge of a group that is not accounted.
    pub(crate) fn uncounted(group: Group<'l>, units: u64) -> Self {
        Charge { group, units: units | UNCOUNTED }
    }

    /// Whether the ledger counts the units: not those charged while the group's mode was
    /// [`Off`](crate::ControlMode::Off).
    pub fn is_counted(&self) -> bool {
        self.units & UNCOUNTED == 0
    }

    /// The group that holds the units.
    pub fn group(&self) -> Group<'l> {
        self.group
    }

    /// How many.
    pub fn units(&self) -> u64 {
        self.units & !UNCOUNTED
    }

    /// Takes `units` out into a charge of their own; `None` if there are not so many.
    pub fn split(&mut self, units: u64) -> Option<Charge<'l>> {
        let left = self.units().checked_sub(units)?;
        let uncounted = self.units & UNCOUNTED;
        self.units = left | uncounted;
        Some(Charge::new(self.group, units | uncounted))
    }

    /// Takes another charge of the same group in.
    ///
    /// # Errors
    /// Hands the other back if it belongs to another group, or only one of the two
    /// [is counted](Self::is_counted).
    pub fn merge(&mut self, other: Charge<'l>) -> Result<(), Charge<'l>> {
        if !std::ptr::eq(self.group.ledger(), other.group.ledger())
            || self.group.id() != other.group.id()
            || self.is_counted() != other.is_counted()
        {
            return Err(other);
        }
        // Both were granted, so together they are within the counter's range.
        self.units += other.units();
        std::mem::forget(other);
        Ok(())
    }

    /// Moves the units to another group of the ledger. Only the groups below the first common
    /// ancestor are asked: a full ancestor of both does not stand in the way, since its usage does
    /// not change. The new group is charged before the old one is released.
    ///
    /// # Errors
    /// Hands the charge back, as it was, with the refusal.
    pub fn transfer(self, to: Group<'l>) -> Result<Charge<'l>, (Charge<'l>, Refused)> {
        let ledger = self.group.ledger();
        let both = self.is_counted() && to.mode() != ControlMode::Off;
        let moved = if both && std::ptr::eq(ledger, to.ledger()) {
            ledger.move_units(self.group.id(), to.id(), self.units).map_err(|no| to.explain(&no))
        } else {
            // Another ledger has no ancestor in common, and where one of the two is not counted there is
            // nothing to move: charge the one, then return the other.
            return match to.try_charge(self.units()) {
                Ok(charge) => Ok(charge),
                Err(refused) => Err((self, refused)),
            };
        };
        match moved {
            Ok(()) => {
                let units = self.units;
                std::mem::forget(self);
                Ok(Charge::new(to, units))
            }
            Err(refused) => Err((self, refused)),
        }
    }
}

impl Ledger {
    /// Moves granted units from one group to another: charges the levels that only the new one
    /// has, then releases those that only the old one has.
    fn move_units(&self, from: GroupId, to: GroupId, units: u64) -> Result<(), Refusal> {
        let inside = lock::pass();
        let new = self.path(to).filter(|path| self.is_live(path.leaf()));
        let (Some(old), Some(new)) = (self.path(from), new) else {
            return Err(Refusal::gone(to, units));
        };
        let levels = new.below_common(&old);
        let mut drained = 0u64;
        while let Err(refusal) = walk::try_reserve(levels, units, inside.patience()) {
            new.free_emptied(self, refusal.emptied);
            match refusal.no {
                No::Full { level } if drained >> level & 1 == 0 => {
                    drained |= 1 << level;
                    self.drain(new.row(level));
                }
                no => {
                    if let No::Full { level } = no {
                        new.counters()[level].count_refusal();
                        self.announce(&new, 1 << level);
                    }
                    return Err(self.refusal(&new, to, units, no));
                }
            }
        }
        self.still_current(&new, levels, units).map_err(|no| self.refusal(&new, to, units, no))?;
        self.trim(&new, levels);
        self.announce(&new, walk::commit(levels, units));
        // Counted before the units leave, which keep the rows.
        let column = self.columns().current();
        self.count_flow(to, Sum::Charged, units);
        self.count_flow(from, Sum::Freed, units);
        self.count_charge(column, new.leaf());
        self.count_uncharge(column, old.leaf());
        let (emptied, result) = walk::uncharge(old.below_common(&new), units);
        if result.is_err() {
            self.count_underflow();
        }
        self.tell_waiters(old.rows());
        old.free_emptied(self, emptied);
        Ok(())
    }
}

impl Charge<'_> {
    #[cold]
    #[inline(never)]
    fn give_back(&self) {
        if self.is_counted() {
            self.group.ledger().uncharge_slow(self.group.id(), self.units);
        }
    }
}

impl Drop for Charge<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.group.put_prepaid(self.units) {
            self.give_back();
        }
    }
}

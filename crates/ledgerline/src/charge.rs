//! A charge that returns itself.

use crate::error::Refused;
use crate::group::Group;
use crate::stock::Limits;

/// Units charged to a group, returned when this is dropped, by whichever thread that is.
///
/// `mem::forget` leaks the units (the group's `leftover` will show them).
#[derive(Debug)]
#[must_use = "a charge that is dropped at once is returned at once"]
pub struct Charge<'l> {
    group: Group<'l>,
    units: u64,
}

impl<'l> Charge<'l> {
    #[inline(always)]
    pub(crate) fn new(group: Group<'l>, units: u64) -> Self {
        Charge { group, units }
    }

    /// The group that holds the units.
    pub fn group(&self) -> Group<'l> {
        self.group
    }

    /// How many.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Takes `units` out into a charge of their own; `None` if there are not so many.
    pub fn split(&mut self, units: u64) -> Option<Charge<'l>> {
        self.units = self.units.checked_sub(units)?;
        Some(Charge::new(self.group, units))
    }

    /// Takes another charge of the same group in.
    ///
    /// # Errors
    /// Hands the other back if it belongs to another group.
    pub fn merge(&mut self, other: Charge<'l>) -> Result<(), Charge<'l>> {
        if !std::ptr::eq(self.group.ledger(), other.group.ledger())
            || self.group.id() != other.group.id()
        {
            return Err(other);
        }
        // Both were granted, so together they are within the counter's range.
        self.units += other.units;
        std::mem::forget(other);
        Ok(())
    }

    /// Moves the units to another group of the ledger. Only the groups below the first common
    /// ancestor are asked: a full ancestor of both does not stand in the way, since its usage does
    /// not change. Within limits at every instant the new group is charged before the old one is
    /// released; a reader of several groups ([`Ledger::snapshot`](crate::Ledger::snapshot)) sees the
    /// units in one of the two.
    ///
    /// # Errors
    /// Hands the charge back, as it was, with the refusal.
    pub fn transfer(self, to: Group<'l>) -> Result<Charge<'l>, (Charge<'l>, Refused)> {
        let ledger = self.group.ledger();
        let moved = if std::ptr::eq(ledger, to.ledger()) {
            ledger
                .move_units(self.group.id(), to.id(), self.units, Limits::Enforced)
                .map_err(|no| to.explain(&no))
        } else {
            // Another ledger has no ancestor in common: charge the one, then return the other.
            return match to.try_charge(self.units) {
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

impl Drop for Charge<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.group.uncharge_units(self.units);
    }
}

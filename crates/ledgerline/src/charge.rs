//! A charge that returns itself.

use crate::error::Refused;
use crate::group::Group;
use crate::mode::ControlMode;
use crate::stock::Limits;

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
    /// not change. Within limits at every instant the new group is charged before the old one is
    /// released; a reader of several groups ([`Ledger::snapshot`](crate::Ledger::snapshot)) sees the
    /// units in one of the two.
    ///
    /// # Errors
    /// Hands the charge back, as it was, with the refusal.
    pub fn transfer(self, to: Group<'l>) -> Result<Charge<'l>, (Charge<'l>, Refused)> {
        self.transfer_within(to, Limits::Enforced)
    }

    /// As [`transfer`](Self::transfer), over the limits if need be; every group that this takes over
    /// its limit counts a `max` event. Fails only if the group was destroyed.
    pub(crate) fn transfer_over(self, to: Group<'l>) -> Result<Charge<'l>, (Charge<'l>, Refused)> {
        self.transfer_within(to, Limits::Overrun)
    }

    fn transfer_within(
        self,
        to: Group<'l>,
        limits: Limits,
    ) -> Result<Charge<'l>, (Charge<'l>, Refused)> {
        let (ledger, units) = (self.group.ledger(), self.units());
        // A charge of nothing keeps no row: its group may be gone, and then there is nothing to move either.
        let gone = units == 0 && ledger.path(self.group.id()).is_none();
        let both = self.is_counted() && to.mode() != ControlMode::Off && !gone;
        if !both || !std::ptr::eq(ledger, to.ledger()) {
            // Another ledger has no ancestor in common, and where one of the two is not counted there is
            // nothing to move: charge the one, then return the other.
            let charged = match limits {
                Limits::Enforced => to.try_charge(units),
                Limits::Overrun => to.charge(units),
            };
            return charged.map_err(|refused| (self, refused));
        }
        match ledger.move_units(self.group.id(), to.id(), units, limits) {
            Ok(()) => {
                std::mem::forget(self);
                Ok(Charge::new(to, units))
            }
            Err(no) => Err((self, to.explain(&no))),
        }
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

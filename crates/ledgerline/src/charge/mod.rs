//! Charges groups: the calls of a group that charge units and return them.
//!
//! | module    | contents                                                           |
//! |-----------|--------------------------------------------------------------------|
//! | `guard`   | the guard, which returns its units                                 |
//! | `request` | a charge with options                                              |
//! | `shared`  | a charge that several groups hold                                  |
//! | `owned`   | handles and guards without a lifetime                              |
//! | `prepaid` | the fast half of charging one group, kept as two numbers           |
//! | `lease`   | the fast half of charging by numbers, of a ledger that may be gone |

pub(crate) mod guard;
pub(crate) mod lease;
pub(crate) mod owned;
pub(crate) mod prepaid;
pub(crate) mod request;
pub(crate) mod shared;

use crate::control::attempt::Grant;
use crate::control::audit::Site;
use crate::control::slow_path;
use crate::error::{Refused, RefusedCharge};
use crate::group::Group;
use crate::ledger::Ledger;
use crate::report::diagnosis::{CONSUMERS, Diagnosis};
use crate::stock::AtLimit;
use crate::stock::refusal::Refusal;
use crate::whose;
use guard::Charge;
use std::panic::Location;

impl<'l> Group<'l> {
    /// Charges `units`, or refuses and names the group that refused. The charge is returned when the guard drops. A
    /// charge of zero units is granted regardless of limits, as long as the group exists.
    ///
    /// ```
    /// # let ledger = ledgerline::Ledger::new()?;
    /// let query = ledger.root().create("q1")?;
    /// query.set_max("64K".parse()?)?;
    /// let buffer = query.try_charge(48 << 10)?;
    /// let error = query.try_charge(32 << 10).unwrap_err();
    /// assert_eq!(error.to_string(), "/q1 is full: 32.0K requested, 48.0K of max 64.0K in use");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] when a limit, the group's own or an ancestor's, does not allow the charge, and the
    /// reclaimers there ([`add_reclaimer`](Self::add_reclaimer)) cannot make room. Of several full groups
    /// it names the lowest, and only reclaimers of groups below that one are asked. If some limit of the
    /// path can never allow the charge, it is refused and no reclaimer is asked.
    #[inline(always)]
    #[track_caller]
    pub fn try_charge(self, units: u64) -> Result<Charge<'l>, Refused> {
        if self.take_at_hand(units) {
            return Ok(Charge::new(self, units));
        }
        let grant = self.charge_slowly(units, Location::caller(), slow_path::try_charge)?;
        Ok(Charge::granted(self, units, grant))
    }

    /// Like [`try_charge`](Self::try_charge), but does not count or record a refusal. For callers that retry.
    ///
    /// # Errors
    /// Those of `try_charge`.
    #[inline(always)]
    #[track_caller]
    pub fn attempt(self, units: u64) -> Result<Charge<'l>, Refused> {
        if self.take_at_hand(units) {
            return Ok(Charge::new(self, units));
        }
        let grant = self.charge_slowly(units, Location::caller(), slow_path::try_again)?;
        Ok(Charge::granted(self, units, grant))
    }

    /// Charges units that the cell at hand did not have. Returns no guard: the caller makes the same guard on both
    /// paths, so that the compiler knows the guard's group when it drops.
    #[cold]
    #[inline(never)]
    fn charge_slowly(
        self,
        units: u64,
        site: Site,
        walk: impl FnOnce(Self, u64, Site) -> Result<Grant, Refusal>,
    ) -> Result<Grant, Refused> {
        walk(self, units, site).map_err(|refusal| explain(self, &refusal))
    }

    /// Charges `units` even over the limits, for charges that must not fail. Each group that this takes over its
    /// limit counts a `max` event.
    ///
    /// # Errors
    /// Only for a group that was destroyed, and beyond 2^62 units.
    #[inline(always)]
    #[track_caller]
    pub fn charge(self, units: u64) -> Result<Charge<'l>, Refused> {
        if self.take_at_hand(units) {
            return Ok(Charge::new(self, units));
        }
        let grant = self.charge_slowly(units, Location::caller(), slow_path::charge)?;
        Ok(Charge::granted(self, units, grant))
    }

    /// Like [`try_charge`](Self::try_charge), but without a guard, for allocators. It asks no reclaimer, does not
    /// wait and allocates nothing. The caller must call [`uncharge_units`](Self::uncharge_units) for the same units.
    ///
    /// # Errors
    /// [`Refusal`] when a limit, the group's own or an ancestor's, does not allow the charge.
    #[inline(always)]
    #[track_caller]
    pub fn try_charge_units(&self, units: u64) -> Result<(), Refusal> {
        if self.take_at_hand(units) {
            Ok(())
        } else {
            slow_path::charge_units(*self, units, AtLimit::Refuse, Location::caller())
        }
    }

    /// Like [`charge`](Self::charge), but without a guard. It asks no reclaimer and allocates nothing, like
    /// [`try_charge_units`](Self::try_charge_units).
    ///
    /// # Errors
    /// Those of `charge`.
    #[inline(always)]
    #[track_caller]
    pub fn charge_units(&self, units: u64) -> Result<(), Refusal> {
        if self.take_at_hand(units) {
            Ok(())
        } else {
            slow_path::charge_units(*self, units, AtLimit::Overrun, Location::caller())
        }
    }

    /// Returns units that were charged to this group by [`try_charge_units`](Self::try_charge_units) or
    /// [`charge_units`](Self::charge_units), from any thread.
    ///
    /// The ledger counts units and does not know which charge they belong to. A second return of the same units shows
    /// only if it would take the group's counter below zero, or if the group is gone. Such a return has no effect and
    /// is counted ([`Ledger::mistakes`]). While the group, or one below it, holds units of other charges or has idle
    /// units, the second return takes those. The group may then use that much more than its limit. A second return is
    /// also invisible if it fits into the running CPU's cell of the group (32 KiB, a sixteenth of its usage, or 32 of
    /// its large charges, whichever is most). The units lie there as idle, and the groups above read lower by as much until
    /// the cell is drained. To find such a mistake, build the ledger with
    /// [`LedgerBuilder::audit`](crate::LedgerBuilder::audit).
    #[inline(always)]
    #[track_caller]
    pub fn uncharge_units(&self, units: u64) {
        if !self.put_at_hand(units) {
            slow_path::uncharge_units(*self, units, Location::caller());
        }
    }

    /// Like [`uncharge_units`](Self::uncharge_units), but returns `false` if this shows as a mistake: the group is
    /// gone, its counter and its cell had fewer units, or the audit found it wrong. The mistake was counted, and
    /// nothing was returned.
    #[inline(always)]
    #[track_caller]
    #[must_use = "a mistake that is ignored is found by `uncharge_units` as well"]
    pub fn try_uncharge_units(&self, units: u64) -> bool {
        self.put_at_hand(units) || slow_path::uncharge_units(*self, units, Location::caller())
    }

    /// Moves units that are charged to this group by [`try_charge_units`](Self::try_charge_units) or
    /// [`charge_units`](Self::charge_units) to another group of the ledger. Like [`Charge::transfer`], but without a
    /// guard, for allocators. It counts as a charge there and as an uncharge here. Only the limits below the first
    /// common ancestor apply. It allocates nothing and asks no reclaimer. It walks to the counters of both groups,
    /// which takes some hundred nanoseconds.
    ///
    /// ```
    /// # let ledger = ledgerline::Ledger::new()?;
    /// let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
    /// ledger.root().set_max("64K".parse()?)?;
    /// a.try_charge_units(48 << 10)?;
    /// a.transfer_units(b, 48 << 10)?;
    /// assert_eq!((a.precise(), b.precise()), (0, 48 << 10));
    /// b.uncharge_units(48 << 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refusal`] if a limit does not allow it, or if a group was destroyed. Then nothing has changed, and the limit
    /// counts a `max` event. A group of another ledger is refused as if it were gone.
    pub fn transfer_units(&self, to: Group<'l>, units: u64) -> Result<(), Refusal> {
        if !self.ledger().is(to.ledger()) {
            return Err(Refusal::gone(to.id(), units));
        }
        slow_path::transfer(*self, to, units, AtLimit::Refuse, false)
    }
}

/// Adds the path of the refusing group to a refusal. The text is not accounted, since the current group may be full.
pub(crate) fn explain(group: Group<'_>, refusal: &Refusal) -> Refused {
    whose::nobody(|| {
        let group = group.ledger().group(refusal.group).path();
        Refused::new(RefusedCharge { group, refusal: *refusal, diagnosis: None })
    })
}

impl Ledger {
    /// Converts a refusal of this ledger from ids to paths. A group that is gone by now is `(destroyed)`.
    ///
    /// ```
    /// # let ledger = ledgerline::Ledger::new()?;
    /// let query = ledger.root().create("q1")?;
    /// query.set_max("64K".parse()?)?;
    /// let refusal = query.try_charge_units(80 << 10).unwrap_err();
    /// let text = "/q1 is full: 80.0K requested, 0 of max 64.0K in use";
    /// assert_eq!(ledger.explain(&refusal).to_string(), text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain(&self, refusal: &Refusal) -> Refused {
        explain(self.root(), refusal)
    }

    /// Reports how much the groups on a refused charge's path hold *now*, and which groups fill the one that refused
    /// it. Costs as much as [`Group::diagnose`].
    pub fn diagnose(&self, refused: &Refused) -> Diagnosis {
        let (charged, full) = (refused.charged, refused.refusal.group);
        self.diagnose_from(charged, Some(full), Some(refused.requested), CONSUMERS)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ledger, Limit};

    #[test]
    fn a_full_explanation_carries_the_diagnosis_that_the_ledger_would_give() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let group = ledger.root().create("g").unwrap();
        group.set_max(Limit::units(10)).unwrap();
        let refusal = group.try_charge_units(11).unwrap_err();
        let mut refused = group.request(11).explained().charge().unwrap_err();
        let mut diagnosis = *refused.diagnosis.take().expect("it was asked for");
        assert_eq!(refused, super::explain(group, &refusal));
        let mut other = ledger.diagnose(&refused);
        (diagnosis.resident, other.resident) = (None, None);
        assert_eq!(diagnosis, other);
        assert_eq!(diagnosis.requested, Some(11));
    }
}

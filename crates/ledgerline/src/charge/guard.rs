//! The guard: a charge that returns its units when it drops.

use super::explain;
use crate::control::attempt::Grant;
use crate::control::audit::By;
use crate::control::mode::ControlMode;
use crate::control::slow_path;
use crate::control::throttle::Backoff;
use crate::counter::COUNTER_MAX;
use crate::error::Refused;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::percpu::windows::Told;
use crate::percpu::word;
use crate::stock::AtLimit;
use crate::table::handle::Packed;
use crate::table::path::RowPath;
use crate::table::{Table, counts};
use std::hint::cold_path;
use std::marker::PhantomData;
use std::panic::Location;

/// Units charged to a group. They are returned when this is dropped, on any thread.
///
/// `mem::forget` leaks the units. The group's `leftover` will show them.
#[must_use = "a charge that is dropped at once is returned at once"]
pub struct Charge<'l> {
    group: Packed,
    /// The units, with [`UNCOUNTED`] set if the group was not accounted.
    units: u64,
    ledger: PhantomData<&'l Ledger>,
}

/// A charge has two words, and so has the result of a charge: both travel in registers (`table/handle.rs`).
const _: () = assert!(size_of::<Charge<'_>>() == 16);
const _: () = assert!(size_of::<Result<Charge<'_>, Refused>>() == 16);

/// Flag: the ledger does not count these units (`control/mode.rs`).
const UNCOUNTED: u64 = 1 << 63;

impl std::fmt::Debug for Charge<'_> {
    /// Formats as `Charge(4096 of /acme/q42 3#2)`, with `uncounted` before `of` if the ledger does not count the
    /// units.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let uncounted = if self.is_counted() { "" } else { "uncounted " };
        let (path, id) = (self.group().path(), self.group().id());
        write!(f, "Charge({} {uncounted}of {path} {id})", self.units())
    }
}

impl<'l> Charge<'l> {
    #[inline(always)]
    pub(crate) fn new(group: Group<'l>, units: u64) -> Self {
        Charge { group: group.pack(), units, ledger: PhantomData }
    }

    /// Creates a charge that the slow path granted.
    #[inline(always)]
    pub(crate) fn granted(group: Group<'l>, units: u64, grant: Grant) -> Self {
        Charge::new(group, if grant == Grant::Counted { units } else { units | UNCOUNTED })
    }

    /// Returns whether the ledger counts the units. It does not count those charged while the group's mode was
    /// [`Off`](crate::ControlMode::Off).
    pub fn is_counted(&self) -> bool {
        self.units & UNCOUNTED == 0
    }

    /// Returns the group that holds the units.
    #[inline(always)]
    pub fn group(&self) -> Group<'l> {
        Group::unpack(self.group)
    }

    /// Returns the number of units.
    pub fn units(&self) -> u64 {
        self.units & !UNCOUNTED
    }

    /// Gives the guard up, for units that travel where a guard cannot: through C, in a header, in a file. The caller
    /// must call [`uncharge_units`](Group::uncharge_units) for the same units, or make a guard of them again
    /// ([`from_units`](Self::from_units)). Units that were [not counted](Self::is_counted) are counted from here on.
    #[track_caller]
    pub fn into_units(self) -> u64 {
        let (units, ledger) = (self.units(), self.group().ledger());
        if !self.is_counted() {
            // This fails only for a group that is gone. Then the uncharge has no effect, either.
            let _counted = self.group().charge_units(units);
        } else if let Some(audit) = ledger.audit() {
            let by_hand = By::Hand(Location::caller());
            let _followed = audit.turn(ledger, self.group().id(), units, By::Guard, by_hand);
        }
        std::mem::forget(self);
        units
    }

    /// Makes a guard of units that are charged to `group` already, by [`try_charge_units`](Group::try_charge_units)
    /// or before [`into_units`](Self::into_units). Units that were never charged are a mistake. It shows when the
    /// guard drops, as with [`uncharge_units`](Group::uncharge_units). An audited ledger reports it here, and the
    /// guard then [holds nothing](Self::is_counted).
    ///
    /// ```
    /// # use ledgerline::Charge;
    /// # let ledger = ledgerline::Ledger::new()?;
    /// let query = ledger.root().create("q1")?;
    /// let units = query.try_charge(4096)?.into_units();
    /// assert_eq!(query.precise(), 4096);
    /// drop(Charge::from_units(query, units));
    /// assert_eq!(query.precise(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// With more than 2^62 units, which cannot have been charged.
    #[track_caller]
    pub fn from_units(group: Group<'l>, units: u64) -> Charge<'l> {
        assert!(units <= COUNTER_MAX, "{units} units: no group can hold so many");
        let (ledger, site) = (group.ledger(), Location::caller());
        if let Some(audit) = ledger.audit()
            && !audit.turn(ledger, group.id(), units, By::Hand(site), By::Maker(site))
        {
            return Charge::granted(group, units, Grant::Uncounted);
        }
        Charge::new(group, units)
    }

    /// Counts one more or one fewer outstanding charge.
    fn count(&self, count: impl FnOnce(&Table, u32, u32)) {
        // A charge of zero units keeps no row.
        if self.is_counted() && self.units() > 0 {
            let table = self.group().table();
            count(table, table.columns.current(), self.group().id().index());
        }
    }

    /// Returns the time that this charge owes for usage above a `high`, its group's or an ancestor's, as of now.
    /// First asks the reclaimers there to make room ([`Group::add_reclaimer`]); the remaining excess counts. The
    /// formula and its source are in [`Backoff`]'s module: 64 s times the square of the excess over high, times the
    /// charge's share of a batch, at most [`LedgerBuilder::throttle_time`](crate::LedgerBuilder::throttle_time).
    ///
    /// Without a high on the path, this costs some 50 ns for loads along the path. A charge of a destroyed group owes
    /// nothing.
    pub fn backoff(&self) -> Backoff<'l> {
        self.group().backoff(self.units())
    }

    /// Splits off a charge of `units`; `None` if this holds fewer.
    pub fn split(&mut self, units: u64) -> Option<Charge<'l>> {
        let left = self.units().checked_sub(units)?;
        let ledger = self.group().ledger();
        if let Some(audit) = ledger.audit()
            && self.is_counted()
        {
            let id = self.group().id();
            audit.exchange(ledger, &[(id, self.units())], &[(id, left), (id, units)], true);
        }
        self.count(counts::note_charge);
        let uncounted = self.units & UNCOUNTED;
        self.units = left | uncounted;
        Some(Charge::new(self.group(), units | uncounted))
    }

    /// Merges another charge of the same group into this one.
    ///
    /// # Errors
    /// Returns the other charge if it belongs to another group, if only one of the two [is
    /// counted](Self::is_counted), or if together they have more than 2^62 units (possible for charges that are not
    /// counted).
    pub fn merge(&mut self, other: Charge<'l>) -> Result<(), Charge<'l>> {
        if self.group() != other.group()
            || self.is_counted() != other.is_counted()
            || self.units() + other.units() > COUNTER_MAX
        {
            return Err(other);
        }
        let ledger = self.group().ledger();
        if let Some(audit) = ledger.audit()
            && self.is_counted()
        {
            let (id, units) = (self.group().id(), self.units());
            let both = [(id, units), (id, other.units())];
            audit.exchange(ledger, &both, &[(id, units + other.units())], true);
        }
        self.units += other.units();
        self.count(counts::note_uncharge);
        std::mem::forget(other);
        Ok(())
    }

    /// Moves the units to another group of the ledger. Only the limits below the first common ancestor apply: a full
    /// common ancestor does not refuse, since its usage does not change. The new group is charged before the old one
    /// is uncharged, so limits hold at every instant. A reader of several groups
    /// ([`Ledger::snapshot`](crate::Ledger::snapshot)) sees the units in one of the two.
    ///
    /// # Errors
    /// Returns the charge as it was, with the refusal.
    #[track_caller]
    pub fn transfer(self, to: Group<'l>) -> Result<Charge<'l>, (Charge<'l>, Refused)> {
        self.transfer_within(to, AtLimit::Refuse)
    }

    /// Like [`transfer`](Self::transfer). With [`AtLimit::Overrun`] it goes over the limits if necessary. Each group
    /// that this takes over its limit counts a `max` event. It fails only if the group was destroyed.
    #[track_caller]
    pub(crate) fn transfer_within(
        self,
        to: Group<'l>,
        at: AtLimit,
    ) -> Result<Charge<'l>, (Charge<'l>, Refused)> {
        let (ledger, units) = (self.group().ledger(), self.units());
        // A charge of zero units keeps no row. Its group may be gone, and then there is nothing to move.
        let gone = units == 0 && RowPath::of(ledger.table(), self.group().id()).is_none();
        let both = self.is_counted() && to.mode() != ControlMode::Off && !gone;
        if !both || !std::ptr::eq(ledger, to.ledger()) {
            // Groups of two ledgers have no common ancestor, and if one of the two is not counted there is nothing to
            // move. So this charges the new group, then uncharges the old one.
            let charged = match at {
                AtLimit::Refuse => to.try_charge(units),
                AtLimit::Overrun | AtLimit::OverrunBelowRoot => to.charge(units),
            };
            return charged.map_err(|refused| (self, refused));
        }
        match slow_path::transfer(self.group(), to, units, at, true) {
            Ok(()) => {
                std::mem::forget(self);
                Ok(Charge::new(to, units))
            }
            Err(refusal) => Err((self, explain(to, &refusal))),
        }
    }
}

/// Returns the units of a dropped guard after its critical section failed. Takes the guard's parts by value: a guard
/// whose address is taken lives in memory.
#[cold]
#[inline(never)]
fn give_back(group: Packed, units: u64, told: Told) {
    if !told.settle(word::UNCHARGE.wrapping_add(units)) && units & UNCOUNTED == 0 {
        let _returned = slow_path::uncharge(Group::unpack(group), units, By::Guard);
    }
}

impl Drop for Charge<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.group().put_prepaid(self.units) {
            cold_path();
            let told = self.group().put_owned_packed(self.group, self.units);
            if !told.stands() {
                give_back(self.group, self.units, told);
            }
        }
    }
}

//! Sets limits: the hard one, which is either refused if usage is above it or holds at once; and `high`, `low` and
//! `min`, which refuse nothing.

use crate::control::{events, reclaim, wait_queue};
use crate::counter::NotSet;
use crate::counter::changes::Which;
use crate::gate::lock;
use crate::group::Group;
use crate::size::{self, Limit};
use crate::stock::caps;
use crate::stock::drain::HeldOff;
use crate::table::allocate;
use crate::table::row::Row;
use std::fmt;

/// The reason why a limit was not set. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetMaxError {
    /// The limit is lower than usage.
    Busy {
        /// Usage after idle stock was returned and reclaimers were asked.
        usage: u64,
        /// The requested limit.
        limit: u64,
    },
    /// The group was destroyed.
    Gone,
    /// Only the process that made the ledger sets limits
    /// ([`LedgerBuilder::steerable`](crate::LedgerBuilder::steerable)).
    ReadOnly,
}

impl fmt::Display for SetMaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetMaxError::Busy { usage, limit } => write!(
                f,
                "the limit cannot be lowered to {}: {} are in use; have some of it returned first, or set \
                 the limit at once (set_max_now) and let nothing more in until usage has come down",
                size::format(*limit),
                size::format(*usage)
            ),
            SetMaxError::Gone => f.write_str(
                "the limit cannot be set: the group was destroyed; set it on its parent, or on a new group",
            ),
            SetMaxError::ReadOnly => f.write_str(
                "the limit cannot be set: the process that made the ledger keeps its limits to itself",
            ),
        }
    }
}

impl std::error::Error for SetMaxError {}

impl Group<'_> {
    /// Sets the hard limit. If usage is above it, idle stock below the group is returned first, and the reclaimers
    /// there are asked for the excess ([`add_reclaimer`](Self::add_reclaimer), for at most
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)). If that does not suffice, the limit is
    /// refused. No charge ever sees a limit that does not hold, not even for a moment.
    ///
    /// [`set_max_now`](Self::set_max_now) sets a limit that holds at once, regardless of usage.
    ///
    /// The first waiter at this group looks again. Other waiters below the group whose requests exceed the new limit
    /// learn of it when their turn comes: this may be called in a signal handler, which cannot notify them.
    ///
    /// Async-signal-safe as long as the ledger has no reclaimers in this process; a few microseconds.
    ///
    /// # Errors
    /// [`SetMaxError::Busy`] if usage is above the limit; the old limit then stays. [`SetMaxError::Gone`] if the
    /// group was destroyed. [`SetMaxError::ReadOnly`] if only the ledger's maker sets limits.
    pub fn set_max(self, limit: Limit) -> Result<(), SetMaxError> {
        let ledger = self.ledger();
        let clock = reclaim::Clock::start(ledger);
        loop {
            match self.try_set_max(limit) {
                Err(SetMaxError::Busy { .. }) if reclaim::above(self, limit.raw(), &clock) => {}
                done => return done,
            }
        }
    }

    /// Sets the hard limit regardless of usage, for a runaway group. While usage is above it, every charge is
    /// refused. Idle stock below the group is returned, and the reclaimers there are asked for the excess
    /// ([`add_reclaimer`](Self::add_reclaimer), for at most
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time)). Returns how many units are above the
    /// limit after that. No victim is cancelled for it.
    ///
    /// No charge that begins after this returns oversteps the limit. A charge in flight meanwhile was accepted within
    /// the old limit, and may still be granted a moment later. An existing excess stays until it is returned, and
    /// from then on usage never passes the limit. Waiting requests below the group that exceed the new limit are
    /// refused. Not async-signal-safe.
    ///
    /// ```
    /// # use ledgerline::{Ledger, Limit};
    /// let ledger = Ledger::new()?;
    /// let runaway = ledger.root().create("q1")?;
    /// let hoard = runaway.try_charge(1000)?;
    /// assert!(runaway.set_max(Limit::units(600)).is_err()); // too much is in use
    /// assert_eq!(runaway.set_max_now(Limit::units(600))?, 400);
    /// assert!(runaway.try_charge(1).is_err());
    /// drop(hoard);
    /// assert!(runaway.try_charge(600).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SetMaxError::Gone`] if the group was destroyed. [`SetMaxError::ReadOnly`] if only the ledger's maker sets
    /// limits.
    pub fn set_max_now(self, limit: Limit) -> Result<u64, SetMaxError> {
        self.set_max_only(limit)?;
        let above = || self.row().counter.usage().saturating_sub(limit.raw());
        let clock = reclaim::Clock::start(self.ledger());
        // Repeats after the run of another thread, which may have been asked for less.
        while above() > 0
            && self.row().counter.is_enforced()
            && reclaim::above(self, limit.raw(), &clock)
        {}
        Ok(if self.exists() { above() } else { 0 })
    }

    /// Like [`set_max_now`](Self::set_max_now), but asks no reclaimer.
    pub(crate) fn set_max_only(self, limit: Limit) -> Result<(), SetMaxError> {
        let (table, row) = (self.table(), self.id().index());
        self.change_limit(|| {
            if let Err(no) = self.row().counter.set_max_now(limit.raw(), || self.exists()) {
                // The group was destroyed meanwhile.
                if no == NotSet::Emptied {
                    allocate::recycle(table, row);
                }
                return Err(SetMaxError::Gone);
            }
            // Keeps cells from serving charges with caps that the old limit allowed, and with the stock that they
            // hold.
            drop(HeldOff::begin(table, row));
            Ok(())
        })?;
        // A waiter below whose request exceeds the new limit would wait in vain.
        wait_queue::tell_below(self.ledger(), self.id());
        Ok(())
    }

    /// Tries once to set the limit, and drains idle stock if necessary.
    fn try_set_max(self, limit: Limit) -> Result<(), SetMaxError> {
        let (table, row) = (self.table(), self.id().index());
        self.change_limit(|| {
            let try_set = || self.row().counter.set_max(limit.raw(), || self.exists());
            let result = try_set().or_else(|_| {
                // Stock may be fetched between the drain and this try. It is small then, since caps are held off.
                let _held_off = HeldOff::begin(table, row);
                try_set()
            });
            match result {
                // The group was destroyed meanwhile, and this was the last hold on its row.
                Ok(true) => allocate::recycle(table, row),
                // A lower limit leaves less headroom for existing idle stock.
                Ok(false) => caps::trim_for_headroom(table, row),
                _ => {}
            }
            table.heads.tell(&[row]);
            result.map(|_| ()).map_err(|no| match no {
                NotSet::InUse { usage } => SetMaxError::Busy { usage, limit: limit.raw() },
                NotSet::Closed | NotSet::Emptied => SetMaxError::Gone,
            })
        })
    }

    /// Changes a limit inside the gate, if this process may and the group exists, and reports the change if there was
    /// one.
    fn change_limit(
        self,
        change: impl FnOnce() -> Result<(), SetMaxError>,
    ) -> Result<(), SetMaxError> {
        if !self.ledger().is_steerable() {
            return Err(SetMaxError::ReadOnly);
        }
        let pass = lock::pass();
        if !self.exists() {
            return Err(SetMaxError::Gone);
        }
        let counter = &self.row().counter;
        let before = counter.changes();
        change()?;
        drop(pass);
        if counter.changes() != before {
            events::limits_changed(self.ledger(), self.id());
        }
        Ok(())
    }

    /// Sets the soft limit above which charges count `high` events. It applies to a [`try_charge`](Self::try_charge)
    /// or [`request`](Self::request) that asks the counters and ends above it by more than the idle stock
    /// ([`Estimate::bound`](crate::Estimate)). Such a charge asks the reclaimers below for the excess
    /// ([`add_reclaimer`](Self::add_reclaimer)). A reclaimer that freed nothing is left alone for
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time). No charge is refused for it.
    ///
    /// If only the ledger's maker may set limits, this has no effect in other processes
    /// ([`LedgerBuilder::steerable`](crate::LedgerBuilder::steerable)).
    pub fn set_high(self, limit: Limit) {
        self.set_other(Which::High, limit);
    }

    /// Sets how much is protected from reclaim unless nothing else is left. [`Events::low`](crate::Events::low)
    /// counts the exceptions. [`protection`](Self::protection) describes how siblings share their parent's
    /// protection.
    pub fn set_low(self, limit: Limit) {
        self.set_other(Which::Low, limit);
    }

    /// Sets how much is always protected from reclaim. A charge is refused before this is reclaimed.
    /// [`protection`](Self::protection) describes how siblings share their parent's protection.
    pub fn set_min(self, limit: Limit) {
        self.set_other(Which::Min, limit);
    }

    fn set_other(self, which: Which, limit: Limit) {
        let set = |row: &Row| row.counter.set_other(which, limit.raw());
        if self.ledger().is_steerable() && self.change(set) == Some(true) {
            events::limits_changed(self.ledger(), self.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ledger, Limit};

    /// The worst case: the group goes, and another comes, between the check and the change.
    #[test]
    fn a_limit_is_never_the_next_groups_however_the_row_changes_hands() {
        let limit = Limit::units(2);
        let ledger = Ledger::builder().capacity(3).anonymous().unwrap();
        let group = ledger.root().create("old").unwrap();
        group.set_max(limit).unwrap();
        let next = std::cell::Cell::new(None);
        let _ = group.row().counter.set_max(5, || {
            let there = group.exists();
            if there {
                group.destroy().unwrap();
                let new = ledger.root().create("next").unwrap();
                // The same limit, so that an exchange would not notice.
                new.set_max(limit).unwrap();
                next.set(Some(new));
            }
            there
        });
        assert_eq!(next.get().expect("it was there when it was asked for").max(), limit);
    }
}

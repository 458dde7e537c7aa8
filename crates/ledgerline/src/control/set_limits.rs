//! Sets limits: the hard one, which either is refused where more is in use or holds at once; and `high`, `low` and `min`,
//! which refuse nothing.

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

/// Why a limit was not set. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetMaxError {
    /// The limit is lower than what is in use.
    Busy {
        /// What is in use, after idle stock was returned and reclaimers were asked.
        usage: u64,
        /// The limit that was asked for.
        limit: u64,
    },
    /// The group was destroyed.
    Gone,
    /// The process that made the ledger alone sets limits
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
    /// Sets the hard limit. Where more than that is in use, idle stock below the group is returned first,
    /// and the reclaimers there are asked for the excess ([`add_reclaimer`](Self::add_reclaimer), for
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time) at most). If that does not
    /// suffice, the limit is refused. (No charge ever sees a limit that does not hold, not even for a
    /// moment.)
    ///
    /// [`set_max_now`](Self::set_max_now) sets a limit that holds at once, whatever is in use.
    ///
    /// The first waiter at this group looks again. A waiter elsewhere below that asks for more than the
    /// limit now allows learns of it when its turn comes. (A signal handler, which may call this, cannot
    /// tell the others.)
    ///
    /// Async-signal-safe as long as the ledger has no reclaimers in this process; a few microseconds.
    ///
    /// # Errors
    /// [`SetMaxError::Busy`] when more than that is in use; the limit then stays as it was.
    /// [`SetMaxError::Gone`] when the group was destroyed. [`SetMaxError::ReadOnly`] where only the ledger's maker
    /// sets limits.
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

    /// Sets the hard limit, whatever is in use: for a runaway group. Where more than that is in use, every
    /// charge is refused until usage has come down. Idle stock below the group is returned, and the
    /// reclaimers there are asked for the excess ([`add_reclaimer`](Self::add_reclaimer), for
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time) at most). Returns how many units
    /// are above the limit after that. No victim is cancelled for it.
    ///
    /// No charge that begins after this returns oversteps the limit. A charge in flight meanwhile was
    /// accepted within the old limit, and may still be granted a moment later. What was above the new limit
    /// before stays there until it is returned, and from then on usage never passes the limit. Requests
    /// that wait below for more than the limit now allows are refused. Not async-signal-safe.
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
    /// [`SetMaxError::Gone`] when the group was destroyed. [`SetMaxError::ReadOnly`] where only the ledger's maker
    /// sets limits.
    pub fn set_max_now(self, limit: Limit) -> Result<u64, SetMaxError> {
        self.set_max_only(limit)?;
        let above = || self.row().counter.usage().saturating_sub(limit.raw());
        let clock = reclaim::Clock::start(self.ledger());
        // (Again after the run of another thread, which was asked for something else.)
        while above() > 0
            && self.row().counter.is_enforced()
            && reclaim::above(self, limit.raw(), &clock)
        {}
        Ok(if self.exists() { above() } else { 0 })
    }

    /// As [`set_max_now`](Self::set_max_now), and asks no reclaimer.
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
            // This keeps caps that the old limit allowed, and the stock in their cells, from serving
            // charges.
            drop(HeldOff::begin(table, row));
            Ok(())
        })?;
        // A waiter anywhere below that asks for more than the limit now allows would wait in vain.
        wait_queue::tell_below(self.ledger(), self.id());
        Ok(())
    }

    /// Tries once to set the limit, and drains idle stock if that stands in the way.
    fn try_set_max(self, limit: Limit) -> Result<(), SetMaxError> {
        let (table, row) = (self.table(), self.id().index());
        self.change_limit(|| {
            let try_set = || self.row().counter.set_max(limit.raw(), || self.exists());
            let result = try_set().or_else(|_| {
                // Stock may be fetched between the drain and this try; then it is small, since caps are held off.
                let _held_off = HeldOff::begin(table, row);
                try_set()
            });
            match result {
                // The group was destroyed meanwhile, and this was the last hold on its row.
                Ok(true) => allocate::recycle(table, row),
                // A lower limit leaves less headroom for what already lies idle.
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

    /// Changes a limit inside the gate, if this process may and the group exists, and tells of it where that changed
    /// anything.
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

    /// Sets the soft limit above which charges count `high` events. A [`try_charge`](Self::try_charge) or
    /// [`request`](Self::request) that asks the counters and ends above it, by more than what may lie idle
    /// ([`Estimate::bound`](crate::Estimate)), asks the reclaimers below for the excess
    /// ([`add_reclaimer`](Self::add_reclaimer)). A reclaimer that gave nothing is left alone for
    /// [`LedgerBuilder::reclaim_time`](crate::LedgerBuilder::reclaim_time). No charge is refused for it.
    ///
    /// In a ledger that lets only its maker set limits, other processes change nothing by this
    /// ([`LedgerBuilder::steerable`](crate::LedgerBuilder::steerable)).
    pub fn set_high(self, limit: Limit) {
        self.set_other(Which::High, limit);
    }

    /// Sets how much is protected from reclaim unless nothing else is left ([`Events::low`](crate::Events::low)
    /// counts how often that is so). How siblings share what their parent is granted,
    /// [`protection`](Self::protection) says.
    pub fn set_low(self, limit: Limit) {
        self.set_other(Which::Low, limit);
    }

    /// Sets how much is always protected from reclaim. A charge is refused before this is reclaimed.
    /// How siblings share what their parent is granted, [`protection`](Self::protection) says.
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

    /// The group goes, and another comes, between the question and the change: as bad as it gets.
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

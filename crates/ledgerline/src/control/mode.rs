//! The mode of a subtree: whether the ledger enforces limits there, only measures, or does nothing.
//!
//! Every row has the mode that was set last on it or on an ancestor. A bit of the limit itself tells whether it is
//! enforced, so a walk learns it without another load. A flag tells whether the group is accounted at all. The slow
//! path checks it: a group that is not accounted keeps no cell, so each of its charges takes the slow path.
//!
//! ```text
//! set_mode(top, mode), with the modes' lock             create(parent)
//!   top takes the mode                                    the child's row becomes visible
//!   fence                                                 takes the mode that its parent has
//!   every row below that is visible takes it
//!   the waiters below look again
//! ```
//!
//! The fence is SeqCst, and its partners are the SeqCst store that makes the row visible and the loads of
//! the parent's mode: either the child sees the new mode of its parent, or it is visible to the walk over the
//! rows.

use crate::control::wait_queue;
use crate::gate::lock;
use crate::group::Group;
use crate::stock::drain;
use crate::sync::{Ordering, fence};
use crate::table::path::leads_through;
use crate::table::row::{Row, flag, state};

/// The accounting of a group's charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlMode {
    /// Counts charges, and refuses those above a limit.
    #[default]
    Enforce,
    /// Counts charges and refuses nothing: a charge that ends above the group's max counts a `max` event. Limits of
    /// ancestors in `Enforce` still hold.
    Measure,
    /// Counts nothing, in the group and in its ancestors, and refuses nothing (up to 2^62 units).
    Off,
}

impl Row {
    pub(crate) fn mode(&self) -> ControlMode {
        if self.has(flag::OFF) {
            ControlMode::Off
        } else if self.counter.is_enforced() {
            ControlMode::Enforce
        } else {
            ControlMode::Measure
        }
    }

    fn set_mode(&self, mode: ControlMode) {
        self.set(flag::OFF, mode == ControlMode::Off);
        self.counter.set_enforced(mode == ControlMode::Enforce);
    }

    /// Gives a new row the mode of its parent.
    pub(crate) fn adopt_mode(&self, parent: &Row) {
        // SeqCst loads (`Row::has`, `is_enforced`) after the SeqCst store in `Row::begin`: partners of the fence in
        // `Group::set_mode`. One round for each concurrent change of the parent's mode. Only a program that
        // overwrites the ledger causes this many changes.
        for _ in 0..1000 {
            let mode = parent.mode();
            if self.mode() == mode {
                return;
            }
            self.set_mode(mode);
        }
    }
}

impl Group<'_> {
    /// Sets the mode of this group and of all groups below it, present and future, until it is set on one of those.
    /// Costs a pass over the rows in use, and a drain. Not async-signal-safe.
    ///
    /// A change from [`Measure`](ControlMode::Measure) to [`Enforce`](ControlMode::Enforce) may leave usage above a
    /// limit; charges are then refused until usage is below. While a group is [`Off`](ControlMode::Off), a new
    /// [`Charge`](crate::Charge) holds nothing and returns nothing; an older one is returned as before. Units without
    /// a guard ([`try_charge_units`](Self::try_charge_units) and the like) are counted nevertheless, as in `Measure`:
    /// otherwise the ledger could not know later whether to take them back. Charges of a group that is off take about
    /// 10 ns. Requests that wait below look again at once ([`Request::wait`](crate::Request::wait)).
    ///
    /// ```
    /// # use ledgerline::{ControlMode, Ledger, Limit};
    /// let ledger = Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// tenant.set_max(Limit::units(100))?;
    /// tenant.set_mode(ControlMode::Measure);
    /// let query = tenant.create("q1")?;
    /// let much = query.try_charge(150)?;
    /// assert_eq!(tenant.events().max, 1); // would have been refused
    /// tenant.set_mode(ControlMode::Enforce);
    /// assert!(query.try_charge(1).is_err());
    /// # drop(much);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_mode(self, mode: ControlMode) {
        self.set_mode_below(mode);
        // Called without a lock: wakers are foreign code.
        wait_queue::tell_below(self.ledger(), self.id());
    }

    fn set_mode_below(self, mode: ControlMode) {
        let ledger = self.ledger();
        let _held = lock::gated(&ledger.control().modes);
        if self.change(|row| row.set_mode(mode)).is_none() {
            return;
        }
        let top = self.id().index();
        // Partner of the store in `Row::begin` and the loads in `Row::adopt_mode`.
        fence(Ordering::SeqCst);
        let below = |row: u32| {
            ledger.table().row(row).state.load(Ordering::Acquire) != state::FREE
                && leads_through(ledger.table(), row, top)
        };
        for row in (0..ledger.table().high_water()).filter(|&row| row != top && below(row)) {
            ledger.table().row(row).set_mode(mode);
        }
        // Takes the cells from before. None may serve a group that is off, and where limits hold again, too much may
        // lie idle. In the third mode it is harmless.
        drain::subtree(ledger.table(), top);
    }

    /// Returns the mode of this group; the default for one that is gone.
    pub fn mode(self) -> ControlMode {
        self.read(Row::mode).unwrap_or_default()
    }
}

//! Moving granted units from one group to another.

use crate::counter::walk::{self, No};
use crate::error::Refusal;
use crate::gate::lock;
use crate::ledger::Ledger;
use crate::report::memory_stat::Sum;
use crate::stock::Limits;
use crate::table::path::RowPath;
use crate::table::row::GroupId;

#[cfg(test)]
thread_local! {
    /// What this thread does in the middle of its next transfer.
    pub(crate) static IN_THE_MIDDLE: std::cell::Cell<Option<fn(&Ledger)>> =
        const { std::cell::Cell::new(None) };
}

impl Ledger {
    /// Moves granted units from one group to another: charges the levels that only the new one
    /// has, then releases those that only the old one has. With [`Limits::Overrun`] the new levels'
    /// limits are met and counted, and do not refuse.
    pub(crate) fn move_units(
        &self,
        from: GroupId,
        to: GroupId,
        units: u64,
        limits: Limits,
    ) -> Result<(), Refusal> {
        let inside = lock::pass();
        let new = self.path(to).filter(|path| self.is_live(path.leaf()));
        let (Some(old), Some(new)) = (self.path(from), new) else {
            return Err(Refusal::gone(to, units));
        };
        let levels = new.below_common(&old);
        match limits {
            Limits::Enforced => self.make_room(&new, levels, to, units, &inside)?,
            Limits::Overrun => {
                walk::force_reserve(levels, units, inside.patience()).map_err(|refusal| {
                    new.free_emptied(self, refusal.emptied);
                    self.refusal(&new, to, units, refusal.no)
                })?
            }
        }
        self.still_current(&new, levels, units).map_err(|no| self.refusal(&new, to, units, no))?;
        self.trim(&new, levels);
        // Counted before the units leave, which keep the rows.
        let column = self.columns().current();
        self.count_flow(to, Sum::Charged, units);
        self.count_flow(from, Sum::Freed, units);
        self.count_charge(column, new.leaf());
        self.count_uncharge(column, old.leaf());
        // Until this ends, readers of both see the units twice, and read again.
        let under_way = self.table().transfers().begin();
        let met = match limits {
            Limits::Enforced => walk::commit(levels, units),
            Limits::Overrun => walk::force_commit(levels, units),
        };
        #[cfg(test)]
        if let Some(act) = IN_THE_MIDDLE.take() {
            act(self);
        }
        let (emptied, result) = walk::uncharge(old.below_common(&new), units);
        drop(under_way);
        self.trim_for_usage(&old, old.below_common(&new));
        if result.is_err() {
            self.count_underflow();
        }
        self.announce(&new, met);
        self.tell_waiters(old.rows());
        old.free_emptied(self, emptied);
        drop(inside);
        if let Some(audit) = self.audit() {
            audit.moved(self, from, to, units);
        }
        Ok(())
    }

    /// Reserves on the levels that only the new group has, draining each that is full once: the lowest
    /// first, which is the one that a refusal names.
    fn make_room(
        &self,
        new: &RowPath<'_>,
        levels: &walk::Path<'_>,
        to: GroupId,
        units: u64,
        inside: &lock::Inside,
    ) -> Result<(), Refusal> {
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
                        self.announce(new, 1 << level);
                    }
                    return Err(self.refusal(new, to, units, no));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::IN_THE_MIDDLE;
    use crate::{Ledger, Snapshot};

    fn sum(snapshot: &Snapshot) -> u64 {
        snapshot.groups.iter().filter(|group| group.depth == 1).map(|group| group.current).sum()
    }

    /// Without the counts of begun and ended transfers the picture in the middle would pass for a
    /// steady one, with the units in both groups.
    #[test]
    fn a_picture_from_the_middle_of_a_transfer_says_that_it_is_not_steady() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
        let charge = a.try_charge(100).unwrap();
        ledger.root().drain();
        // As a signal handler would, or another process when this one is killed right here.
        IN_THE_MIDDLE.set(Some(|ledger| {
            let picture = ledger.snapshot();
            assert_eq!((sum(&picture), picture.steady), (200, false));
        }));
        let charge = charge.transfer(b).unwrap();
        assert!(IN_THE_MIDDLE.take().is_none(), "the transfer came by there");
        let picture = ledger.snapshot();
        assert_eq!((sum(&picture), picture.steady), (100, true));
        drop(charge);
    }

    #[test]
    fn another_mapping_of_the_ledger_sees_that_a_transfer_is_under_way() {
        static OTHER: std::sync::OnceLock<Ledger> = std::sync::OnceLock::new();
        // SAFETY: makes a descriptor that is ours alone.
        let file = unsafe {
            let file = libc::memfd_create(c"ledger".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0, "{}", std::io::Error::last_os_error());
            std::os::fd::FromRawFd::from_raw_fd(file)
        };
        let ledger = Ledger::builder().capacity(8).create_in(&file).unwrap();
        let other = OTHER.get_or_init(|| Ledger::open_in(&file).unwrap());
        let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
        let charge = a.try_charge(100).unwrap();
        ledger.root().drain();
        assert!(other.snapshot().steady);
        IN_THE_MIDDLE.set(Some(|_| assert!(!OTHER.get().unwrap().snapshot().steady)));
        let charge = charge.transfer(b).unwrap();
        assert!(IN_THE_MIDDLE.take().is_none(), "the transfer came by there");
        let picture = other.snapshot();
        assert_eq!((sum(&picture), picture.steady), (100, true));
        drop(charge);
    }
}

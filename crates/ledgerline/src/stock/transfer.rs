//! A transfer moves granted units from one group to another.

use super::refusal::{self, Refusal};
use super::{AtLimit, caps, drain, reserve};
use crate::counter::walk::{self, Levels, NotGranted};
use crate::gate::lock;
use crate::table::id::GroupId;
use crate::table::path::RowPath;
use crate::table::sums::{self, Sum};
use crate::table::{Table, allocate, counts};

#[cfg(test)]
thread_local! {
    /// Called by this thread in the middle of its next transfer.
    pub(crate) static IN_THE_MIDDLE: std::cell::Cell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::Cell::new(None) };
}

/// Moves granted units from one group to another: charges the levels that only the new one has, then
/// uncharges those that only the old one has. With [`AtLimit::Overrun`] the new levels' limits count
/// events but do not refuse. Returns the levels of the new group that met a limit.
pub(crate) fn units(
    table: &Table,
    from: GroupId,
    to: GroupId,
    units: u64,
    at: AtLimit,
) -> Result<Levels, Refusal> {
    let inside = lock::pass();
    let new = RowPath::of(table, to).filter(|path| table.is_live(path.leaf()));
    let (Some(old), Some(new)) = (RowPath::of(table, from), new) else {
        return Err(Refusal::gone(to, units));
    };
    let levels = new.below_common(&old);
    // Each full level is drained once, the lowest first, since a refusal names that one.
    let mut drained = 0u64;
    while let Err(no) = reserve(table, &new, levels, units, at, &inside) {
        match no {
            NotGranted::Full { level } if at == AtLimit::Refuse && drained >> level & 1 == 0 => {
                drained |= 1 << level;
                drain::subtree(table, new.row(level));
            }
            no => return Err(refusal::of(table, &new, to, units, no)),
        }
    }
    caps::trim(table, &new, levels);
    // The counts come before the units leave, since the units keep the rows from being freed.
    let column = table.columns.current();
    sums::note_flow(table, to, Sum::Charged, units);
    sums::note_flow(table, from, Sum::Freed, units);
    counts::note_charge(table, column, new.leaf());
    counts::note_uncharge(table, column, old.leaf());
    // Until this ends, readers of both groups see the units twice, and read again.
    let under_way = table.transfers().begin();
    let met = walk::commit(levels, units, at);
    #[cfg(test)]
    if let Some(act) = IN_THE_MIDDLE.take() {
        act();
    }
    let (emptied, result) = walk::uncharge(old.below_common(&new), units);
    drop(under_way);
    caps::trim_for_usage(table, &old, old.below_common(&new));
    if result.is_err() {
        table.count_underflow();
    }
    table.heads.tell(old.rows());
    allocate::recycle_emptied(table, &old, emptied);
    Ok(met)
}

#[cfg(test)]
mod tests {
    use super::IN_THE_MIDDLE;
    use crate::{Ledger, Snapshot};

    fn sum(snapshot: &Snapshot) -> u64 {
        snapshot.groups.iter().filter(|group| group.depth == 1).map(|group| group.current).sum()
    }

    /// Without the counts of begun and ended transfers, a snapshot from the middle would pass for a
    /// steady one, with the units in both groups.
    #[test]
    fn a_picture_from_the_middle_of_a_transfer_says_that_it_is_not_steady() {
        let ledger: &Ledger =
            Box::leak(Box::new(Ledger::builder().capacity(8).anonymous().unwrap()));
        let [a, b] = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
        let charge = a.try_charge(100).unwrap();
        ledger.root().drain();
        // A signal handler would see this, or another process if this one is killed right here.
        IN_THE_MIDDLE.set(Some(Box::new(|| {
            let picture = ledger.snapshot();
            assert_eq!((sum(&picture), picture.steady), (200, false));
        })));
        let charge = charge.transfer(b).unwrap();
        assert!(IN_THE_MIDDLE.take().is_none(), "the transfer came by there");
        let picture = ledger.snapshot();
        assert_eq!((sum(&picture), picture.steady), (100, true));
        drop(charge);
    }

    #[test]
    fn another_mapping_of_the_ledger_sees_that_a_transfer_is_under_way() {
        static OTHER: std::sync::OnceLock<Ledger> = std::sync::OnceLock::new();
        // SAFETY: makes a descriptor that only this test owns.
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
        IN_THE_MIDDLE.set(Some(Box::new(|| assert!(!OTHER.get().unwrap().snapshot().steady))));
        let charge = charge.transfer(b).unwrap();
        assert!(IN_THE_MIDDLE.take().is_none(), "the transfer came by there");
        let picture = other.snapshot();
        assert_eq!((sum(&picture), picture.steady), (100, true));
        drop(charge);
    }
}

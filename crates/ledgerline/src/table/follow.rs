//! Follows a handle: a reader gets values of the handle's own group, or none.
//!
//! A handle is a copied number, so it can outlive its group, and the group's row can be given to another group while it is
//! being read. Therefore every reader checks the row's generation before *and after* it reads. A group that is gone has no
//! units, no limits, no events, and the path `(destroyed)`.
//!
//! ```text
//! read(id, look)                              end of a group, and its row's next group
//!   state lets id in, generation is id's        state = RETIRED               destroy
//!   look at the row                             the last unit is returned
//!   fence (Acquire)                             fence (Release)               `Row::begin_change`
//!   state and generation as before: valid       counts handed up, parent a link of the free list,
//!                                                 limits and name of the next group
//!                                               generation += 1, state = LIVE (Release)
//! ```
//!
//! The two fences are partners: a reader that has read a word written after the right fence sees, after the left fence,
//! that the state no longer belongs to the group. If the state is LIVE again, it was read with Acquire from the Release of
//! `Row::begin`, so the next generation is visible too.
//!
//! A path is read row by row up to the root, but only the group's own row is checked: a group with children cannot be
//! destroyed, so the ancestors exist as long as the group does.
//!
//! A change to a row must never hit the row's next group, whatever happens between the check and the change. So
//! [`change`] reserves one unit of the row meanwhile: no thread frees a row with a reservation.

use super::id::GroupId;
use super::name::DESTROYED;
use super::path::RowPath;
use super::row::{Row, state};
use super::{Table, allocate};
use crate::gate::lock;
use crate::sync::{Ordering, fence};

/// The purpose for which a group is looked up. It decides which states of the row are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// Access by a handle. A destroyed group is gone, whatever it still holds. A group whose process ended is not gone: it
    /// is kept for the account.
    Handle,
    /// A report of the ledger itself, or a waiter for returned units. Destroyed groups count until nothing is left in
    /// them.
    Report,
    /// A search through the tree. It contains only live groups.
    Tree,
}

impl Row {
    fn is_there(&self, generation: u16, asks: Asks) -> bool {
        // Both Acquire, partners of the Releases in `begin`: later reads belong to this generation or a later one.
        let there = match self.state.load(Ordering::Acquire) {
            state::LIVE => true,
            state::EXITED | state::SETTLED => asks != Asks::Tree,
            state::FREE => false,
            // A state beyond the last means a damaged row, whose group is reported as damaged.
            _ => asks == Asks::Report,
        };
        there && self.generation_acquired() == generation
    }
}

fn read_as<T>(table: &Table, asks: Asks, id: GroupId, look: impl FnOnce(&Row) -> T) -> Option<T> {
    if id.index() >= table.capacity() {
        return None;
    }
    let row = table.row(id.index());
    if !row.is_there(id.generation(), asks) {
        return None;
    }
    let seen = look(row);
    // Partner of the fence in `Row::begin_change`.
    fence(Ordering::Acquire);
    row.is_there(id.generation(), asks).then_some(seen)
}

/// Reads a row while it belongs to this group, destroyed or not. Returns `None` once the row is free or belongs to another
/// group. When the row of a destroyed group is freed, its counts go first.
pub(crate) fn read_held<T>(table: &Table, id: GroupId, look: impl FnOnce(&Row) -> T) -> Option<T> {
    read_as(table, Asks::Report, id, look)
}

/// Returns the live group of a row and the result of `look`, or `None` if the row did not hold the same live group during
/// the whole look. The generation is read before the look, so a group that gets the row later fails the check at the end.
pub(crate) fn read_live<T>(
    table: &Table,
    row: u32,
    look: impl FnOnce(&Row) -> T,
) -> Option<(GroupId, T)> {
    let id = GroupId::from_parts(row, table.row(row).generation_acquired());
    read_as(table, Asks::Tree, id, look).map(|seen| (id, seen))
}

/// Returns whether a group exists but its ancestors do not lead to the root, because another program wrote over its row or
/// theirs. A group keeps its ancestors, so none of them is free.
pub(crate) fn is_lost(table: &Table, id: GroupId) -> bool {
    let free = |&row: &u32| table.row(row).state.load(Ordering::Acquire) == state::FREE;
    let leads = |_: &Row| {
        let path = RowPath::new(table, id.index());
        path.is_some_and(|path| !path.rows().iter().any(|row| *row != 0 && free(row)))
    };
    read_held(table, id, leads) == Some(false)
}

/// Returns the path of a group, also of a destroyed one that still holds units. If the ancestors of such a group were
/// destroyed as well, only its units keep their rows. So for the few instructions in which the last units are returned, an
/// ancestor's row may be free, or belong to another group, before its own is.
pub(crate) fn path_of(table: &Table, id: GroupId) -> String {
    let path = read_held(table, id, |_| spell(table, id.index())).flatten();
    path.unwrap_or_else(|| DESTROYED.into())
}

/// Joins the names from the root to a row. Returns `None` if its ancestors do not lead to the root: the row is free by
/// now, or another process wrote over it.
pub(crate) fn spell(table: &Table, row: u32) -> Option<String> {
    let path = RowPath::new(table, row)?;
    if path.rows().len() == 1 {
        return Some("/".into());
    }
    let names = path.rows().iter().rev().skip(1);
    Some(names.map(|&row| format!("/{}", table.row(row).name())).collect())
}

/// Reads a group's row. Returns `None` if the group is gone by the end of the look: the values may then belong to another
/// group, or be a mixture, and are dropped.
pub(crate) fn read<T>(table: &Table, id: GroupId, look: impl FnOnce(&Row) -> T) -> Option<T> {
    read_as(table, Asks::Handle, id, look)
}

/// Like [`read`], but also accepts a row with an invalid state, which another program wrote over.
pub(crate) fn read_in_use<T>(
    table: &Table,
    id: GroupId,
    look: impl FnOnce(&Row) -> T,
) -> Option<T> {
    let retired = |row: &Row| row.state.load(Ordering::Acquire) == state::RETIRED;
    read_held(table, id, |row| (!retired(row)).then(|| look(row))).flatten()
}

/// Returns whether a group exists: it was not destroyed, and its process has not ended.
pub(crate) fn exists(table: &Table, id: GroupId) -> bool {
    let there = |row: &Row| {
        row.state.load(Ordering::Acquire) == state::LIVE && row.generation() == id.generation()
    };
    id.index() < table.capacity() && there(table.row(id.index()))
}

/// Changes a row if its group exists; otherwise changes nothing and returns `None`. If another thread destroys the group
/// meanwhile, this call frees the row. Async-signal-safe.
pub(crate) fn change<T>(table: &Table, id: GroupId, change: impl FnOnce(&Row) -> T) -> Option<T> {
    // The first check writes nothing, so it leaves another group's row alone.
    if !exists(table, id) {
        return None;
    }
    // Inside the gate: otherwise a forked child would inherit the hold of a thread that it does not have.
    let _pass = lock::pass();
    let row = table.row(id.index());
    row.counter.hold();
    let changed = exists(table, id).then(|| change(row));
    if row.counter.release_hold() {
        allocate::recycle(table, id.index());
    }
    changed
}

#[cfg(test)]
mod tests {
    use crate::stock::precise;
    use crate::table::follow;
    use crate::{Ledger, Limit};

    /// The worst case: the row's next group appears between the two checks.
    #[test]
    fn what_was_read_while_the_row_changed_hands_is_dropped() {
        let ledger = Ledger::builder().capacity(2).anonymous().unwrap();
        let old = ledger.root().create("old").unwrap();
        let seen = old.read(|row| {
            old.destroy().unwrap();
            ledger.root().create("new").unwrap();
            row.name()
        });
        assert_eq!(seen, None);
    }

    #[test]
    fn a_row_that_changes_hands_during_the_look_holds_no_group_of_the_tree() {
        let ledger = Ledger::builder().capacity(2).anonymous().unwrap();
        let old = ledger.root().create("old").unwrap();
        assert_eq!(follow::read_live(ledger.table(), 1, |_| 5), Some((old.id(), 5)));
        let seen = follow::read_live(ledger.table(), 1, |_| {
            old.destroy().unwrap();
            ledger.root().create("new").unwrap();
        });
        assert_eq!(seen, None);
        ledger.find("/new").unwrap().destroy().unwrap();
        assert_eq!(follow::read_live(ledger.table(), 1, |_| ()), None);
    }

    #[test]
    fn a_destroyed_group_with_leftovers_is_gone_for_handles_and_there_for_reports() {
        let ledger = Ledger::builder().capacity(3).anonymous().unwrap();
        let parent = ledger.root().create("parent").unwrap();
        let group = parent.create("group").unwrap();
        let charge = group.try_charge(7).unwrap();
        group.destroy().unwrap();
        assert_eq!(group.read(|_| ()), None);
        assert_eq!(follow::read_held(ledger.table(), group.id(), |_| ()), Some(()));
        assert_eq!(follow::path_of(ledger.table(), group.id()), "/parent/group");
        assert_eq!((precise::held_by(ledger.table(), group.id()), group.precise()), (7, 0));
        drop(charge);
        assert_eq!(follow::path_of(ledger.table(), group.id()), "(destroyed)");
        assert_eq!(precise::held_by(ledger.table(), group.id()), 0);
    }

    /// Imitates that the row goes to another group between a check of `destroy` or `create` and its next step.
    #[test]
    fn an_old_handle_does_not_disturb_the_making_and_the_end_of_its_rows_next_group() {
        let ledger = Ledger::builder().capacity(3).anonymous().unwrap();
        let old = ledger.root().create("old").unwrap();
        old.destroy().unwrap();
        let new = ledger.root().create("new").unwrap();
        assert_eq!(new.id().index(), old.id().index());
        let row = old.row();
        assert!(!row.add_child(old.id().generation()) && row.children() == 0);
        assert_eq!(row.refuse_children(old.id().generation()), Err(0));
        // The new group has a child, and is destroyed after it.
        let child = new.create("child").unwrap();
        assert_eq!((row.refuse_children(old.id().generation()), row.children()), (Err(0), 1));
        child.destroy().unwrap();
        new.destroy().unwrap();
    }

    /// Without the reserved unit, the row would belong to the next group by the time of the change.
    #[test]
    fn a_row_that_is_being_changed_is_kept_for_its_group() {
        let ledger = Ledger::builder().capacity(3).anonymous().unwrap();
        let old = ledger.root().create("old").unwrap();
        let changed = old.change(|row| {
            old.destroy().unwrap();
            let new = ledger.root().create("new").unwrap();
            assert_ne!(new.id().index(), old.id().index(), "the row is held");
            row.counter.limits.high.store(1, crate::sync::Ordering::Relaxed);
            new
        });
        let new = changed.expect("it existed when the change began");
        assert_eq!(new.high(), Limit::MAX);
        // Freeing its row was left to the change; it is free by now.
        let newest = ledger.root().create("newest").unwrap();
        assert_eq!(newest.id().index(), old.id().index());
        assert_eq!(newest.high(), Limit::MAX);
    }
}

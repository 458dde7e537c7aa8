//! Follows a handle: what a reader is told is of the handle's own group, or of no group.
//!
//! A handle is a copy of a number. So it can outlive its group, and the group's row can be given to another
//! while a reader reads it. So every reader asks whose row it is before *and after* it has read. A group
//! that is gone says nothing: no units, no limits, no events, the path `(destroyed)`.
//!
//! ```text
//! read(id, look)                              the end of a group, and its row's next one
//!   state lets id in, generation is id's        state = RETIRED               destroy
//!   look at the row                             the last unit is returned
//!   fence (Acquire)                             fence (Release)               `Row::begin_change`
//!   state and generation as before: told        counts handed up, parent a link of the free list,
//!                                                 limits and name of the next group
//!                                               generation += 1, state = LIVE (Release)
//! ```
//!
//! The fences are each other's partner: a reader that has read a word written after the fence on the right
//! sees, after the fence on the left, that the state is not the group's any more. If it is LIVE again it
//! was read with Acquire, from the Release of `Row::begin`, so the next generation is seen with it.
//!
//! A path is read row by row up to the root, and only the group's own row is asked. As long as a group is
//! not gone, its ancestors are not, since a group with children is not destroyed.
//!
//! A change to a row must not hit the row's next group, whatever happens between the question and the
//! change. So it is made with one unit of the row reserved ([`change`]): no thread frees a row with a
//! reservation.

use super::id::GroupId;
use super::name::DESTROYED;
use super::path::RowPath;
use super::row::{Row, state};
use super::{Table, allocate};
use crate::gate::lock;
use crate::sync::{Ordering, fence};

/// Whose question about a group this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// A handle's. A group that was destroyed is gone, whatever it still holds. A group whose process ended
    /// is not gone: it is kept for the account.
    Handle,
    /// A report's of the ledger itself, or a waiter's for units to come back. Destroyed groups are of
    /// interest until nothing is left in them.
    Report,
    /// A search's through the tree. Only live groups are in it.
    Tree,
}

impl Row {
    fn is_there(&self, generation: u16, asks: Asks) -> bool {
        // Both Acquire, partners of the Releases in `begin`: what is read next is of this generation or a
        // later one.
        let there = match self.state.load(Ordering::Acquire) {
            state::LIVE => true,
            state::EXITED | state::SETTLED => asks != Asks::Tree,
            state::FREE => false,
            // (Beyond the last state the row is damaged, and its group is shown as such.)
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

/// What a row says while it is this group's, destroyed or not; `None` once it is free or another's. (While
/// the row of a destroyed group is being freed, its counts go first.)
pub(crate) fn read_held<T>(table: &Table, id: GroupId, look: impl FnOnce(&Row) -> T) -> Option<T> {
    read_as(table, Asks::Report, id, look)
}

/// The live group that a row holds, and what the row says; `None` where it holds none, or not the same one
/// during the whole look. (The generation is read before the look: a row that another group gets after that
/// is not the group's any more at the end of the look.)
pub(crate) fn read_live<T>(
    table: &Table,
    row: u32,
    look: impl FnOnce(&Row) -> T,
) -> Option<(GroupId, T)> {
    let id = GroupId::from_parts(row, table.row(row).generation_acquired());
    read_as(table, Asks::Tree, id, look).map(|seen| (id, seen))
}

/// Whether a group is there whose ancestors do not lead to the root: another program wrote over its row or theirs.
/// (A group keeps its ancestors, so none of them is free.)
pub(crate) fn is_lost(table: &Table, id: GroupId) -> bool {
    let free = |&row: &u32| table.row(row).state.load(Ordering::Acquire) == state::FREE;
    let leads = |_: &Row| {
        let path = RowPath::new(table, id.index());
        path.is_some_and(|path| !path.rows().iter().any(|row| *row != 0 && free(row)))
    };
    read_held(table, id, leads) == Some(false)
}

/// The path of a group, also of one that was destroyed and still holds something. (If the ancestors of such
/// a group were destroyed as well, only its units keep them. For the few instructions in which the last
/// units are returned, an ancestor's row may be free, or another's, before its own is.)
pub(crate) fn path_of(table: &Table, id: GroupId) -> String {
    let path = read_held(table, id, |_| spell(table, id.index())).flatten();
    path.unwrap_or_else(|| DESTROYED.into())
}

/// Writes the names from the root to a row; `None` where its ancestors do not lead to the root (the row is
/// free by now, or another process wrote over it).
pub(crate) fn spell(table: &Table, row: u32) -> Option<String> {
    let path = RowPath::new(table, row)?;
    if path.rows().len() == 1 {
        return Some("/".into());
    }
    let names = path.rows().iter().rev().skip(1);
    Some(names.map(|&row| format!("/{}", table.row(row).name())).collect())
}

/// What a group's row says, or `None` if the group is gone by the end of the look. What was seen then may
/// be another group's, or a mixture, and is dropped.
pub(crate) fn read<T>(table: &Table, id: GroupId, look: impl FnOnce(&Row) -> T) -> Option<T> {
    read_as(table, Asks::Handle, id, look)
}

/// As [`read`], also where the row has a state that there is not: another program wrote over it.
pub(crate) fn read_in_use<T>(
    table: &Table,
    id: GroupId,
    look: impl FnOnce(&Row) -> T,
) -> Option<T> {
    let retired = |row: &Row| row.state.load(Ordering::Acquire) == state::RETIRED;
    read_held(table, id, |row| (!retired(row)).then(|| look(row))).flatten()
}

/// Whether a group exists: it was not destroyed, and its process has not ended.
pub(crate) fn exists(table: &Table, id: GroupId) -> bool {
    let there = |row: &Row| {
        row.state.load(Ordering::Acquire) == state::LIVE && row.generation() == id.generation()
    };
    id.index() < table.capacity() && there(table.row(id.index()))
}

/// Changes a row if its group exists; otherwise changes nothing and says `None`. A thread that destroys the
/// group meanwhile leaves the row to this call. Async-signal-safe.
pub(crate) fn change<T>(table: &Table, id: GroupId, change: impl FnOnce(&Row) -> T) -> Option<T> {
    // The first look leaves no trace: another group's row is left alone.
    if !exists(table, id) {
        return None;
    }
    // This is inside the gate: otherwise a forked child would keep the hold of a thread that it does not
    // have.
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

    /// The row's next group is there between the two questions, which is as bad as it gets.
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

    /// As if the row became another group's between a question of `destroy` or `create` and their next
    /// step.
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

    /// Without the unit that is reserved the row would be the next group's by the time of the change.
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
        // Its row was left to the change, and is free by now.
        let newest = ledger.root().create("newest").unwrap();
        assert_eq!(newest.id().index(), old.id().index());
        assert_eq!(newest.high(), Limit::MAX);
    }
}

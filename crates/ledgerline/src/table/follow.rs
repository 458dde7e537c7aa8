//! Following a handle: what is told by one is of its own group, or of none.
//!
//! A handle is a copy of a number, so it can outlive its group, and the group's row can be given to another
//! while somebody reads it. So every reader asks whose row it is before *and after* it has read; what a group
//! that is gone would have said is nothing: no units, no limits, no events, the path `(destroyed)`.
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
//! The fences are each other's partner: who has read a word of what follows the one on the right sees, behind
//! the one on the left, that the state is not the group's any more. If it is LIVE again it was read with Acquire,
//! from the Release of `Row::begin`, so the next generation is seen with it.
//!
//! A path is read row by row up to the root, and the group's own row is asked alone: as long as a group is not
//! gone its ancestors are not, since a group with children is not destroyed.
//!
//! What changes a row must not change the next group's, whatever happens between the question and the change. So
//! it is made with one unit of the row reserved ([`Group::change`]): nobody frees a row with a reservation.

use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::sync::{Ordering, fence};
use crate::table::name::DESTROYED;
use crate::table::path::RowPath;
use crate::table::row::{GroupId, Row, state};

/// Who asks for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// A handle: a group that was destroyed is gone, whatever it still holds. One whose process ended is not,
    /// which is kept for the account.
    Handle,
    /// A report of the ledger's own, or whoever waits for units to come back: destroyed groups are of interest
    /// until nothing is left in them.
    Report,
    /// A walk of the tree: live groups alone are in it.
    Tree,
}

impl Row {
    fn is_there(&self, generation: u16, asks: Asks) -> bool {
        // Both Acquire, partners of the Releases in `begin`: what is read next is of this generation or a later
        // one.
        let there = match self.state.load(Ordering::Acquire) {
            state::LIVE => true,
            state::EXITED | state::SETTLED => asks != Asks::Tree,
            state::RETIRED => asks == Asks::Report,
            _ => false,
        };
        there && self.generation_acquired() == generation
    }

    /// From here on the row may say something else than its last group did. (The caller has seen that group
    /// retired, or has freed the row.)
    pub(crate) fn begin_change(&self) {
        // Partner of the fence in `Ledger::read_as`.
        fence(Ordering::Release);
    }
}

impl Ledger {
    fn read_as<T>(&self, asks: Asks, id: GroupId, look: impl FnOnce(&Row) -> T) -> Option<T> {
        if id.index() >= self.capacity() {
            return None;
        }
        let row = self.row(id.index());
        if !row.is_there(id.generation(), asks) {
            return None;
        }
        let seen = look(row);
        // Partner of the fence in `Row::begin_change`.
        fence(Ordering::Acquire);
        row.is_there(id.generation(), asks).then_some(seen)
    }

    /// What a row says while it is this group's, destroyed or not; `None` once it is free or another's. (Of a
    /// destroyed group the counts go first, while its row is being freed.)
    pub(crate) fn read_held<T>(&self, id: GroupId, look: impl FnOnce(&Row) -> T) -> Option<T> {
        self.read_as(Asks::Report, id, look)
    }

    /// The live group that a row holds, and what the row says; `None` where it holds none, or not the same one
    /// during the whole look. (The generation is read before the look: a row that changes hands after that is
    /// not the group's any more by the end of it.)
    pub(crate) fn read_live<T>(
        &self,
        row: u32,
        look: impl FnOnce(&Row) -> T,
    ) -> Option<(GroupId, T)> {
        let id = GroupId::from_parts(row, self.row(row).generation_acquired());
        self.read_as(Asks::Tree, id, look).map(|seen| (id, seen))
    }

    /// The path of a group, also of one that was destroyed and still holds something. (Of such a one the
    /// ancestors, if they were destroyed as well, are kept by the units alone: for the few instructions in which
    /// the last of them are returned, an ancestor's row may be free, or another's, before its own is.)
    pub(crate) fn path_of(&self, id: GroupId) -> String {
        let path = self.read_held(id, |_| self.spell(id.index())).flatten();
        path.unwrap_or_else(|| DESTROYED.into())
    }

    /// The names from the root to a row; `None` where its ancestors do not lead to the root (the row is free by
    /// now, or another process wrote over it).
    fn spell(&self, row: u32) -> Option<String> {
        let path = RowPath::new(self, row)?;
        if path.rows().len() == 1 {
            return Some("/".into());
        }
        let names = path.rows().iter().rev().skip(1);
        Some(names.map(|&row| format!("/{}", self.row(row).name())).collect())
    }
}

impl<'l> Group<'l> {
    /// What the group's row says, or `None` if the group is gone by the end of the look: then what was seen may
    /// be anybody's, or a mixture, and is dropped.
    pub(crate) fn read<T>(self, look: impl FnOnce(&Row) -> T) -> Option<T> {
        self.ledger().read_as(Asks::Handle, self.id(), look)
    }

    /// Changes the row as long as the group exists; `None`, and nothing is changed, if it does not. Whoever
    /// destroys the group meanwhile leaves the row to this. Async-signal-safe.
    pub(crate) fn change<T>(self, change: impl FnOnce(&Row) -> T) -> Option<T> {
        // First without a trace: another group's row is left alone.
        if !self.exists() {
            return None;
        }
        // Inside the gate: a forked child would keep the hold of a thread that it does not have.
        let _pass = lock::pass();
        let row = self.row();
        row.counter.hold();
        let changed = self.exists().then(|| change(row));
        if row.counter.release_hold() {
            self.ledger().recycle(self.id().index());
        }
        changed
    }

    /// Whether the group exists: it was not destroyed, and its process has not ended.
    pub fn exists(self) -> bool {
        let row = self.row();
        self.id().index() < self.ledger().capacity()
            && row.state.load(Ordering::Acquire) == state::LIVE
            && row.generation() == self.id().generation()
    }

    /// Its name; `/` for the root, `(destroyed)` for a group that is gone. What a name may not hold (another
    /// process wrote over it) shows as `\u{202e}`.
    pub fn name(self) -> String {
        let name = self.read(|row| if self.id().index() == 0 { "/".into() } else { row.name() });
        name.unwrap_or_else(|| DESTROYED.into())
    }

    /// Its parent; `None` for the root, and for a group that is gone.
    pub fn parent(self) -> Option<Group<'l>> {
        let ledger = self.ledger();
        let parent = self.read(|row| {
            let index = row.parent.load(Ordering::Relaxed).min(ledger.capacity() - 1);
            GroupId::from_parts(index, ledger.row(index).generation())
        });
        parent.filter(|_| self.id().index() != 0).map(|parent| ledger.group(parent))
    }

    /// Its path, like a cgroup's: `/acme/q42`, `/` for the root, and `(destroyed)` for a group that is gone.
    /// Names as [`name`](Self::name) has them.
    pub fn path(self) -> String {
        let path = self.read(|_| self.ledger().spell(self.id().index())).flatten();
        path.unwrap_or_else(|| DESTROYED.into())
    }
}

impl std::fmt::Debug for Group<'_> {
    /// `Group(/acme/q42 3#2)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group({} {})", self.path(), self.id())
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(ledger.read_live(1, |_| 5), Some((old.id(), 5)));
        let seen = ledger.read_live(1, |_| {
            old.destroy().unwrap();
            ledger.root().create("new").unwrap();
        });
        assert_eq!(seen, None);
        ledger.find("/new").unwrap().destroy().unwrap();
        assert_eq!(ledger.read_live(1, |_| ()), None);
    }

    #[test]
    fn a_destroyed_group_with_leftovers_is_gone_for_handles_and_there_for_reports() {
        let ledger = Ledger::builder().capacity(3).anonymous().unwrap();
        let parent = ledger.root().create("parent").unwrap();
        let group = parent.create("group").unwrap();
        let charge = group.try_charge(7).unwrap();
        group.destroy().unwrap();
        assert_eq!(group.read(|_| ()), None);
        assert_eq!(ledger.read_held(group.id(), |_| ()), Some(()));
        assert_eq!(ledger.path_of(group.id()), "/parent/group");
        assert_eq!((ledger.held_by(group.id()), group.precise()), (7, 0));
        drop(charge);
        assert_eq!(ledger.path_of(group.id()), "(destroyed)");
        assert_eq!(ledger.held_by(group.id()), 0);
    }

    /// As where the row changes hands between a question of `destroy` or `create` and their next step.
    #[test]
    fn an_old_handle_does_not_disturb_the_making_and_the_end_of_its_rows_next_group() {
        let ledger = Ledger::builder().capacity(3).anonymous().unwrap();
        let old = ledger.root().create("old").unwrap();
        old.destroy().unwrap();
        let new = ledger.root().create("new").unwrap();
        assert_eq!(new.id().index(), old.id().index());
        let row = old.row();
        assert!(!row.add_child(old.id().generation()) && row.children() == 0);
        assert!(!row.refuse_children(old.id().generation()));
        // And it has a child, and goes when that has gone.
        let child = new.create("child").unwrap();
        assert!(!row.refuse_children(old.id().generation()) && row.children() == 1);
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

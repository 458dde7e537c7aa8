//! The tree: creates groups, and finds them by path, by parent and below a group.
//!
//! A row knows its parent but not its children, so creating and destroying a group touches no list that other threads write.
//! A look downwards is a pass over the rows in use, about a nanosecond a row. An index finds a group by its name
//! (`table/names.rs`), without a look at its siblings.

mod destroy;

use crate::error::CreateError;
use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::sync::Ordering;
use crate::table::id::GroupId;
use crate::table::path::DEPTH_MAX;
use crate::table::{allocate, follow, name};
use std::collections::HashSet;

impl Ledger {
    /// Finds the group at a path like `/acme/q42`. `/` is the root, and empty parts are skipped. Returns `None` if there is
    /// no such group.
    ///
    /// Costs as much as [`Group::child`] for each level of the path.
    ///
    /// ```
    /// let ledger = ledgerline::Ledger::new()?;
    /// let query = ledger.root().create("acme")?.create("q42")?;
    /// assert_eq!(ledger.find("/acme/q42"), Some(query));
    /// assert_eq!(ledger.find("/acme/q43"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find(&self, path: &str) -> Option<Group<'_>> {
        let names = path.strip_prefix('/')?;
        names.split('/').filter(|name| !name.is_empty()).try_fold(self.root(), Group::child)
    }

    /// Returns the live group in a row, and its parent's id. A live group keeps its parent, and keeps it alive. The
    /// generations are read between two looks that find the group live. A reader that sees a later generation in the
    /// parent's row also sees, after the fence of `read_live`, that the group has ended.
    fn live_with_parent(&self, row: u32) -> Option<(Group<'_>, GroupId)> {
        let (id, parent) = follow::read_live(self.table(), row, |row| {
            let parent = row.parent.load(Ordering::Relaxed);
            // The parent of a free row, or one that another process wrote, may be outside of the table.
            (parent < self.capacity()).then(|| self.table().id(parent))
        })?;
        Some((self.group(id), parent?))
    }
}

/// The groups below each group, as they were found.
///
/// A group may end during the pass. Its row may go to another group, and groups below that one may be found later in the same
/// pass. So each group is noted with the id of its parent, and listed below that very group. The ids of a group's ancestors
/// never change, so every group listed below another was created below it.
struct Families<'l> {
    /// The children, by the parent's row.
    by_parent: Vec<Vec<(GroupId, Group<'l>)>>,
}

impl<'l> Families<'l> {
    /// Notes the group in a row. A group below a row that came into use meanwhile is left to the next look.
    fn note(&mut self, ledger: &'l Ledger, row: u32) {
        if let Some((group, parent)) = ledger.live_with_parent(row)
            && let Some(siblings) = self.by_parent.get_mut(parent.index() as usize)
        {
            siblings.push((parent, group));
        }
    }

    /// Returns all groups below a group, depth first, with their depths.
    fn below(&self, top: Group<'l>) -> Vec<(u32, Group<'l>)> {
        let mut found = Vec::new();
        let mut open = vec![(0, top)];
        // A group that is found again is its own ancestor, which happens in a ledger that was written over.
        let mut seen = HashSet::new();
        while let Some((depth, group)) = open.pop() {
            if !seen.insert(group.id()) {
                continue;
            }
            if depth > 0 {
                found.push((depth, group));
            }
            let siblings = self.by_parent.get(group.id().index() as usize);
            let own = siblings.into_iter().flatten().filter(|(parent, _)| *parent == group.id());
            open.extend(own.rev().map(|&(_, child)| (depth + 1, child)));
        }
        found
    }
}

impl<'l> Group<'l> {
    /// Creates a group below this one. No live sibling may have the name; a destroyed group releases its name, even while
    /// charges of it are held. A name has 1 to [`NAME_MAX`](crate::NAME_MAX) bytes and holds nothing that steers a terminal
    /// ([`name::allows`]). Costs O(depth), and no heap.
    ///
    /// ```
    /// use ledgerline::{CreateError, Ledger};
    ///
    /// let ledger = Ledger::new()?;
    /// let query = ledger.root().create("q42")?;
    /// assert_eq!(ledger.root().create("q42"), Err(CreateError::Exists));
    /// query.destroy()?;
    /// let next = ledger.root().create("q42")?;
    /// # next.destroy()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`CreateError`].
    #[must_use = "a group whose handle is lost lives on: destroy it, or keep it with `destroy_on_drop`"]
    pub fn create(self, name: &str) -> Result<Group<'l>, CreateError> {
        let owner = self.read(|row| row.owner.load(Ordering::Relaxed)).ok_or(CreateError::Gone)?;
        create(self, name, owner, Taken::Refused)
    }

    /// Returns the child of that name, or creates one if there is none. Of several such calls at the same time, one creates
    /// it. Costs as much as [`create`](Self::create).
    ///
    /// ```
    /// let ledger = ledgerline::Ledger::new()?;
    /// let tenant = ledger.root().get_or_create("acme")?;
    /// assert_eq!(ledger.root().get_or_create("acme"), Ok(tenant));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`CreateError`]; never [`Exists`](CreateError::Exists).
    #[must_use = "a group whose handle is lost lives on"]
    pub fn get_or_create(self, name: &str) -> Result<Group<'l>, CreateError> {
        let owner = self.read(|row| row.owner.load(Ordering::Relaxed)).ok_or(CreateError::Gone)?;
        create(self, name, owner, Taken::Found)
    }
}

/// The fate of a name that a live sibling already has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is an error.
    Refused,
    /// The sibling is returned.
    Found,
    /// There are two of that name.
    Allowed,
}

/// Creates a group below another, for a process.
pub(crate) fn create<'l>(
    parent: Group<'l>,
    name: &str,
    owner: u32,
    taken: Taken,
) -> Result<Group<'l>, CreateError> {
    name::check(name).map_err(CreateError::BadName)?;
    let _pass = lock::pass();
    let (row, table) = (parent.row(), parent.table());
    let depth = row.depth() + 1;
    if depth as usize >= DEPTH_MAX {
        return Err(CreateError::TooDeep);
    }
    if !row.add_child(parent.id().generation()) {
        return Err(CreateError::Gone);
    }
    // From now on the row cannot be destroyed. It may have been destroyed before, and even reused.
    if !parent.exists() {
        row.remove_child();
        return Err(CreateError::Gone);
    }
    let mut names = table.list_of(parent.id().index(), name.as_bytes());
    let found = names.find(parent.id().index(), name.as_bytes());
    if let Some(found) = found.filter(|_| taken != Taken::Allowed) {
        drop(names);
        row.remove_child();
        let found = parent.ledger().group(table.id(found));
        return if taken == Taken::Found { Ok(found) } else { Err(CreateError::Exists) };
    }
    let Some(id) = allocate::allocate(table, parent.id().index(), depth, owner, name) else {
        row.remove_child();
        return Err(CreateError::Full { capacity: parent.ledger().capacity() });
    };
    names.add(id.index());
    drop(names);
    table.row(id.index()).adopt_mode(row);
    Ok(parent.ledger().group(id))
}

impl<'l> Group<'l> {
    /// Returns the child of that name. Costs some ten nanoseconds, and no memory. A name that another program wrote over is
    /// not found.
    pub fn child(self, name: &str) -> Option<Group<'l>> {
        name::check(name).ok()?;
        let table = self.table();
        let _pass = lock::pass();
        self.read(|_| ())?;
        let parent = self.id().index();
        let row = table.list_of(parent, name.as_bytes()).find(parent, name.as_bytes())?;
        // If the parent is still live, it was live when the row was found.
        let (child, parent) = self.ledger().live_with_parent(row)?;
        (parent == self.id()).then_some(child)
    }

    /// Returns the groups right below this one, in the order of their rows, as they are found. A group that is created or
    /// destroyed meanwhile may be missing, or gone when it is used. Costs a pass over the rows in use, about a nanosecond a
    /// row, and no memory.
    ///
    /// ```
    /// let ledger = ledgerline::Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// let [a, b] = [tenant.create("a")?, tenant.create("b")?];
    /// assert!(tenant.children().eq([a, b]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn children(self) -> impl Iterator<Item = Group<'l>> {
        let (ledger, id) = (self.ledger(), self.id());
        let rows = if self.exists() { 1..ledger.table().high_water() } else { 1..1 };
        rows.filter_map(move |row| ledger.live_with_parent(row))
            .filter_map(move |(group, parent)| (parent == id).then_some(group))
    }

    /// Returns all groups below this one, depth first: each is followed by those below it. Each comes with its depth below
    /// this group; its children have 1. Costs a pass over the rows in use, and memory for the list.
    pub fn descendants(self) -> impl Iterator<Item = (u32, Group<'l>)> {
        self.below().into_iter()
    }

    fn below(self) -> Vec<(u32, Group<'l>)> {
        let ledger = self.ledger();
        if !self.exists() {
            return Vec::new();
        }
        let rows = ledger.table().high_water();
        let mut families = Families { by_parent: vec![Vec::new(); rows as usize] };
        (1..rows).for_each(|row| families.note(ledger, row));
        families.below(self)
    }

    /// Returns the levels below the root: 0 for the root and for a group that is gone, 1 for the root's children.
    pub fn depth(self) -> u32 {
        self.read(|row| row.depth()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events that a pass may meet, one step at a time.
    #[test]
    fn a_group_below_the_next_one_of_a_row_is_not_told_of_the_last_ones_tree() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let [tree, other] = ["tree", "other"].map(|name| ledger.root().create(name).unwrap());
        let mut families = Families { by_parent: vec![Vec::new(); ledger.capacity() as usize] };
        let old = tree.create("old").unwrap();
        families.note(&ledger, old.id().index());
        old.destroy().unwrap();
        let new = other.create("new").unwrap();
        assert_eq!(new.id().index(), old.id().index(), "the row is used again");
        let innocent = new.create("innocent").unwrap();
        families.note(&ledger, innocent.id().index());
        assert_eq!(families.below(tree), [(1, old)]);
        assert_eq!(families.below(new), [(1, innocent)]);
        // The same for a group whose own row belongs to another group by now.
        assert_eq!(families.below(old), []);
    }
}

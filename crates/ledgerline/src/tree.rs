//! The tree: creates and destroys groups, and finds them by path, by parent and below a group.
//!
//! A row knows its parent and not its children, so creating and destroying a group touches no list that
//! others write. A look downwards is a pass over the rows in use, about a nanosecond a row.

use crate::control::wait_queue;
use crate::error::{CreateError, DestroyError};
use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::report::estimate::Estimate;
use crate::report::settled::Settled;
use crate::stock::drain;
use crate::sync::Ordering;
use crate::table::id::GroupId;
use crate::table::path::{DEPTH_MAX, RowPath};
use crate::table::row::Row;
use crate::table::row::state;
use crate::table::{allocate, collect, counts, follow, name};
use crate::whose;
use std::collections::HashSet;

/// How often [`Group::destroy_tree`] looks again for groups that other threads created meanwhile.
const ROUNDS: usize = 16;

impl Ledger {
    /// Finds the group at a path like `/acme/q42`. `/` is the root, and empty parts are skipped. `None` if
    /// there is no such group. Of siblings that share a name it finds one.
    ///
    /// Costs a pass over the rows in use (about a nanosecond each) for each level of the path. That suits a
    /// command or a page; a server keeps the handles of its groups.
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

    /// The live group in a row, and its parent's id. (A live group keeps its parent, and keeps it alive.
    /// The generations are read between two looks that find the group live. A reader that sees a later
    /// generation in the parent's row also sees, after the fence of `read_live`, that the group has ended.)
    fn live_with_parent(&self, row: u32) -> Option<(Group<'_>, GroupId)> {
        let (id, parent) = follow::read_live(self.table(), row, |row| {
            let parent = row.parent.load(Ordering::Relaxed);
            // (The parent of a free row, or one that another process wrote, may be outside of the table.)
            (parent < self.capacity()).then(|| self.table().id(parent))
        })?;
        Some((self.group(id), parent?))
    }
}

/// The groups below each group, as they were found.
///
/// A group may end while the others are looked at. Its row may become another group's, and groups below
/// that may be found later in the same pass. So each group is noted with the id of its parent, and listed
/// below that very group. The ids of a group's ancestors never change, so all that is listed below a group
/// was created below it.
struct Families<'l> {
    /// The children, by the parent's row.
    children: Vec<Vec<(GroupId, Group<'l>)>>,
}

impl<'l> Families<'l> {
    /// Makes a list for parents in so many rows.
    fn new(rows: u32) -> Self {
        Families { children: vec![Vec::new(); rows as usize] }
    }

    /// Notes the group in a row. (A group below a row that came into use meanwhile is left to the next
    /// look.)
    fn note(&mut self, ledger: &'l Ledger, row: u32) {
        if let Some((group, parent)) = ledger.live_with_parent(row)
            && let Some(siblings) = self.children.get_mut(parent.index() as usize)
        {
            siblings.push((parent, group));
        }
    }

    /// All below a group, depth first, with their depths.
    fn below(&self, top: Group<'l>) -> Vec<(u32, Group<'l>)> {
        let mut found = Vec::new();
        let mut open = vec![(0, top)];
        // A group that is found again is its own ancestor, in a ledger that was written over.
        let mut seen = HashSet::new();
        while let Some((depth, group)) = open.pop() {
            if !seen.insert(group.id()) {
                continue;
            }
            if depth > 0 {
                found.push((depth, group));
            }
            let siblings = self.children.get(group.id().index() as usize);
            let own = siblings.into_iter().flatten().filter(|(parent, _)| *parent == group.id());
            open.extend(own.rev().map(|&(_, child)| (depth + 1, child)));
        }
        found
    }
}

impl<'l> Group<'l> {
    /// Creates a group below this one. Names are labels: siblings may share one. A name has 1 to
    /// [`NAME_MAX`](crate::NAME_MAX) bytes and holds nothing that steers a terminal ([`name::allows`]).
    /// Costs O(depth), and no heap.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(self, name: &str) -> Result<Group<'l>, CreateError> {
        let owner = self.read(|row| row.owner.load(Ordering::Relaxed)).ok_or(CreateError::Gone)?;
        create(self, name, owner)
    }

    /// Destroys the group. Idle stock goes back to its ancestors. What is still charged is reported, and
    /// stays counted in the ancestors until it is returned; the row is kept until then, so that a late
    /// uncharge finds its owner. Costs O(depth), and one remote fence if the group was charged on another
    /// CPU.
    ///
    /// # Errors
    /// See [`DestroyError`]; the group then goes on as before.
    pub fn destroy(self) -> Result<Settled<'l>, DestroyError> {
        // (What it takes is nobody's: the group that is current is full, perhaps.)
        whose::nobody(|| self.destroy_now())
    }

    fn destroy_now(self) -> Result<Settled<'l>, DestroyError> {
        if self.id().index() == 0 {
            return Err(DestroyError::Root);
        }
        let pass = lock::pass();
        let table = self.table();
        let mut path = RowPath::blank(table);
        if !path.find(table, self.id()) {
            return Err(DestroyError::Gone);
        }
        let row = self.row();
        if row.state.load(Ordering::Acquire) != state::LIVE {
            return Err(DestroyError::Gone);
        }
        if !row.refuse_children(self.id().generation()) {
            return match row.children() {
                0 => Err(DestroyError::Gone),
                // The children are another group's.
                _ if !self.exists() => Err(DestroyError::Gone),
                children => Err(DestroyError::HasChildren { children }),
            };
        }
        // From now on no other thread destroys the row. It may have been destroyed before, and even reused.
        if !self.exists() {
            row.accept_children();
            return Err(DestroyError::Gone);
        }
        // From here on no cell of the row is opened, and no walk starts in it. SeqCst, partner of the fence
        // in `Open::announce`: a request that begins to wait sees this, or is seen below.
        row.state.store(state::RETIRED, Ordering::SeqCst);
        let counter = &row.counter;
        counter.close();
        let Some(idle) = drain::close_cells(table, &path) else {
            counter.open();
            row.state.store(state::LIVE, Ordering::Release);
            row.accept_children();
            return Err(DestroyError::Busy);
        };
        collect::close(table, &path);
        let (charges, uncharges) = counts::of_row(table, self.id().index());
        let settled = Settled {
            group: self,
            leftover: counter.usage(),
            idle,
            peak: Estimate::between(counter.peak()),
            charges,
            uncharges,
        };
        let waited_for = table.heads.open.any_after_store();
        if counter.let_go() {
            allocate::recycle(table, self.id().index());
        }
        // This comes last: until here the parent, which inherits the counts, cannot be destroyed.
        table.row(path.row(1)).remove_child();
        // Requests that wait to charge it wait in vain. (The idle units told their waiters when they went
        // back.) This is outside of the gate: wakers are foreign code.
        drop(pass);
        if waited_for {
            wait_queue::tell_of_end(self.ledger(), self.id());
        }
        Ok(settled)
    }
}

/// Creates a group below another, for a process.
pub(crate) fn create<'l>(
    parent: Group<'l>,
    name: &str,
    owner: u32,
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
    match allocate::allocate(table, parent.id().index(), depth, owner, name) {
        Some(id) => {
            table.row(id.index()).adopt_mode(row);
            Ok(parent.ledger().group(id))
        }
        None => {
            row.remove_child();
            Err(CreateError::Full { capacity: parent.ledger().capacity() })
        }
    }
}

impl<'l> Group<'l> {
    /// The child of that name; if there are several, one of them. Costs a pass over the rows in use, some 17 nanoseconds a
    /// child (Zen 4, 10 000 of them), and no memory.
    pub fn child(self, name: &str) -> Option<Group<'l>> {
        // A name that another process wrote over is shown with these, or cut at a zero.
        if name.contains(['\\', char::REPLACEMENT_CHARACTER, '\0']) {
            return self.children().find(|child| child.name() == name);
        }
        let named = |row: &Row| row.has_name(name.as_bytes());
        self.children().find(|child| child.read(named) == Some(true))
    }

    /// The groups right below this one, in the order of their rows, as they are found. A group that is created or destroyed meanwhile
    /// may be missing, or gone when it is used. Costs a pass over the rows in use, about a nanosecond a
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

    /// All groups below this one, depth first: each is followed by those below it. Each comes with its
    /// depth below this group (its children have 1). Costs a pass over the rows in use, and memory for the
    /// list.
    pub fn descendants(self) -> impl Iterator<Item = (u32, Group<'l>)> {
        self.below().into_iter()
    }

    fn below(self) -> Vec<(u32, Group<'l>)> {
        let ledger = self.ledger();
        if !self.exists() {
            return Vec::new();
        }
        let rows = ledger.table().high_water();
        let mut families = Families::new(rows);
        (1..rows).for_each(|row| families.note(ledger, row));
        families.below(self)
    }

    /// Levels below the root: 0 for the root (and for a group that is gone), 1 for its children.
    pub fn depth(self) -> u32 {
        self.read(|row| row.depth()).unwrap_or(0)
    }

    /// Destroys this group and all below it, the deepest first. Returns what was found in each, this
    /// group's last. Groups that other threads create below it meanwhile are destroyed, too.
    ///
    /// Costs 0.1 to 0.2 µs a group, and a pass over the rows in use where there are groups below.
    ///
    /// ```
    /// let ledger = ledgerline::Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// tenant.create("q1")?.create("sort")?;
    /// let settled = tenant.destroy_tree()?;
    /// assert_eq!(settled.len(), 3);
    /// assert!(settled.iter().all(|group| group.leftover == 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`DestroyError`]. The groups that were destroyed by then stay destroyed. If other threads create
    /// groups faster than this destroys them, it gives up with [`HasChildren`](DestroyError::HasChildren).
    pub fn destroy_tree(self) -> Result<Vec<Settled<'l>>, DestroyError> {
        whose::nobody(|| self.destroy_all())
    }

    fn destroy_all(self) -> Result<Vec<Settled<'l>>, DestroyError> {
        if self.id() == GroupId::ROOT {
            return Err(DestroyError::Root);
        }
        let mut settled = Vec::new();
        let mut round = 0;
        loop {
            // The first try looks at no other row: most groups have none below.
            match self.destroy() {
                Ok(one) => {
                    settled.push(one);
                    return Ok(settled);
                }
                Err(DestroyError::HasChildren { .. }) if round < ROUNDS => round += 1,
                Err(error) => return Err(error),
            }
            for (_, group) in self.below().into_iter().rev() {
                match group.destroy() {
                    Ok(one) => settled.push(one),
                    // Another thread destroyed it, or created a group below it: the next look finds that.
                    Err(DestroyError::Gone | DestroyError::HasChildren { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a pass may meet, one step at a time.
    #[test]
    fn a_group_below_the_next_one_of_a_row_is_not_told_of_the_last_ones_tree() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let [tree, other] = ["tree", "other"].map(|name| ledger.root().create(name).unwrap());
        let mut families = Families::new(ledger.capacity());
        let old = tree.create("old").unwrap();
        families.note(&ledger, old.id().index());
        old.destroy().unwrap();
        let new = other.create("new").unwrap();
        assert_eq!(new.id().index(), old.id().index(), "the row is used again");
        let innocent = new.create("innocent").unwrap();
        families.note(&ledger, innocent.id().index());
        assert_eq!(families.below(tree), [(1, old)]);
        assert_eq!(families.below(new), [(1, innocent)]);
        // As for one whose own row is another's by now.
        assert_eq!(families.below(old), []);
    }
}

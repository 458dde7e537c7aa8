//! A path: the rows from a group to the root, in the order of a walk.

use super::Table;
use super::id::GroupId;
use super::row::state;
use crate::counter::PageCounter;
use crate::counter::walk::Path;
use crate::gate::lock;
use crate::sync::Ordering;

/// The most levels of a tree, the root included.
pub(crate) const DEPTH_MAX: usize = 32;

/// The rows from a group (first) to the root (last), and their counters. Lives on the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPath<'l> {
    rows: [u32; DEPTH_MAX],
    counters: [&'l PageCounter; DEPTH_MAX],
    length: usize,
    /// The generation of the group's own row, read before its parent.
    generation: u16,
}

impl<'l> RowPath<'l> {
    /// Follows the parents of a row. Returns `None` if they do not lead to the root, because another process overwrote the
    /// memory.
    pub(crate) fn new(table: &'l Table, row: u32) -> Option<Self> {
        let mut path = Self::blank(table);
        path.follow(table, row).then_some(path)
    }

    /// Returns an empty path, to be [followed](Self::follow). It takes half a kibibyte, so fast callers fill it in place.
    #[inline(always)]
    pub(crate) fn blank(table: &'l Table) -> Self {
        let root = &table.row(0).counter;
        RowPath { rows: [0; DEPTH_MAX], counters: [root; DEPTH_MAX], length: 0, generation: 0 }
    }

    /// Like [`new`](Self::new), but in place. Returns `false` if there is no path.
    pub(crate) fn follow(&mut self, table: &'l Table, row: u32) -> bool {
        if row >= table.capacity() {
            return false;
        }
        self.generation = table.row(row).generation();
        self.length = 0;
        let mut index = row;
        while self.length < DEPTH_MAX {
            let row = table.row(index);
            self.rows[self.length] = index;
            self.counters[self.length] = &row.counter;
            self.length += 1;
            if index == 0 {
                return true;
            }
            index = row.parent.load(Ordering::Relaxed);
            if index >= table.capacity() {
                return false;
            }
        }
        false
    }

    /// Returns the group's own row.
    pub(crate) fn leaf(&self) -> u32 {
        self.rows[0]
    }

    /// Returns whether the row still serves the group that the path was followed for. It does as long as the caller holds
    /// units of the row, reserved or granted: only an empty row is reused.
    pub(crate) fn is_current(&self, table: &Table) -> bool {
        table.row(self.leaf()).generation() == self.generation
    }

    pub(crate) fn row(&self, level: usize) -> u32 {
        self.rows[level]
    }

    pub(crate) fn counters(&self) -> &Path<'l> {
        &self.counters[..self.length]
    }

    /// Returns the rows, the group's first.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows[..self.length]
    }

    /// Returns the part of this path below the first row that it shares with `other`. Any two paths share a row: siblings
    /// share their parent, and all share the root.
    pub(crate) fn below_common(&self, other: &RowPath<'_>) -> &Path<'l> {
        let common =
            self.rows().iter().position(|row| other.rows().contains(row)).unwrap_or(self.length);
        &self.counters[..common]
    }

    /// Returns the path from a group to the root, or `None` if the group does not exist or no longer exists.
    pub(crate) fn of(table: &'l Table, id: GroupId) -> Option<Self> {
        let mut path = Self::blank(table);
        path.find(table, id).then_some(path)
    }

    /// Like [`of`](Self::of), but in place. Returns `false` if the group does not exist or no longer exists.
    pub(crate) fn find(&mut self, table: &'l Table, id: GroupId) -> bool {
        if id.index() >= table.capacity() {
            return false;
        }
        let row = table.row(id.index());
        // Acquire, partner of the Release in `Row::begin`: the parent belongs to this generation.
        let state = row.state.load(Ordering::Acquire);
        if row.generation() != id.generation() || state == state::FREE {
            return false;
        }
        // The generation is compared again, since the row may have been freed and reused in the meantime.
        self.follow(table, id.index()) && self.generation == id.generation()
    }
}

/// Returns whether a row is `top` or lies below it.
pub(crate) fn leads_through(table: &Table, row: u32, top: u32) -> bool {
    RowPath::new(table, row).is_some_and(|path| path.rows().contains(&top))
}

/// Returns the groups from this one to the root, or none if it does not exist. They do not change as long as it lives.
pub(crate) fn ids_to_root(table: &Table, id: GroupId) -> Vec<GroupId> {
    let _pass = lock::pass();
    let Some(path) = RowPath::of(table, id) else { return Vec::new() };
    path.rows().iter().map(|&row| table.id(row)).collect()
}

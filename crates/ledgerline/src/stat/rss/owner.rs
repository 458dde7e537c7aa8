//! Handles: an owner with one thread, and an owner with many.

use super::row::MOVE_MAX;
use super::table::{Full, OwnerId, Table, slot};
use super::{Kind, Pages};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// An owner that one thread updates: its words lie in its row, and no CPU has a cell for it.
///
/// It may be sent to another thread, but not shared; [`share`](Owner::share) makes one that can be.
/// Dropping it unregisters the owner.
#[derive(Debug)]
pub struct Owner<'t> {
    row: Registered<'t>,
    /// Not `Sync`: `add` is one thread's at a time.
    single: PhantomData<Cell<()>>,
}

/// An owner that any number of threads update, by reference.
///
/// Dropping it unregisters the owner.
#[derive(Debug)]
pub struct SharedOwner<'t> {
    row: Registered<'t>,
}

/// A row that is taken, until this is dropped.
#[derive(Debug)]
struct Registered<'t> {
    table: &'t Table,
    id: OwnerId,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.table.close(self.id);
    }
}

impl Registered<'_> {
    /// Does what dropping it does, and returns what was left.
    fn close(self) -> Pages {
        let row = ManuallyDrop::new(self);
        row.table.close(row.id)
    }

    /// Adds what does not fit into a word to the words for others, which clamp and count.
    #[cold]
    fn add_elsewhere(&self, kind: Kind, n: i64) {
        let gone = self.table.add_to(self.id, kind, n).is_err();
        debug_assert!(!gone, "a registered row has its generation");
    }
}

impl Table {
    /// Registers an owner with one thread and no pages. Costs some tens of nanoseconds.
    ///
    /// # Errors
    /// [`Full`].
    pub fn register(&self) -> Result<Owner<'_>, Full> {
        let row = Registered { table: self, id: self.take()? };
        Ok(Owner { row, single: PhantomData })
    }
}

impl<'t> Owner<'t> {
    /// Adds `n` pages of a kind, or takes them away: one plain instruction on x86-64, a relaxed atomic
    /// elsewhere. Async-signal-safe. More than 2^46 pages at once are clamped to that, and counted.
    #[inline]
    pub fn add(&self, kind: Kind, n: i64) {
        let row = self.row.table.row(self.row.id.row);
        if n.unsigned_abs() > MOVE_MAX as u64 || !row.add_own(kind, n) {
            self.row.add_elsewhere(kind, n);
        }
    }

    /// Its pages: exact, except for what others [add](Table::add_to) during the call.
    pub fn read(&self) -> Pages {
        self.row.table.sum(self.row.id.row)
    }

    /// Its id, for [`Table::read`] and [`Table::add_to`] on other threads.
    pub fn id(&self) -> OwnerId {
        self.row.id
    }

    /// Makes it an owner that threads can share. Its pages stay where they are; from here on updates go to
    /// the cells of the CPUs.
    pub fn share(self) -> SharedOwner<'t> {
        SharedOwner { row: self.row }
    }

    /// Unregisters the owner. Returns the pages that were left.
    pub fn unregister(self) -> Pages {
        self.row.close()
    }
}

impl SharedOwner<'_> {
    /// Adds `n` pages of a kind, or takes them away, in the running CPU's cell: about a nanosecond (the
    /// owner's first update on a CPU some tens). Async-signal-safe. More than 2^46 pages at once are
    /// clamped to that, and counted.
    #[inline]
    pub fn add(&self, kind: Kind, n: i64) {
        let slot = slot(self.row.id.row, kind);
        // SAFETY: the slot of a row is within a column, and 2^46 within 63 bits.
        let done = n.unsigned_abs() <= MOVE_MAX as u64
            && unsafe { self.row.table.cells.add_marked_fast(slot, n) };
        if !done {
            self.add_slow(kind, n);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_slow(&self, kind: Kind, n: i64) {
        let (table, row) = (self.row.table, self.row.id.row);
        let n = table.clamp(n);
        // SAFETY: as in `add`.
        let fits =
            unsafe { table.cells.add_marked(slot(row, kind), n, |column| table.note(row, column)) };
        if !fits {
            self.row.add_elsewhere(kind, n);
        }
    }

    /// Its pages: exact when the writers are still, otherwise off by what moved during the call. Costs a
    /// few loads, and a line for each CPU that ran it.
    pub fn read(&self) -> Pages {
        self.row.table.sum(self.row.id.row)
    }

    /// How many CPUs ran it since it was shared. A read costs a line for each.
    pub fn cpus(&self) -> usize {
        self.row.table.ran_on(self.row.id.row).count()
    }

    /// Its id, for [`Table::read`] and [`Table::add_to`].
    pub fn id(&self) -> OwnerId {
        self.row.id
    }

    /// Unregisters the owner. Returns the pages that were left.
    pub fn unregister(self) -> Pages {
        self.row.close()
    }
}

//! Handles of owners with one thread and of owners with many.

use super::row::MOVE_MAX;
use super::table::{Full, OwnerId, Table, slot};
use super::{Kind, Pages};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// An owner that one thread updates: its words lie in its row, and no CPU has a cell for it.
///
/// It may be sent to another thread, but not shared; [`share`](Owner::share) makes one that can be shared.
/// Dropping it unregisters the owner.
#[derive(Debug)]
pub struct Owner<'t> {
    row: Registered<'t>,
    /// Not `Sync`: only one thread at a time calls `add`.
    single: PhantomData<Cell<()>>,
}

/// An owner that any number of threads update, by reference.
///
/// Dropping it unregisters the owner.
#[derive(Debug)]
pub struct SharedOwner<'t> {
    row: Registered<'t>,
}

/// A taken row. Dropping this gives it back.
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
    /// Does the same as dropping it, and returns the remaining pages.
    fn close(self) -> Pages {
        let row = ManuallyDrop::new(self);
        row.table.close(row.id)
    }

    /// Adds an amount that does not fit into an own word to the words for others, which clamp and count.
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

    /// Returns its pages: exact, except for pages that other threads [add](Table::add_to) during the call.
    pub fn read(&self) -> Pages {
        self.row.table.sum(self.row.id.row)
    }

    /// Returns its id, for [`Table::read`] and [`Table::add_to`] on other threads.
    pub fn id(&self) -> OwnerId {
        self.row.id
    }

    /// Makes it an owner that threads can share. Its pages stay where they are; later updates go to the
    /// cells of the CPUs.
    pub fn share(self) -> SharedOwner<'t> {
        SharedOwner { row: self.row }
    }

    /// Unregisters the owner. Returns the pages that were left.
    pub fn unregister(self) -> Pages {
        self.row.close()
    }
}

impl SharedOwner<'_> {
    /// Adds `n` pages of a kind, or takes them away, in the running CPU's cell. That takes about a
    /// nanosecond, and some tens for the owner's first update on a CPU. Async-signal-safe. More than 2^46
    /// pages at once are clamped to that, and counted.
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

    /// Returns its pages: exact if no writer is active, otherwise off by the pages that moved during the
    /// call. Costs a few loads, and a line for each CPU that ran it.
    pub fn read(&self) -> Pages {
        self.row.table.sum(self.row.id.row)
    }

    /// Returns how many CPUs ran it since it was shared. A read costs a line for each.
    pub fn cpus(&self) -> usize {
        self.row.table.ran_on(self.row.id.row).count()
    }

    /// Returns its id, for [`Table::read`] and [`Table::add_to`].
    pub fn id(&self) -> OwnerId {
        self.row.id
    }

    /// Unregisters the owner. Returns the pages that were left.
    pub fn unregister(self) -> Pages {
        self.row.close()
    }
}

//! An owner's critical sections against stealers (`percpu/owned.rs`). It runs the code that ships; loom's fences stand in for
//! the asymmetric ones.

use super::{ID, TAKE, model};
use crate::percpu::owned::Owner;
use crate::percpu::word::{self, Cell, FROZEN};
use crate::sync::{Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// A column with one cell, and the lock of its stealers.
struct Column {
    owner: Owner,
    cell: Cell,
    stock_lock: Mutex<()>,
}

impl Column {
    fn new(stock: u64) -> Arc<Column> {
        let (owner, cell) = (Owner::new(), Cell::new(word::empty(1) | stock, 8));
        Arc::new(Column { owner, cell, stock_lock: Mutex::new(()) })
    }

    fn take(&self) -> u64 {
        3 * u64::from(self.owner.update(&self.cell, ID, TAKE, false))
    }

    fn put(&self) -> u64 {
        2 * u64::from(self.owner.update(&self.cell, ID, word::UNCHARGE + 2, true))
    }

    /// The drain: freezes, fences, seizes, opens. Returns the units taken from the cell's cap and stock.
    fn drain(&self, fenced: bool, reopened: u64) -> u64 {
        let _held = self.stock_lock.lock().unwrap();
        self.cell.freeze();
        let heavy_fence = || {
            if fenced {
                fence(Ordering::SeqCst);
            }
            true
        };
        heavy_fence();
        let word = Owner::seize(|| Some(&self.owner), &self.cell, heavy_fence).unwrap();
        self.cell.cap.store(0, Ordering::Relaxed);
        self.cell.open(word::empty(1) | FROZEN);
        self.cell.open(reopened);
        word::stock(word)
    }

    /// Mirrors the owner's slow path: sets a cap, and adds units of a walk.
    fn refill(&self, units: u64) -> u64 {
        let _held = self.stock_lock.lock().unwrap();
        assert!(self.owner.is_outside());
        self.cell.cap.store(8, Ordering::Relaxed);
        if !word::passes(self.cell.word.load(Ordering::Acquire), ID) {
            self.cell.open(word::empty(1));
        }
        units * u64::from(self.cell.update(ID, units, true))
    }

    fn left(&self) -> u64 {
        word::stock(self.cell.word.load(Ordering::Relaxed))
    }
}

fn owner_against_drain(fenced: bool) {
    model(move || {
        let column = Column::new(4);
        let other = column.clone();
        let owner = thread::spawn(move || other.take().wrapping_sub(other.put()));
        let drained = column.drain(fenced, word::empty(1));
        let net = owner.join().unwrap();
        assert_eq!(drained.wrapping_add(column.left()).wrapping_add(net), 4);
    });
}

#[test]
fn an_owner_against_a_drain_loses_no_unit() {
    owner_against_drain(true);
}

#[test]
#[should_panic(expected = "assertion")]
fn without_the_asymmetric_fence_units_are_lost_and_the_model_sees_it() {
    owner_against_drain(false);
}

#[test]
fn an_owner_against_two_drains_loses_no_unit() {
    model(|| {
        let column = Column::new(4);
        let others = [column.clone(), column.clone()];
        let [owning, draining] = others;
        let owner = thread::spawn(move || owning.put());
        let there = thread::spawn(move || draining.drain(true, word::empty(1)));
        let drained = column.drain(true, word::empty(1));
        let drained = drained + there.join().unwrap();
        let put = owner.join().unwrap();
        assert_eq!(drained + column.left(), 4 + put);
    });
}

/// The result of a drain for one critical section is never applied to the next one, even if the owner refills the same cell.
#[test]
fn an_owner_that_refills_its_cell_against_a_drain_loses_no_unit() {
    model(|| {
        let column = Column::new(4);
        let other = column.clone();
        let owner = thread::spawn(move || {
            let taken = other.take();
            let refilled = other.refill(3);
            let more = other.take();
            (taken + more).wrapping_sub(refilled)
        });
        let drained = column.drain(true, word::empty(1));
        let drained = drained + column.drain(true, word::empty(1));
        let net = owner.join().unwrap();
        assert_eq!(drained.wrapping_add(column.left()).wrapping_add(net), 4);
    });
}

#[test]
fn a_stale_id_of_an_owner_never_reaches_the_next_group_of_its_row() {
    model(|| {
        let column = Column::new(4);
        let other = column.clone();
        let stale = thread::spawn(move || other.put());
        let drained = column.drain(true, word::empty(1) | FROZEN);
        let credited = stale.join().unwrap();
        // Only the owner opens the cell for the next group, outside of its critical sections.
        assert!(column.owner.is_outside());
        assert_eq!(column.cell.word.load(Ordering::Relaxed), word::empty(1) | FROZEN);
        column.cell.cap.store(8, Ordering::Relaxed);
        column.cell.open(word::empty(2));
        assert_eq!(drained, 4 + credited, "credited before the drain, or refused");
        assert_eq!(column.put(), 0);
        assert_eq!(column.cell.word.load(Ordering::Relaxed), word::empty(2));
    });
}

/// An owner checks without the stealers' lock whether it is outside, and adds by atomics if it is.
#[test]
fn an_owner_that_adds_without_the_stock_lock_against_drains_loses_no_unit() {
    model(|| {
        let column = Column::new(2);
        let other = column.clone();
        let owner = thread::spawn(move || {
            let taken = other.take();
            assert!(other.owner.is_outside());
            other.cell.cap.store(8, Ordering::Relaxed);
            let put = 3 * u64::from(other.cell.update(ID, word::UNCHARGE + 3, true));
            let more = other.take();
            (taken + more).wrapping_sub(put)
        });
        let drained = column.drain(true, word::empty(1));
        let drained = drained + column.drain(true, word::empty(1));
        let net = owner.join().unwrap();
        assert_eq!(drained.wrapping_add(column.left()).wrapping_add(net), 2);
    });
}

//! Holds an owner at each point of its window, while its cell is taken, its thread charges in a signal handler, or forks.

use super::*;
use crate::percpu::membarrier;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// As many as `Owner::update` has.
pub(in crate::percpu) const POINTS: u32 = 6;
/// The points from which on the owner is in a window.
const INSIDE: std::ops::RangeInclusive<u32> = 2..=POINTS;
const BEFORE: u64 = 1000;
const UNITS: u64 = 64;
const ID: u64 = word::empty(7) | 12345;

/// What is done at which point.
type Act = (u32, Box<dyn FnOnce()>);

thread_local! {
    /// What the calling thread does at a point.
    static AT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

pub(super) fn reach(number: u32) {
    // (A thread that ends has none any more.)
    let act = AT.try_with(|at| at.borrow_mut().take_if(|(at, _)| *at == number));
    if let Ok(Some((_, act))) = act {
        act();
    }
}

/// Does something when the calling thread comes to a point the next time.
pub(in crate::percpu) fn at_point(number: u32, act: impl FnOnce() + 'static) {
    AT.set(Some((number, Box::new(act))));
}

struct Column {
    owner: Owner,
    cell: Cell,
}

impl Column {
    fn new() -> Arc<Column> {
        assert!(membarrier::register_memory());
        Arc::new(Column { owner: Owner::new(), cell: Cell::new(word::empty(7) | BEFORE, 2000) })
    }

    /// Says by how much the stock shrank, modulo 2^64, and whether anything happened.
    fn update(&self, put: bool) -> (u64, u64) {
        let delta = if put { word::UNCHARGE + UNITS } else { word::CHARGE.wrapping_sub(UNITS) };
        let done = u64::from(self.owner.update(&self.cell, ID, delta, put));
        (if put { UNITS.wrapping_neg() } else { UNITS }.wrapping_mul(done), done)
    }

    /// As a drain does. Says how many units were taken, and how many charges and uncharges were counted.
    fn drain(&self, reopened: u64) -> (u64, u64) {
        self.cell.freeze();
        assert!(membarrier::fence_memory());
        let fence = membarrier::fence_memory;
        let word =
            Owner::seize(|| Some(&self.owner), &self.cell, fence).expect("a fence is allowed");
        self.cell.cap.store(0, Ordering::Relaxed);
        self.cell.open(reopened);
        read(word)
    }
}

fn read(word: u64) -> (u64, u64) {
    (word::stock(word), word::charges(word) + word::uncharges(word))
}

/// One window, which is held at a point while `drains` drains follow each other. None of them waits for its end.
fn hold(point: u32, put: bool, drains: u32, reopened: u64) {
    let column = Column::new();
    let [reached, released] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (other, reaches, waits) = (column.clone(), reached.clone(), released.clone());
    let owner = std::thread::spawn(move || {
        at_point(point, move || {
            reaches.store(true, Ordering::SeqCst);
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        });
        let first = other.update(put);
        // And once more, in peace.
        assert!(other.owner.is_outside());
        let second = other.update(put);
        (first.0.wrapping_add(second.0), first.1 + second.1)
    });
    while !reached.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let (mut drained, mut counted) = (0, 0);
    for _ in 0..drains {
        let (units, counts) = column.drain(reopened);
        drained += units;
        counted += counts;
    }
    released.store(true, Ordering::SeqCst);
    let (net, done) = owner.join().unwrap();
    let (left, left_counts) = read(column.cell.word.load(Ordering::SeqCst));
    let case = format!("held at {point}, put: {put}, {drains} drains, reopened as {reopened:x}");
    assert_eq!(drained.wrapping_add(left).wrapping_add(net), BEFORE, "{case}");
    assert_eq!(counted + left_counts, done, "{case}");
    assert_eq!(left, 0, "{case}: a drained cell has no cap");
    let generation = word::generation(column.cell.word.load(Ordering::SeqCst));
    assert_eq!(generation, 7, "{case}");
    let verdict = column.owner.verdict.load(Ordering::SeqCst);
    assert_eq!(verdict, 0, "{case}");
}

#[test]
fn wherever_an_owner_is_held_its_cell_is_taken_and_no_unit_is_lost() {
    for point in 1..=POINTS {
        for put in [false, true] {
            for drains in 1..=3 {
                hold(point, put, drains, word::empty(7) | FROZEN);
                hold(point, put, drains, word::empty(7));
            }
        }
    }
}

#[test]
fn a_signal_handler_in_a_window_charges_elsewhere_and_a_drain_in_it_does_not_wait() {
    for point in 1..=POINTS {
        for put in [false, true] {
            for drains in [false, true] {
                let column = Column::new();
                let (handling, sum) = (column.clone(), Arc::new(std::sync::Mutex::new((0u64, 0))));
                let told = sum.clone();
                at_point(point, move || {
                    let (net, done) = handling.update(!put);
                    assert_eq!(done == 0, INSIDE.contains(&point), "point {point}");
                    assert_eq!(handling.owner.is_outside(), point == 1);
                    let (units, counted) =
                        if drains { handling.drain(word::empty(7)) } else { (0, 0) };
                    *told.lock().unwrap() = (net.wrapping_add(units), counted.wrapping_sub(done));
                });
                let (net, done) = column.update(put);
                let (elsewhere, counted) = *sum.lock().unwrap();
                let (left, left_counts) = read(column.cell.word.load(Ordering::SeqCst));
                let case = format!("point {point}, put: {put}, drains: {drains}");
                assert_eq!(left.wrapping_add(net).wrapping_add(elsewhere), BEFORE, "{case}");
                assert_eq!(left_counts.wrapping_add(counted), done, "{case}");
            }
        }
    }
}

/// A window that a handler left by a jump stays open as far as anybody knows. Drains go on, its thread goes on elsewhere.
#[test]
fn a_window_that_never_ends_holds_up_nobody() {
    let column = Column::new();
    column.owner.at.store(address(&column.cell), Ordering::SeqCst);
    let start = Instant::now();
    assert_eq!(column.drain(word::empty(7)), (BEFORE, 0));
    assert_eq!(column.drain(word::empty(7)), (0, 0), "nothing twice");
    assert!(!column.owner.is_outside());
    assert_eq!(column.update(true), (0, 0));
    // (A turn of a wait takes a tenth of a millisecond in the end, and waits have 3000. This has none.)
    assert!(start.elapsed() < Duration::from_secs(30));
    // SAFETY: the cell is the column's.
    unsafe { column.owner.forget() };
    assert!(column.owner.is_outside());
    assert_eq!(column.owner.verdict.load(Ordering::SeqCst), 0);
}

/// Its thread ends, or is not there in a forked child, between its late store and the one that takes it back.
#[test]
fn a_late_store_that_nobody_takes_back_is_forgotten_with_its_owner() {
    let column = Column::new();
    let vanishing = column.clone();
    at_point(3, move || {
        assert_eq!(vanishing.drain(word::empty(7)), (BEFORE, 0));
        let stored = vanishing.clone();
        at_point(5, move || {
            assert_eq!(read(stored.cell.word.load(Ordering::SeqCst)), (BEFORE - UNITS, 1));
            // SAFETY: the cell is the column's.
            unsafe { stored.owner.forget() };
            assert_eq!(stored.cell.word.load(Ordering::SeqCst), word::empty(7) | FROZEN);
            assert!(stored.owner.is_outside());
        });
    });
    column.update(false);
}

#[test]
fn what_must_not_be_stored_is_not_stored() {
    let column = Column::new();
    let word = column.cell.word.load(Ordering::SeqCst);
    let stale = word::empty(6) | 12345;
    for (id, delta, put) in [
        (ID, word::CHARGE.wrapping_sub(BEFORE + 1), false),
        (ID, word::UNCHARGE + 1001, true),
        (stale, word::CHARGE.wrapping_sub(1), false),
        (stale, word::UNCHARGE + 1, true),
    ] {
        assert!(!column.owner.update(&column.cell, id, delta, put));
        assert_eq!(column.cell.word.load(Ordering::SeqCst), word);
        assert!(column.owner.is_outside(), "the window has ended");
    }
}

/// An owner and drains, as fast as they can: the oracle is the sum.
#[test]
fn nothing_is_lost_between_an_owner_and_drains() {
    let column = Column::new();
    let stop = Arc::new(AtomicBool::new(false));
    let (other, ends) = (column.clone(), stop.clone());
    let owner = std::thread::spawn(move || {
        let (mut net, mut done, mut turn) = (0u64, 0u64, 0u64);
        while !ends.load(Ordering::Relaxed) {
            turn += 1;
            let (units, ok) = other.update(turn.is_multiple_of(2));
            net = net.wrapping_add(units);
            done += ok;
            if ok == 0 && other.owner.is_outside() {
                // The slow path: whatever is there by atomics, with room again.
                other.cell.cap.store(2000, Ordering::Relaxed);
                let put = word::UNCHARGE + UNITS;
                let filled = u64::from(other.cell.update(ID, put, true));
                net = net.wrapping_sub(UNITS * filled);
                done += filled;
            }
        }
        (net, done)
    });
    let (mut drained, mut counted) = (0u64, 0u64);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(700) {
        let (units, counts) = column.drain(word::empty(7));
        drained += units;
        counted += counts;
        std::thread::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    let (net, done) = owner.join().unwrap();
    let (left, left_counts) = read(column.cell.word.load(Ordering::SeqCst));
    assert_eq!(drained.wrapping_add(left).wrapping_add(net), BEFORE);
    assert_eq!(counted + left_counts, done);
}

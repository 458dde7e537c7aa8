//! Holds an owner at each point of its window while its cell is taken, or while its thread charges or forks in a signal
//! handler.

use super::*;
use crate::percpu::membarrier;
#[cfg(owned_windows)]
use crate::percpu::{thread_slots, windows, word::STRIDE};
#[cfg(owned_windows)]
use crate::region::Region;
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

/// The number of points of `Owner::update`.
pub(in crate::percpu) const POINTS: u32 = 6;
/// The points at which the owner is in a window.
const INSIDE: std::ops::RangeInclusive<u32> = 2..=POINTS;
const BEFORE: u64 = 1000;
const UNITS: u64 = 64;
const ID: u64 = word::empty(7) | 12345;

/// A point, and the action at it.
type Act = (u32, Box<dyn FnOnce()>);

thread_local! {
    /// The action of the calling thread at a point.
    static AT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

pub(super) fn reach(number: u32) {
    // A thread that ends no longer has the variable.
    let act = AT.try_with(|at| at.borrow_mut().take_if(|(at, _)| *at == number));
    if let Ok(Some((_, act))) = act {
        act();
    }
}

/// Whether windows in assembly check for an action. Otherwise they are as short as in other builds: a stealer expects
/// that of an owner that is running.
#[cfg(owned_windows)]
#[unsafe(no_mangle)]
static ledgerline_owned_armed: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Like [`reach`], but for the windows in assembly.
#[cfg(owned_windows)]
pub(in crate::percpu) extern "C" fn reach_from_window(number: u32) {
    reach(number);
}

/// Sets the action for the next time that the calling thread reaches a point.
pub(in crate::percpu) fn at_point(number: u32, act: impl FnOnce() + 'static) {
    #[cfg(owned_windows)]
    ledgerline_owned_armed.store(1, Ordering::SeqCst);
    AT.set(Some((number, Box::new(act))));
}

/// The implementation of the windows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Compiled from [`Owner::update`].
    Compiled,
    /// `windows/x86_64.rs`, which finds the thread slot of the calling thread.
    #[cfg(owned_windows)]
    Assembled,
}

/// Runs a test in each way; if threads need thread slots, in a process of its own.
fn in_each_way(test: &str, body: fn(Way)) {
    #[cfg(owned_windows)]
    {
        let name = format!("percpu::owned::tests::{test}");
        if thread_slots::tests::alone(&name, || body(Way::Assembled)) {
            return;
        }
    }
    let _ = test;
    body(Way::Compiled);
}

/// Runs a test of the windows in assembly, in a process of its own.
#[cfg(owned_windows)]
fn assembled(test: &str, body: impl FnOnce()) {
    thread_slots::tests::alone(&format!("percpu::owned::tests::{test}"), body);
}

/// A column of one cell, and its owner: the thread that [enters](Column::enter).
struct Column {
    way: Way,
    place: OnceLock<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    owner: &'static Owner,
    cell: &'static Cell,
    /// The row's cell in the first column.
    #[cfg(owned_windows)]
    first: usize,
}

/// The end of the owned columns lies this many bytes before a multiple of [`ALIGNMENT`].
#[cfg(owned_windows)]
const END: usize = 8;
#[cfg(owned_windows)]
const ALIGNMENT: usize = 64;

impl Column {
    fn new(way: Way) -> Arc<Column> {
        assert!(membarrier::register_memory());
        Arc::new(Column { way, place: OnceLock::new() })
    }

    /// Makes a column that the calling thread owns.
    fn here(way: Way) -> Arc<Column> {
        let column = Column::new(way);
        column.enter();
        column
    }

    /// Makes the calling thread the owner.
    fn enter(&self) {
        let filled = || Cell::new(word::empty(7) | BEFORE, 2000);
        let place = match self.way {
            Way::Compiled => Place {
                owner: Box::leak(Box::new(Owner::new())),
                cell: Box::leak(Box::new(filled())),
                #[cfg(owned_windows)]
                first: 0,
            },
            #[cfg(owned_windows)]
            Way::Assembled => {
                assert!(thread_slots::column().is_some(), "this thread owns a column");
                let thread_slot = thread_slots::own().unwrap();
                let offset = thread_slot.offset.load(Ordering::Relaxed);
                let columns: &Region =
                    Box::leak(Box::new(Region::anonymous(offset + STRIDE).unwrap()));
                // SAFETY: both lie within the region, which is leaked and not shared.
                unsafe {
                    columns.at::<usize>(ALIGNMENT - END).cast_mut().write(offset + STRIDE);
                    let cell = columns.at::<Cell>(ALIGNMENT + offset);
                    cell.cast_mut().write(filled());
                    let first = columns.at::<Cell>(ALIGNMENT).expose_provenance();
                    Place { owner: &thread_slot.owner, cell: &*cell, first }
                }
            }
        };
        assert!(self.place.set(place).is_ok(), "one owner");
    }

    fn owner(&self) -> &'static Owner {
        self.place.get().unwrap().owner
    }

    fn cell(&self) -> &'static Cell {
        self.place.get().unwrap().cell
    }

    /// Runs one window of the calling thread, which is the owner.
    fn window(&self, id: u64, units: u64, put: bool) -> bool {
        let place = self.place.get().unwrap();
        match self.way {
            Way::Compiled if put => {
                place.owner.update(place.cell, id, word::UNCHARGE + units, true)
            }
            Way::Compiled => {
                place.owner.update(place.cell, id, word::CHARGE.wrapping_sub(units), false)
            }
            #[cfg(owned_windows)]
            Way::Assembled => {
                let first = std::ptr::with_exposed_provenance(place.first);
                // SAFETY: `enter` made the columns, and stored their end before the first.
                unsafe {
                    if put {
                        windows::put::<ALIGNMENT, END>(first, id, units)
                    } else {
                        windows::take::<ALIGNMENT, END>(first, id, units)
                    }
                }
            }
        }
    }

    /// Makes one update. Returns by how much the stock shrank, modulo 2^64, and whether anything happened.
    fn update(&self, put: bool) -> (u64, u64) {
        let done = u64::from(self.window(ID, UNITS, put));
        (if put { UNITS.wrapping_neg() } else { UNITS }.wrapping_mul(done), done)
    }

    /// Takes the cell like a drain. Returns how many units were taken, and how many charges and uncharges were counted.
    fn drain(&self, reopened: u64) -> (u64, u64) {
        self.cell().freeze();
        assert!(membarrier::fence_memory());
        let fence = || {
            let fenced = membarrier::fence_memory();
            assert!(fenced, "no fence: {}", std::io::Error::last_os_error());
            fenced
        };
        let word = Owner::seize(|| Some(self.owner()), self.cell(), fence)
            .expect("it is taken in a hundred rounds");
        self.cell().cap.store(0, Ordering::Relaxed);
        self.cell().open(reopened);
        read(word)
    }
}

fn read(word: u64) -> (u64, u64) {
    (word::stock(word), word::charges(word) + word::uncharges(word))
}

/// Holds one window at a point during `drains` drains. None of them waits for its end.
fn hold(way: Way, point: u32, put: bool, drains: u32, reopened: u64) {
    let column = Column::new(way);
    let [reached, released] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (other, reaches, waits) = (column.clone(), reached.clone(), released.clone());
    let owner = std::thread::spawn(move || {
        other.enter();
        at_point(point, move || {
            reaches.store(true, Ordering::SeqCst);
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        });
        let first = other.update(put);
        // And once more, undisturbed.
        assert!(other.owner().is_outside());
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
    let (left, left_counts) = read(column.cell().word.load(Ordering::SeqCst));
    let case =
        format!("{way:?}, held at {point}, put: {put}, {drains} drains, reopened as {reopened:x}");
    assert_eq!(drained.wrapping_add(left).wrapping_add(net), BEFORE, "{case}");
    assert_eq!(counted + left_counts, done, "{case}");
    assert_eq!(left, 0, "{case}: a drained cell has no cap");
    let generation = word::generation(column.cell().word.load(Ordering::SeqCst));
    assert_eq!(generation, 7, "{case}");
    let handshake = column.owner().handshake.load(Ordering::SeqCst);
    assert_eq!(handshake, 0, "{case}");
}

#[test]
fn wherever_an_owner_is_held_its_cell_is_taken_and_no_unit_is_lost() {
    in_each_way("wherever_an_owner_is_held_its_cell_is_taken_and_no_unit_is_lost", |way| {
        for point in 1..=POINTS {
            for put in [false, true] {
                for drains in 1..=3 {
                    hold(way, point, put, drains, word::empty(7) | FROZEN);
                    hold(way, point, put, drains, word::empty(7));
                }
            }
        }
    });
}

#[test]
fn a_signal_handler_in_a_window_charges_elsewhere_and_a_drain_in_it_does_not_wait() {
    in_each_way(
        "a_signal_handler_in_a_window_charges_elsewhere_and_a_drain_in_it_does_not_wait",
        |way| {
            for point in 1..=POINTS {
                for put in [false, true] {
                    for drains in [false, true] {
                        let column = Column::here(way);
                        let (handling, sum) =
                            (column.clone(), Arc::new(std::sync::Mutex::new((0u64, 0))));
                        let told = sum.clone();
                        at_point(point, move || {
                            let (net, done) = handling.update(!put);
                            assert_eq!(done == 0, INSIDE.contains(&point), "point {point}");
                            assert_eq!(handling.owner().is_outside(), point == 1);
                            let (units, counted) =
                                if drains { handling.drain(word::empty(7)) } else { (0, 0) };
                            *told.lock().unwrap() =
                                (net.wrapping_add(units), counted.wrapping_sub(done));
                        });
                        let (net, done) = column.update(put);
                        let (elsewhere, counted) = *sum.lock().unwrap();
                        let (left, left_counts) = read(column.cell().word.load(Ordering::SeqCst));
                        let case = format!("point {point}, put: {put}, drains: {drains}");
                        assert_eq!(
                            left.wrapping_add(net).wrapping_add(elsewhere),
                            BEFORE,
                            "{case}"
                        );
                        assert_eq!(left_counts.wrapping_add(counted), done, "{case}");
                    }
                }
            }
        },
    );
}

/// A window that a handler left by a jump looks open for ever. Drains still work, and its thread continues in other
/// columns.
#[test]
fn a_window_that_never_ends_holds_up_nobody() {
    in_each_way("a_window_that_never_ends_holds_up_nobody", |way| {
        let column = Column::here(way);
        column.owner().at.store(address(column.cell()), Ordering::SeqCst);
        let start = Instant::now();
        assert_eq!(column.drain(word::empty(7)), (BEFORE, 0));
        assert_eq!(column.drain(word::empty(7)), (0, 0), "nothing twice");
        assert!(!column.owner().is_outside());
        assert_eq!(column.update(true), (0, 0));
        // A wait has 3000 turns, the last of which take a tenth of a millisecond each. There is no wait here.
        assert!(start.elapsed() < Duration::from_secs(30));
        // SAFETY: the cell is the column's.
        unsafe { column.owner().forget() };
        assert!(column.owner().is_outside());
        assert_eq!(column.owner().handshake.load(Ordering::SeqCst), 0);
    });
}

/// The owner's thread ends, or does not exist in a forked child, between its late store and the store that takes it
/// back.
#[test]
fn a_late_store_that_nobody_takes_back_is_forgotten_with_its_owner() {
    in_each_way("a_late_store_that_nobody_takes_back_is_forgotten_with_its_owner", |way| {
        let column = Column::here(way);
        let vanishing = column.clone();
        at_point(3, move || {
            assert_eq!(vanishing.drain(word::empty(7)), (BEFORE, 0));
            let stored = vanishing.clone();
            at_point(5, move || {
                assert_eq!(read(stored.cell().word.load(Ordering::SeqCst)), (BEFORE - UNITS, 1));
                // SAFETY: the cell is the column's.
                unsafe { stored.owner().forget() };
                assert_eq!(stored.cell().word.load(Ordering::SeqCst), word::empty(7) | FROZEN);
                assert!(stored.owner().is_outside());
            });
        });
        column.update(false);
    });
}

#[test]
fn what_must_not_be_stored_is_not_stored() {
    in_each_way("what_must_not_be_stored_is_not_stored", |way| {
        let column = Column::here(way);
        let word = column.cell().word.load(Ordering::SeqCst);
        let stale = word::empty(6) | 12345;
        for (id, units, put) in
            [(ID, BEFORE + 1, false), (ID, 1001, true), (stale, 1, false), (stale, 1, true)]
        {
            assert!(!column.window(id, units, put));
            assert_eq!(column.cell().word.load(Ordering::SeqCst), word);
            assert!(column.owner().is_outside(), "the window has ended");
        }
    });
}

/// Runs an owner and drains at full speed. The sum is the oracle.
#[test]
fn nothing_is_lost_between_an_owner_and_drains() {
    in_each_way("nothing_is_lost_between_an_owner_and_drains", |way| {
        let column = Column::new(way);
        let stop = Arc::new(AtomicBool::new(false));
        let (other, ends, entered) = (column.clone(), stop.clone(), Arc::new(Barrier::new(2)));
        let enters = entered.clone();
        let owner = std::thread::spawn(move || {
            other.enter();
            enters.wait();
            let (mut net, mut done, mut turn) = (0u64, 0u64, 0u64);
            while !ends.load(Ordering::Relaxed) {
                turn += 1;
                let (units, ok) = other.update(turn.is_multiple_of(2));
                net = net.wrapping_add(units);
                done += ok;
                if ok == 0 && other.owner().is_outside() {
                    // The slow path: adds by atomics, with room again.
                    other.cell().cap.store(2000, Ordering::Relaxed);
                    let put = word::UNCHARGE + UNITS;
                    let filled = u64::from(other.cell().update(ID, put, true));
                    net = net.wrapping_sub(UNITS * filled);
                    done += filled;
                }
            }
            (net, done)
        });
        entered.wait();
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
        let (left, left_counts) = read(column.cell().word.load(Ordering::SeqCst));
        assert_eq!(drained.wrapping_add(left).wrapping_add(net), BEFORE);
        assert_eq!(counted + left_counts, done);
    });
}

/// Runs both kinds of windows on arbitrary words.
#[cfg(owned_windows)]
#[test]
fn windows_that_are_assembly_do_what_the_compiled_do() {
    assembled("windows_that_are_assembly_do_what_the_compiled_do", || {
        use proptest::prelude::*;
        let [compiled, assembled] = [Way::Compiled, Way::Assembled].map(Column::here);
        let near = prop_oneof![0..3u64, 120..130u64, Just(word::STOCK_MAX), 0..=word::STOCK_MAX];
        let counts = (0..128u64, 0..128u64, any::<bool>(), 6..9u16, near.clone());
        let words = counts.prop_map(|(charges, uncharges, frozen, generation, stock)| {
            let frozen = if frozen { FROZEN } else { 0 };
            word::empty(generation) | frozen | uncharges << 40 | charges << 32 | stock
        });
        proptest!(crate::cases::few(file!(), 20_000), |(
            word in words, cap in near.clone(), units in near, put: bool
        )| {
            let told = [&compiled, &assembled].map(|column| {
                column.cell().word.store(word, Ordering::Relaxed);
                column.cell().cap.store(cap as u32, Ordering::Relaxed);
                let done = column.window(word::empty(7), units, put);
                (done, column.cell().word.load(Ordering::Relaxed), column.owner().is_outside())
            });
            prop_assert_eq!(told[0], told[1]);
            prop_assert!(told[0].2, "the window has ended");
        });
    });
}

#[cfg(owned_windows)]
#[test]
fn a_guards_window_does_as_put_and_leaves_alone_what_no_cell_takes() {
    assembled("a_guards_window_does_as_put_and_leaves_alone_what_no_cell_takes", || {
        let column = Column::here(Way::Assembled);
        let before = column.cell().word.load(Ordering::Relaxed);
        let packed = column.place.get().unwrap().first as u64 | word::empty(7);
        // SAFETY: `enter` made the columns, and stored their end before the first.
        let put = |units| unsafe { windows::put_packed::<ALIGNMENT, END>(packed, units) };
        for units in [word::STOCK_MAX + 1, 1 << 40, 1 << 63 | UNITS, u64::MAX, BEFORE + 1] {
            let told = put(units);
            assert!(!told.stands() && !told.settle(word::UNCHARGE.wrapping_add(units)), "{units}");
            assert_eq!(column.cell().word.load(Ordering::Relaxed), before, "{units}");
            assert!(column.owner().is_outside());
        }
        assert!(put(UNITS).stands());
        assert_eq!(column.cell().word.load(Ordering::Relaxed), before + word::UNCHARGE + UNITS);
        // A stealer asks for a cell while the window is open, so the window settles.
        let asks = column.clone();
        at_point(3, move || asks.owner().ask(address(asks.cell()) | ASKED));
        let told = put(UNITS);
        assert!(!told.stands() && told.settle(word::UNCHARGE + UNITS));
        let twice = 2 * (word::UNCHARGE + UNITS);
        assert_eq!(column.cell().word.load(Ordering::Relaxed), before + twice);
        assert!(column.owner().is_outside());
    });
}

#[cfg(owned_windows)]
#[test]
fn columns_that_no_thread_owns_in_this_ledger_are_left_alone() {
    assembled("columns_that_no_thread_owns_in_this_ledger_are_left_alone", || {
        let column = Column::here(Way::Assembled);
        let before = column.cell().word.load(Ordering::Relaxed);
        let place = column.place.get().unwrap();
        let offset = std::ptr::from_ref(place.cell).addr() - place.first;
        let end = std::ptr::with_exposed_provenance_mut::<usize>(place.first - END);
        for (owned_end, done) in [(0, false), (offset, false), (offset + 1, true)] {
            // SAFETY: the word lies before the first column, which belongs to this test.
            unsafe { end.write(owned_end) };
            assert_eq!(column.window(ID, UNITS, false), done, "{owned_end}");
            assert_eq!(column.cell().word.load(Ordering::Relaxed) != before, done);
        }
    });
}

/// The compiler relies on this, and no other test would notice a register that the compiler happens not to use.
#[cfg(owned_windows)]
#[test]
fn a_window_keeps_the_registers_that_its_callers_do_not_name() {
    assembled("a_window_keeps_the_registers_that_its_callers_do_not_name", || {
        let column = Column::here(Way::Assembled);
        let first = column.place.get().unwrap().first;
        let kept = windows::registers_kept::<ALIGNMENT, END>;
        for (id, units) in [(ID, UNITS), (ID, BEFORE), (word::empty(6), UNITS)] {
            // SAFETY: as in `window`.
            unsafe { kept(first, id, units) };
        }
    });
}

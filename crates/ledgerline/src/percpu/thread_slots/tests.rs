//! Tests in which threads come and go, and processes fork. Each test has a process of its own, in which threads own
//! columns.

use super::*;
use crate::percpu::owned::tests::{POINTS, at_point};
use crate::percpu::{Mode, detect};
use crate::{Charge, Group, Ledger, Mistakes};
use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Runs a test, by its whole name, in a process of its own. Returns whether this is that process.
pub(in crate::percpu) fn alone(name: &str, body: impl FnOnce()) -> bool {
    const ALONE: &str = "LEDGERLINE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        assert_eq!(detect(), Mode::Owned);
        body();
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = command.env(ALONE, "1").env("LEDGERLINE_PERCPU", "owned").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

fn free() -> u32 {
    FREE.load(Ordering::Acquire).count_ones()
}

/// Waits until this many columns are free. A scope waits for its threads' closures, not for the threads' ends.
fn comes_to(columns: u32) -> bool {
    let start = Instant::now();
    while free() != columns {
        if start.elapsed() > Duration::from_secs(30) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Starts this many threads, which charge and stay until all have charged. Returns how many of them owned a column,
/// and how many columns were free then.
fn charge_and_stay(threads: usize, ledger: &Ledger) -> (usize, u32) {
    let (owners, met) = (AtomicUsize::new(0), Barrier::new(threads + 1));
    let group = ledger.root();
    let mut least = 0;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..300 {
                    let held = group.try_charge(100).unwrap();
                    group.try_charge_units(7).unwrap();
                    drop(held);
                    group.uncharge_units(7);
                }
                owners.fetch_add(usize::from(own().is_some()), Ordering::Relaxed);
                met.wait();
                met.wait();
            });
        }
        met.wait();
        least = free();
        met.wait();
    });
    (owners.into_inner(), least)
}

#[test]
fn threads_own_columns_until_they_end_and_what_they_leave_is_drained() {
    alone(
        "percpu::thread_slots::tests::threads_own_columns_until_they_end_and_what_they_leave_is_drained",
        || {
            let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
            assert_eq!(ledger.mode(), Mode::Owned);
            let all = free();
            for threads in [1, 4, 100, 1000, 3] {
                let (owners, least) = charge_and_stay(threads, &ledger);
                assert!(comes_to(all), "{threads} threads have ended");
                assert_eq!(owners as u32, all - least, "{threads} threads");
                // Two threads seldom want the same thread slot; half of them would not do so by accident.
                assert!(owners >= threads.min(all as usize) / 2, "{owners} of {threads}");
                assert_eq!(ledger.root().precise(), 0);
            }
            ledger.root().drain();
            assert_eq!(ledger.root().approximate().value, 0);
            assert_eq!(ledger.mistakes(), Mistakes::default());
        },
    );
}

#[test]
fn ten_thousand_threads_one_after_the_other_leave_no_column_behind() {
    alone(
        "percpu::thread_slots::tests::ten_thousand_threads_one_after_the_other_leave_no_column_behind",
        || {
            let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
            let (all, owners) = (free(), AtomicUsize::new(0));
            for _ in 0..10_000 {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        drop(ledger.root().try_charge(1000).unwrap());
                        drop(ledger.root().try_charge(1000).unwrap());
                        owners.fetch_add(usize::from(own().is_some()), Ordering::Relaxed);
                    });
                });
            }
            // A thread may want the thread slot of another that is about to end, since the threads reuse few stacks.
            let owners = owners.into_inner();
            assert!(owners >= 5_000, "{owners}");
            assert!(comes_to(all), "{} of {all}", free());
            assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
        },
    );
}

/// A destructor of another key charges after this thread's slot was given back.
#[test]
fn a_thread_that_charges_while_it_ends_is_served() {
    alone("percpu::thread_slots::tests::a_thread_that_charges_while_it_ends_is_served", || {
        let ledger: &Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
        struct Late(&'static Ledger);
        impl Drop for Late {
            fn drop(&mut self) {
                drop(self.0.root().try_charge(100).unwrap());
                drop(self.0.root().try_charge(100).unwrap());
            }
        }
        thread_local!(static LATE: std::cell::OnceCell<Late> = const { std::cell::OnceCell::new() });
        extern "C" fn later(ledger: *mut c_void) {
            // SAFETY: the key's value is the ledger, which is leaked.
            drop(Late(unsafe { &*ledger.cast_const().cast::<Ledger>() }));
        }
        let all = free();
        let mut key = 0;
        // SAFETY: the call writes the key; the destructor reads the leaked ledger.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(later)) }, 0);
        for _ in 0..50 {
            std::thread::spawn(move || {
                LATE.with(|late| late.set(Late(ledger)).ok().unwrap());
                // SAFETY: the key was made above.
                unsafe { libc::pthread_setspecific(key, ptr::from_ref(ledger).cast()) };
                drop(ledger.root().try_charge(100).unwrap());
            })
            .join()
            .unwrap();
        }
        assert!(comes_to(all), "{} of {all}", free());
        assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

/// Checks the state in a child that a signal handler forked in a window, after the window has ended. Returns zero
/// if all is well.
fn inspect(ledger: &Ledger, group: Group<'_>, charge: Charge<'_>, owned_by_this: u32) -> i32 {
    let others = free();
    if others != owned_by_this {
        return 1;
    }
    if group.precise() != 5064 {
        return 2;
    }
    drop(charge);
    if group.precise() != 5000 {
        return 3;
    }
    // The columns of threads that are not here can be claimed.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(group.try_charge(300).unwrap());
            drop(group.try_charge(300).unwrap());
        });
    });
    if !comes_to(others) {
        return 4;
    }
    i32::from(group.precise() != 5000 || ledger.mistakes() != Mistakes::default()) * 5
}

/// Forks at each point of a window while other threads own columns.
#[test]
fn a_fork_in_a_window_leaves_two_whole_ledgers() {
    alone("percpu::thread_slots::tests::a_fork_in_a_window_leaves_two_whole_ledgers", || {
        let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
        let group = ledger.root().create("g").unwrap();
        let all = free();
        let kept = group.try_charge(5000).unwrap();
        drop(group.try_charge(300).unwrap());
        assert!(own().is_some());
        let met = Barrier::new(4);
        let mut ends = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    drop(group.try_charge(300).unwrap());
                    met.wait();
                    met.wait();
                });
            }
            met.wait();
            for point in 1..=POINTS {
                let child = Rc::new(Cell::new(-1));
                let made = child.clone();
                // SAFETY: the child uses nothing that other threads held, and exits below.
                at_point(point, move || made.set(unsafe { libc::fork() }));
                let charge = group.try_charge(64).unwrap();
                if child.get() == 0 {
                    // SAFETY: ends the child, even if it hangs.
                    unsafe {
                        libc::alarm(60);
                        libc::_exit(inspect(&ledger, group, charge, all - 1));
                    }
                }
                let mut status = -1;
                // SAFETY: waits for the child of this process.
                unsafe { libc::waitpid(child.get(), &raw mut status, 0) };
                drop(charge);
                ends.push((point, child.get() > 0, status, group.precise()));
            }
            met.wait();
        });
        for (point, reached, status, holds) in ends {
            assert_eq!((reached, status, holds), (true, 0, 5000), "point {point}");
        }
        drop(kept);
        assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

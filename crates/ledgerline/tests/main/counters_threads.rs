//! Counters lose nothing under threads, folds, signals and forks.

use crate::common::{Random, fork, in_both_modes, ran_alone, times, wait};
use crate::support::{allowed_cpus, pin};
use ledgerline::stat::{Clamps, Counters, PlaceId, Places, Width};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

ledgerline::items! {
    /// Things to count.
    enum Vm {
        /// Free.
        Free = "nr_free_pages",
        /// Of files.
        File = "nr_file_pages",
    }
}

fn machine() -> (Places, [PlaceId; 2]) {
    let mut tree = Places::builder("machine");
    let node = tree.node("0").unwrap();
    let zones = ["DMA", "Normal"].map(|name| tree.zone(node, name).unwrap());
    (tree.build().unwrap(), zones)
}

/// Stops the other threads when it is dropped, also by a failed assertion.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs writers that move between CPUs, against a thread that folds, drains and changes thresholds. `update` makes one update
/// and returns its amount.
fn hammer<W: Width>(
    counters: &Counters<Vm, W>,
    zones: [PlaceId; 2],
    thresholds: &[u32],
    update: impl Fn(&Counters<Vm, W>, PlaceId, Vm, &mut Random) -> i64 + Sync,
) {
    let stop = AtomicBool::new(false);
    let truth: [[AtomicI64; 2]; 2] = Default::default();
    let cpus = allowed_cpus();
    let folds = AtomicU64::new(0);
    let rounds = times(400, 20_000);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|seed| {
                let (update, truth, cpus) = (&update, &truth, &cpus);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..rounds {
                        pin(&cpus[random.below(cpus.len() as u64) as usize..][..1]);
                        for _ in 0..500 {
                            let (zone, item) = (random.below(2) as usize, random.below(2) as usize);
                            let which = [Vm::Free, Vm::File][item];
                            let n = update(counters, zones[zone], which, &mut random);
                            truth[zone][item].fetch_add(n, Relaxed);
                        }
                    }
                })
            })
            .collect();
        let (stop, folds) = (&stop, &folds);
        scope.spawn(move || {
            let mut random = Random::new(99);
            while !stop.load(Relaxed) {
                let zone = zones[random.below(2) as usize];
                let taken = match random.below(5) {
                    0 => counters.fold(),
                    1 => counters.fold_place(zone),
                    2 => counters.fold_cpu(random.below(counters.cpus().into()) as u32),
                    3 => counters.drain(zone).unwrap(),
                    _ => 0,
                };
                folds.fetch_add(taken, Relaxed);
                if let Some(&threshold) =
                    thresholds.get(random.below(thresholds.len() as u64) as usize)
                {
                    counters.set_threshold(zone, threshold).unwrap();
                }
            }
        });
        let _stop = Stop(stop);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    if !thresholds.is_empty() {
        assert!(folds.load(Relaxed) > 0, "nothing was folded meanwhile");
    }
    let root = counters.places().root();
    for (item, which) in [Vm::Free, Vm::File].into_iter().enumerate() {
        for (zone, place) in zones.into_iter().enumerate() {
            let truth = truth[zone][item].load(Relaxed);
            assert_eq!(counters.precise(place, which), truth);
            let reading = counters.approximate(place, which);
            let clamped = truth.max(0) as u64;
            assert!(reading.value.abs_diff(clamped) <= reading.bound, "{reading:?} of {truth}");
        }
        let all: i64 = truth.iter().map(|zone| zone[item].load(Relaxed)).sum();
        assert_eq!(counters.precise(root, which), all);
        counters.fold();
        assert_eq!(counters.precise(root, which), all);
        // After a fold of quiet counters the total is exact.
        assert_eq!(counters.approximate(root, which).value, all.max(0) as u64);
    }
    assert_eq!(counters.clamps().saturated, 0);
}

fn signed(random: &mut Random) -> (u64, i64) {
    (random.below(4), random.below(301) as i64 - 150)
}

#[test]
fn nothing_is_lost_while_others_fold_drain_and_change_thresholds() {
    in_both_modes("nothing_is_lost_while_others_fold_drain_and_change_thresholds", || {
        let (places, zones) = machine();
        let bytes = Counters::<Vm, i8>::new(&places).unwrap();
        hammer(&bytes, zones, &[0, 1, 7, 125], |counters, place, item, random| {
            match signed(random) {
                (0, n) => {
                    counters.add(place, item, n);
                    n
                }
                (1, _) => {
                    counters.dec(place, item);
                    -1
                }
                _ => {
                    counters.inc(place, item);
                    1
                }
            }
        });
        let events = Counters::<Vm, u16>::new(&places).unwrap();
        hammer(&events, zones, &[0, 3, 500, 65533], |counters, place, item, random| {
            match random.below(3) {
                0 => {
                    let n = random.size(17) as u32;
                    counters.add(place, item, n);
                    n.into()
                }
                _ => {
                    counters.inc(place, item);
                    1
                }
            }
        });
        let sums = Counters::<Vm, i64>::new(&places).unwrap();
        hammer(&sums, zones, &[], |counters, place, item, random| {
            let (_, n) = signed(random);
            counters.add(place, item, n << 30);
            n << 30
        });
    });
}

#[test]
fn simulated_cpus_may_be_driven_by_several_threads_each() {
    if ran_alone("simulated_cpus_may_be_driven_by_several_threads_each") {
        return;
    }
    let (places, zones) = machine();
    let counters = Counters::<Vm, i8>::builder(&places).cpus(3).anonymous().unwrap();
    hammer(&counters, zones, &[0, 2, 125], |counters, place, item, random| {
        let (_, n) = signed(random);
        counters.on(random.below(3) as u32).add(place, item, n);
        n
    });
}

#[test]
fn a_place_that_was_drained_keeps_nothing_back_even_from_updates_under_way() {
    in_both_modes(
        "a_place_that_was_drained_keeps_nothing_back_even_from_updates_under_way",
        || {
            let (places, zones) = machine();
            let counters = Counters::<Vm, i8>::new(&places).unwrap();
            let done = AtomicU64::new(0);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        counters.inc(zones[0], Vm::Free);
                        done.fetch_add(1, SeqCst);
                    }
                });
                let _stop = Stop(&stop);
                for _ in 0..times(3_000, 300_000) {
                    counters.set_threshold(zones[0], 125).unwrap();
                    counters.drain(zones[0]).unwrap();
                    // The update that was under way has ended, and another began after all of this.
                    let under_way = done.load(SeqCst);
                    let mut turns = 0;
                    while done.load(SeqCst) < under_way + 2 {
                        turns += 1;
                        if turns > 1000 {
                            std::thread::yield_now();
                        }
                    }
                    assert_eq!(counters.fold_place(zones[0]), 0, "something was kept back");
                    assert_eq!(counters.approximate(zones[0], Vm::Free).bound, 0);
                }
            });
            let done = done.load(Relaxed) as i64;
            assert_eq!(counters.precise(zones[0], Vm::Free), done);
        },
    );
}

#[test]
fn a_precise_reading_is_exact_while_differences_are_being_folded() {
    in_both_modes("a_precise_reading_is_exact_while_differences_are_being_folded", || {
        let (places, zones) = machine();
        let counters = Counters::<Vm, i8>::builder(&places).threshold(125).anonymous().unwrap();
        let rounds = times(2_000, 100_000) as i64;
        let (start, end) = (Barrier::new(2), Barrier::new(2));
        let folded = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    start.wait();
                    counters.fold();
                    folded.store(true, SeqCst);
                    end.wait();
                }
            });
            for round in 1..=rounds {
                counters.add(zones[0], Vm::Free, 40);
                counters.add(zones[1], Vm::Free, 60);
                start.wait();
                while !folded.swap(false, SeqCst) {
                    assert_eq!(counters.precise(places.root(), Vm::Free), 100 * round);
                    assert_eq!(counters.precise(zones[1], Vm::Free), 60 * round);
                }
                end.wait();
            }
        });
    });
}

static SIGNALLED: OnceLock<(Counters<Vm, i8>, PlaceId)> = OnceLock::new();
static HANDLED: AtomicI64 = AtomicI64::new(0);

extern "C" fn count_it(_: i32) {
    if let Some((counters, place)) = SIGNALLED.get() {
        counters.inc(*place, Vm::File);
        HANDLED.fetch_add(1, Relaxed);
        // Readers are allowed as well.
        counters.approximate(*place, Vm::File);
    }
}

#[test]
fn a_signal_handler_may_count_in_the_middle_of_an_update_or_a_fold() {
    in_both_modes("a_signal_handler_may_count_in_the_middle_of_an_update_or_a_fold", || {
        let (places, zones) = machine();
        let counters = Counters::<Vm, i8>::builder(&places).threshold(3).anonymous().unwrap();
        let (counters, zone) = SIGNALLED.get_or_init(|| (counters, zones[1]));
        // SAFETY: the handler only counts, which is async-signal-safe.
        unsafe { libc::signal(libc::SIGUSR1, count_it as *const () as usize) };
        let stop = AtomicBool::new(false);
        let counted = AtomicI64::new(0);
        std::thread::scope(|scope| {
            let (stop, counted) = (&stop, &counted);
            let work: [Box<dyn Fn() + Send + '_>; 2] = [
                Box::new(move || {
                    for _ in 0..100 {
                        counters.inc(*zone, Vm::File);
                    }
                    counted.fetch_add(100, Relaxed);
                }),
                Box::new(move || {
                    counters.fold();
                }),
            ];
            let (tell, told) = std::sync::mpsc::channel();
            for work in work {
                let tell = tell.clone();
                scope.spawn(move || {
                    // SAFETY: pthread_self has no preconditions. It is a number, or with musl an address.
                    tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
                    while !stop.load(Relaxed) {
                        work();
                    }
                });
            }
            let threads: [usize; 2] = std::array::from_fn(|_| told.recv().unwrap());
            for n in 0..times(4_000, 200_000) as usize {
                // SAFETY: both threads run until they are told to stop.
                unsafe { libc::pthread_kill(threads[n % 2] as libc::pthread_t, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(20));
            }
            stop.store(true, Relaxed);
        });
        let expected = counted.load(Relaxed) + HANDLED.load(Relaxed);
        assert!(HANDLED.load(Relaxed) > 0);
        assert_eq!(counters.precise(*zone, Vm::File), expected);
    });
}

#[test]
fn a_forked_child_has_a_copy_that_it_can_update_and_fold() {
    in_both_modes("a_forked_child_has_a_copy_that_it_can_update_and_fold", || {
        let (places, zones) = machine();
        let counters = Counters::<Vm, i8>::new(&places).unwrap();
        counters.add(zones[0], Vm::Free, 1000);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    counters.inc(zones[1], Vm::File);
                    counters.fold();
                }
            });
            let _stop = Stop(&stop);
            for _ in 0..times(40, 5_000) {
                let child = fork(|| {
                    let before = counters.precise(zones[0], Vm::Free);
                    for _ in 0..200 {
                        counters.inc(zones[0], Vm::Free);
                    }
                    counters.fold();
                    let after = counters.precise(zones[0], Vm::Free);
                    let file = counters.precise(zones[1], Vm::File);
                    let total = counters.approximate(zones[1], Vm::File).value;
                    i32::from(!(before == 1000 && after == 1200 && file == total as i64))
                });
                assert_eq!(wait(child), 0);
            }
        });
        assert_eq!(counters.precise(zones[0], Vm::Free), 1000);
    });
}

#[test]
fn a_refreshing_thread_brings_totals_up_to_date_and_ends_with_its_handle() {
    let (places, zones) = machine();
    let counters =
        Arc::new(Counters::<Vm, i8>::builder(&places).threshold(125).anonymous().unwrap());
    assert!(counters.refresh(Duration::ZERO).is_err());
    let refresh = counters.refresh(Duration::from_millis(1)).unwrap();
    counters.add(zones[0], Vm::Free, 100);
    while counters.approximate(zones[0], Vm::Free).value != 100 {
        std::thread::yield_now();
    }
    drop(refresh);
    assert_eq!(Arc::strong_count(&counters), 1, "the thread has ended");
    counters.inc(zones[0], Vm::Free);
    assert_eq!(counters.approximate(zones[0], Vm::Free).value, 100);
    assert_eq!(counters.clamps(), Clamps::default());
}

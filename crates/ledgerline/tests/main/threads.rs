//! Threads come, move and go: a charge belongs to its group, whichever thread made it on whichever CPU.

use crate::common::{Random, in_both_modes, times, unique};
use crate::support::{allowed_cpus, pin};
use ledgerline::{Charge, Ledger, Mistakes};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[test]
fn a_thread_may_end_with_charges_and_stock_and_another_returns_them() {
    in_both_modes("a_thread_may_end_with_charges_and_stock_and_another_returns_them", || {
        let ledger = Ledger::builder().batch(1 << 16).anonymous().unwrap();
        let groups: Vec<_> = (0..8)
            .map(|n| ledger.root().create(&unique("t")).unwrap().create(&format!("g{n}")).unwrap())
            .collect();
        let basket: Mutex<Vec<Charge<'_>>> = Mutex::new(Vec::new());
        let held = AtomicU64::new(0);
        for wave in 0..times(10_000, 1_000_000) / 64 {
            std::thread::scope(|scope| {
                for thread in 0..64 {
                    let (groups, basket, held) = (&groups, &basket, &held);
                    scope.spawn(move || {
                        let mut random = Random::new(wave * 64 + thread);
                        let mut mine: Vec<_> = (0..6)
                            .map(|_| groups[random.below(8) as usize].try_charge(random.size(12)))
                            .map(Result::unwrap)
                            .collect();
                        drop(mine.pop());
                        let made: u64 = mine.iter().map(Charge::units).sum();
                        let mut basket = basket.lock().unwrap();
                        basket.append(&mut mine);
                        held.fetch_add(made, Relaxed);
                        // Charges of others, whose threads may have ended.
                        for _ in 0..random.below(9) {
                            let pick = random.below(basket.len() as u64) as usize;
                            let charge = basket.swap_remove(pick);
                            held.fetch_sub(charge.units(), Relaxed);
                            drop(charge);
                            if basket.is_empty() {
                                break;
                            }
                        }
                    });
                }
            });
            assert_eq!(ledger.root().precise(), held.load(Relaxed));
        }
        basket.into_inner().unwrap().clear();
        assert_eq!(ledger.root().precise(), 0);
        // Units that ended threads left idle are not lost: a drain returns them.
        ledger.root().drain();
        assert_eq!(ledger.root().approximate().value, 0);
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn a_thread_that_is_moved_about_loses_no_unit() {
    in_both_modes("a_thread_that_is_moved_about_loses_no_unit", || {
        let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
        let groups = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
        let cpus = allowed_cpus();
        let stop = AtomicBool::new(false);
        let rounds = times(6_000, 1_000_000);
        std::thread::scope(|scope| {
            let movers: Vec<_> = (0..3)
                .map(|seed| {
                    let (groups, cpus) = (&groups, &cpus);
                    scope.spawn(move || {
                        let mut random = Random::new(seed);
                        let mut held = Vec::new();
                        for _ in 0..rounds {
                            pin(&cpus[random.below(cpus.len() as u64) as usize..][..1]);
                            for _ in 0..random.below(40) {
                                let group = groups[random.below(2) as usize];
                                held.push(group.try_charge(random.size(10)).unwrap());
                                if held.len() > 20 {
                                    let pick = random.below(20) as usize;
                                    drop(held.swap_remove(pick));
                                }
                            }
                        }
                    })
                })
                .collect();
            let stop = &stop;
            scope.spawn(move || {
                // A drain takes units out of every cell meanwhile.
                while !stop.load(Relaxed) {
                    groups[0].drain();
                    std::thread::yield_now();
                }
            });
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            stop.store(true, Relaxed);
        });
        assert_eq!(ledger.root().precise(), 0);
        ledger.root().drain();
        for group in [ledger.root(), groups[0], groups[1]] {
            let estimate = group.approximate();
            assert_eq!((estimate.value, estimate.bound), (0, 0), "{}", group.path());
        }
        let root = &ledger.snapshot().groups[0];
        assert_eq!(root.charges, root.uncharges);
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

//! Compares idle units with sums that the tests keep: at every moment, with and without limits, a group reads at most a quarter
//! and the slack above the truth, and never below it.

use crate::common::{Random, in_both_modes, times, unique};
use crate::support::{allowed_cpus, pin, seconds};
use ledgerline::{Charge, Group, Ledger, Limit, Mistakes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Returns the slack; see `Estimate::bound`.
fn slack(batch: u64) -> u64 {
    (64 * batch).min(16 << 20)
}

/// Checks a reading; the truth was between `least` and `most`, both included.
fn check(group: Group<'_>, least: u64, most: u64, slack: u64) {
    let estimate = group.approximate();
    let told = || format!("{}: {estimate:?}, {least}..={most} is true", group.path());
    assert!(estimate.value >= least, "{}", told());
    assert!(estimate.value - estimate.bound <= most, "{}", told());
    assert!(estimate.value <= most + most / 4 + slack, "{}", told());
    assert!(estimate.bound <= most / 4 + slack, "{}", told());
    if let Some(max) = group.max().get() {
        assert!(estimate.bound <= (max - estimate.value) / 16, "{}, max {max}", told());
    }
}

fn exact(group: Group<'_>, truth: u64, slack: u64) {
    check(group, truth, truth, slack);
}

/// So many groups charge 1 000 units each, return nearly all, charge again, and end.
fn many_small_groups(batch: u64, count: u64, tenants: u64, max: Option<u64>) {
    let slack = slack(batch);
    let ledger = Ledger::builder().batch(batch).anonymous().unwrap();
    let root = ledger.root();
    let tenants: Vec<_> = (0..tenants)
        .map(|n| {
            let tenant = root.create(&format!("t{n}")).unwrap();
            tenant.set_max(max.map_or(Limit::MAX, Limit::units)).unwrap();
            tenant
        })
        .collect();
    let cpus = allowed_cpus();
    let mut truth = vec![0u64; tenants.len()];
    let watch = |truth: &[u64], at: usize, group: Group<'_>, own: u64| {
        exact(root, truth.iter().sum(), slack);
        exact(tenants[at], truth[at], slack);
        exact(group, own, slack);
    };
    let mut groups = Vec::new();
    for n in 0..count {
        let at = n as usize % tenants.len();
        let group = tenants[at].create(&unique("q")).unwrap();
        group.charge_units(1_000).unwrap();
        truth[at] += 1_000;
        groups.push((at, group));
        watch(&truth, at, group, 1_000);
    }
    // Returned units stay in cells, if their caps allow it; and then on another CPU.
    for (round, &cpu) in cpus.iter().take(3).enumerate() {
        pin(&[cpu]);
        let back = if round == 0 { 999 } else { 1 };
        for &(at, group) in &groups {
            group.uncharge_units(back);
            truth[at] -= back;
            watch(&truth, at, group, 1_000 - back);
            group.charge_units(back).unwrap();
            truth[at] += back;
            watch(&truth, at, group, 1_000);
        }
    }
    for &(at, group) in &groups {
        group.uncharge_units(1_000);
        truth[at] -= 1_000;
        watch(&truth, at, group, 0);
    }
    let left = groups.split_off(groups.len() - 10);
    for (at, group) in groups {
        group.destroy().unwrap();
        exact(tenants[at], 0, slack);
        exact(root, 0, slack);
    }
    for (at, group) in left {
        let charge = group.try_charge(500).unwrap();
        truth[at] += 500;
        watch(&truth, at, group, 500);
        drop(charge);
        truth[at] -= 500;
        watch(&truth, at, group, 0);
    }
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn fifty_thousand_groups_leave_a_quarter_and_the_slack_idle_at_most() {
    in_both_modes("fifty_thousand_groups_leave_a_quarter_and_the_slack_idle_at_most", || {
        many_small_groups(64 * 4096, times(50_000, 500_000), 1, None);
    });
}

#[test]
fn so_do_groups_of_limited_tenants_and_in_small_batches() {
    in_both_modes("so_do_groups_of_limited_tenants_and_in_small_batches", || {
        many_small_groups(64 * 4096, 10_000, 7, Some(100 << 20));
        for batch in [1, 50, 4096] {
            many_small_groups(batch, 3_000, 3, None);
            many_small_groups(batch, 3_000, 3, Some(2_000_000));
        }
    });
}

#[test]
fn what_is_in_use_may_fall_from_much_to_nothing() {
    in_both_modes("what_is_in_use_may_fall_from_much_to_nothing", || {
        for batch in [64, 64 * 4096] {
            let slack = slack(batch);
            let ledger = Ledger::builder().batch(batch).anonymous().unwrap();
            let root = ledger.root();
            let large = root.create("large").unwrap();
            let groups: Vec<_> = (0..2_000).map(|_| root.create(&unique("q")).unwrap()).collect();
            for _ in 0..times(3, 100) {
                // Compared with so much, the cells of all the others are negligible.
                let mut much: Vec<_> =
                    (0..10).map(|_| large.try_charge(slack * 10).unwrap()).collect();
                let mut truth = slack * 100;
                for group in &groups {
                    drop(group.try_charge(batch * 4).unwrap());
                    exact(root, truth, slack);
                }
                // Compared with less and less, they become too much.
                while let Some(charge) = much.pop() {
                    truth -= charge.units();
                    drop(charge);
                    exact(root, truth, slack);
                }
            }
        }
    });
}

#[test]
fn what_is_moved_away_leaves_no_more_idle_than_what_is_returned() {
    in_both_modes("what_is_moved_away_leaves_no_more_idle_than_what_is_returned", || {
        const BATCH: u64 = 4096;
        let slack = slack(BATCH);
        let ledger = Ledger::builder().batch(BATCH).anonymous().unwrap();
        let [from, to] = ["from", "to"].map(|name| ledger.root().create(name).unwrap());
        let much = from.try_charge(slack * 50).unwrap();
        for _ in 0..500 {
            drop(from.create(&unique("q")).unwrap().try_charge(BATCH * 16).unwrap());
        }
        assert!(from.approximate().bound > 2 * slack);
        let moved = much.transfer(to).unwrap();
        exact(from, 0, slack);
        exact(to, moved.units(), slack);
        exact(ledger.root(), moved.units(), slack);
    });
}

/// The completed and started work of threads: four sums that only grow.
#[derive(Default)]
struct Sums {
    charging: AtomicU64,
    charged: AtomicU64,
    returning: AtomicU64,
    returned: AtomicU64,
}

impl Sums {
    fn charge<'l>(&self, group: Group<'l>, n: u64) -> Charge<'l> {
        self.charging.fetch_add(n, SeqCst);
        let charge = group.try_charge(n).unwrap();
        self.charged.fetch_add(n, SeqCst);
        charge
    }

    fn uncharge(&self, charge: Charge<'_>) {
        let n = charge.units();
        self.returning.fetch_add(n, SeqCst);
        drop(charge);
        self.returned.fetch_add(n, SeqCst);
    }

    /// Reads a group between two readings of its sums.
    fn check(&self, group: Group<'_>, slack: u64) {
        let (charged, returned) = (self.charged.load(SeqCst), self.returned.load(SeqCst));
        let estimate = group.approximate();
        let (charging, returning) = (self.charging.load(SeqCst), self.returning.load(SeqCst));
        let (least, most) = (charged.saturating_sub(returning), charging - returned);
        let told = || format!("{}: {estimate:?}, {least}..={most} is true", group.path());
        assert!(estimate.value >= least, "{}", told());
        assert!(estimate.value - estimate.bound <= most, "{}", told());
        assert!(estimate.value <= most + most / 4 + slack, "{}", told());
    }
}

#[test]
fn several_threads_that_move_among_cpus_stay_within_the_bound_at_every_moment() {
    in_both_modes(
        "several_threads_that_move_among_cpus_stay_within_the_bound_at_every_moment",
        || {
            for batch in [64, 4096, 64 * 4096] {
                let slack = slack(batch);
                let ledger = Ledger::builder().batch(batch).anonymous().unwrap();
                let root = ledger.root();
                let tenants = [0, 1].map(|n| root.create(&format!("t{n}")).unwrap());
                let groups =
                    tenants.map(|tenant| [(); 300].map(|()| tenant.create(&unique("q")).unwrap()));
                let (sums, of_root) = ([Sums::default(), Sums::default()], Sums::default());
                let stop = AtomicBool::new(false);
                let cpus = allowed_cpus();
                std::thread::scope(|scope| {
                    for seed in 0..4 {
                        let (stop, cpus, sums, of_root, groups) =
                            (&stop, &cpus, &sums, &of_root, &groups);
                        scope.spawn(move || {
                            let mut random = Random::new(seed);
                            let mut held = Vec::new();
                            while !stop.load(SeqCst) {
                                pin(&[cpus[random.below(cpus.len() as u64) as usize]]);
                                // Up, and down to nothing.
                                for _ in 0..random.below(500) {
                                    let at = random.below(2) as usize;
                                    let group = groups[at][random.below(300) as usize];
                                    let n = random.size(batch.ilog2().into());
                                    of_root.charging.fetch_add(n, SeqCst);
                                    held.push((at, sums[at].charge(group, n)));
                                    of_root.charged.fetch_add(n, SeqCst);
                                }
                                while let Some((at, charge)) = held.pop() {
                                    let n = charge.units();
                                    of_root.returning.fetch_add(n, SeqCst);
                                    sums[at].uncharge(charge);
                                    of_root.returned.fetch_add(n, SeqCst);
                                }
                            }
                        });
                    }
                    let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let start = Instant::now();
                        while start.elapsed() < seconds(0.5, 60.0) {
                            of_root.check(root, slack);
                            sums[0].check(tenants[0], slack);
                            sums[1].check(tenants[1], slack);
                        }
                    }));
                    stop.store(true, SeqCst);
                    if let Err(panic) = watched {
                        std::panic::resume_unwind(panic);
                    }
                });
                exact(root, 0, slack);
                assert_eq!((root.precise(), ledger.mistakes()), (0, Mistakes::default()));
            }
        },
    );
}

#[test]
fn caps_settle_and_are_not_taken_back_while_the_same_groups_go_on() {
    in_both_modes("caps_settle_and_are_not_taken_back_while_the_same_groups_go_on", || {
        pin(&allowed_cpus()[..1]);
        let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
        let root = ledger.root();
        let groups: Vec<_> = (0..3_000).map(|_| root.create(&unique("q")).unwrap()).collect();
        let round = || {
            for group in &groups {
                drop(group.try_charge(16).unwrap());
            }
            root.approximate().bound
        };
        // Caps of the first size would be too many: they have been halved a few times.
        let settle = || {
            for _ in 0..10 {
                round();
            }
            let settled = round();
            assert!(settled > slack(4096) / 10, "each has some: {settled}");
            settled
        };
        let (mut settled, mut drained) = (settle(), 0);
        let turns = times(300, 30_000);
        for _ in 0..turns {
            if round() != settled {
                // Sometimes a kernel gives a thread that was preempted another column, even on the same CPU.
                drained += 1;
                settled = settle();
            }
        }
        assert!(drained <= turns / 100, "drained in {drained} of {turns} turns");
        // They are then too small for charges of a hundred, and are doubled when few groups are left.
        let (last, others) = groups.split_last().unwrap();
        for group in others {
            group.destroy().unwrap();
        }
        let idle = || {
            drop(last.try_charge(100).unwrap());
            last.approximate().value
        };
        // A cell of the first size keeps 64 units of surplus.
        assert!(idle() < 64);
        assert!((0..100_000).any(|_| idle() == 64), "{:?}", last.approximate());
    });
}

/// A pair of an allocator's blocks must not walk to the counters, however few units a group holds.
#[test]
fn a_cell_of_a_small_group_may_hold_an_eighth_of_a_batch_and_no_more() {
    in_both_modes("a_cell_of_a_small_group_may_hold_an_eighth_of_a_batch_and_no_more", || {
        pin(&allowed_cpus()[..1]);
        const BATCH: u64 = 1 << 16;
        let ledger = Ledger::builder().batch(BATCH).anonymous().unwrap();
        let group = ledger.root().create("small").unwrap();
        let _held = group.try_charge(1_000).unwrap();
        // Returned units stay in the cell, up to its cap: the counters are no longer asked for them.
        let idle_after = |blocks: u64| {
            for _ in 0..100 {
                let held: Vec<_> =
                    (0..blocks).map(|_| group.try_charge(BATCH / 64).unwrap()).collect();
                drop(held);
            }
            group.approximate().value - group.precise()
        };
        let (few, many) = (idle_after(7), idle_after(16));
        assert!(few > BATCH / 16, "{few} of {BATCH}");
        assert!(many <= BATCH / 8, "{many} of {BATCH}");
    });
}

#[test]
fn the_peak_of_a_small_group_is_what_it_held_and_hardly_more() {
    in_both_modes("the_peak_of_a_small_group_is_what_it_held_and_hardly_more", || {
        pin(&allowed_cpus()[..1]);
        let ledger = Ledger::new().unwrap();
        let tenant = ledger.root().create("tenant").unwrap();
        for pieces in [1, 2, 5, 10] {
            let group = tenant.create("small").unwrap();
            let held: Vec<_> =
                (0..pieces).map(|_| group.try_charge(10 / pieces).unwrap()).collect();
            let peak = group.peak();
            assert!(peak.value >= 10 && peak.value < 20, "{pieces}: {peak:?}");
            assert!(group.approximate().value < 20, "{pieces}: {:?}", group.approximate());
            drop(held);
            let again = group.peak();
            assert!(again.value - again.bound <= 10 && again.value >= 10, "{pieces}: {again:?}");
            // With one piece there is no uncertainty.
            assert!(pieces > 1 || again.value - again.bound == 10, "{again:?}");
            let snapshot = ledger.snapshot();
            let seen = snapshot.groups.iter().find(|seen| seen.id == group.id()).unwrap();
            assert_eq!(seen.peak, again);
            assert_eq!(group.destroy().unwrap().peak, again);
        }
        // An exact look counts, too.
        let group = tenant.create("small").unwrap();
        let held: Vec<_> = (0..1_000).map(|_| group.try_charge(7).unwrap()).collect();
        assert_eq!(group.precise(), 7_000);
        drop(held);
        let peak = group.peak();
        assert!(peak.value - peak.bound == 7_000 && peak.value < 21_000, "{peak:?}");
        group.reset_peak();
        let peak = group.peak();
        assert!(peak.value - peak.bound == 0 && peak.value < 21_000, "{peak:?}");
    });
}

#[test]
fn peaks_of_several_threads_hold_what_was_held_at_once() {
    in_both_modes("peaks_of_several_threads_hold_what_was_held_at_once", || {
        for seed in 0..times(20, 2_000) {
            let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
            let tenant = ledger.root().create("tenant").unwrap();
            let groups = [(); 3].map(|()| tenant.create(&unique("q")).unwrap());
            // Each thread's own peak, and the sum for the case that all occur at once.
            let highest: Vec<u64> = std::thread::scope(|scope| {
                let threads = [0, 1, 2, 3].map(|thread| {
                    scope.spawn(move || {
                        let mut random = Random::new(seed << 8 | thread);
                        let (mut held, mut now, mut most) = (Vec::new(), 0, 0);
                        for _ in 0..2_000 {
                            if random.one_in(2) && now < 100_000 {
                                let group = groups[random.below(3) as usize];
                                let n = random.size(12);
                                held.push(group.try_charge(n).unwrap());
                                now += n;
                                most = most.max(now);
                            } else if !held.is_empty() {
                                let pick = random.below(held.len() as u64) as usize;
                                now -= held.swap_remove(pick).units();
                            }
                        }
                        most
                    })
                });
                threads.map(|thread| thread.join().unwrap()).to_vec()
            });
            let peak = tenant.peak();
            let (one, all) = (*highest.iter().max().unwrap(), highest.iter().sum::<u64>());
            assert!(peak.value >= one, "{peak:?}, {highest:?}");
            assert!(peak.value - peak.bound <= all, "{peak:?}, {highest:?}");
            for group in groups {
                let peak = group.peak();
                assert!(peak.value - peak.bound <= all, "{peak:?}, {highest:?}");
            }
        }
    });
}

/// Creates a tenant with a limit of 64 GiB.
fn tenant_of(ledger: &Ledger) -> Group<'_> {
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max("64G".parse().unwrap()).unwrap();
    tenant
}

#[test]
fn a_large_charge_that_comes_back_stays_in_the_cell_for_the_next() {
    in_both_modes("a_large_charge_that_comes_back_stays_in_the_cell_for_the_next", || {
        pin(&allowed_cpus()[..1]);
        for size in [64 << 10, 1 << 20] {
            let ledger = Ledger::new().unwrap();
            let query = tenant_of(&ledger).create("query").unwrap();
            query.set_max("32G".parse().unwrap()).unwrap();
            for _ in 0..3 {
                drop(query.try_charge(size).unwrap());
            }
            let idle = query.approximate().value;
            assert!(idle >= size, "{idle} of {size}");
            // The counters are not asked.
            let held = query.try_charge(size).unwrap();
            assert_eq!((query.approximate().value, query.precise()), (idle, size));
            drop(held);
            exact(query, 0, slack(256 << 10));
        }
    });
}

#[test]
fn a_group_that_returns_a_gigabyte_keeps_little_of_it_idle() {
    in_both_modes("a_group_that_returns_a_gigabyte_keeps_little_of_it_idle", || {
        pin(&allowed_cpus()[..1]);
        let (size, slack) = (1 << 20, slack(256 << 10));
        let ledger = Ledger::new().unwrap();
        let tenant = tenant_of(&ledger);
        let query = tenant.create("query").unwrap();
        for _ in 0..3 {
            let mut held = Vec::new();
            for count in 1..=1000 {
                held.push(query.try_charge(size).unwrap());
                exact(query, count * size, slack);
            }
            while held.pop().is_some() {
                exact(tenant, held.len() as u64 * size, slack);
            }
            let idle = query.approximate().value;
            assert!(idle <= slack / 4, "{idle}");
        }
        assert_eq!((query.precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

#[test]
fn cells_for_large_charges_leave_room_to_those_for_small_ones() {
    in_both_modes("cells_for_large_charges_leave_room_to_those_for_small_ones", || {
        pin(&allowed_cpus()[..1]);
        let slack = slack(256 << 10);
        let ledger = Ledger::new().unwrap();
        let tenant = tenant_of(&ledger);
        for at in 0..40 {
            let large = tenant.create(&format!("large{at}")).unwrap();
            drop(large.try_charge(1 << 20).unwrap());
            exact(tenant, 0, slack);
        }
        let small = tenant.create("small").unwrap();
        for _ in 0..3 {
            drop(small.try_charge(1000).unwrap());
        }
        assert!(small.approximate().value >= 1000, "its cell serves it");
        exact(tenant, 0, slack);
    });
}

//! The end of a group: its leftover, its old handles, and the next group of its row.

use crate::common::{Random, in_both_modes, times, unique};
use crate::support::{allowed_cpus, limited, pin};
use ledgerline::{
    Charge, CreateError, DestroyError, Group, GroupId, Ledger, Limit, Mistakes, Reason,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[test]
fn a_group_with_children_is_not_destroyed_and_goes_on() {
    let ledger = Ledger::new().unwrap();
    let parent = ledger.root().create("parent").unwrap();
    let child = parent.create("child").unwrap();
    assert_eq!(parent.destroy(), Err(DestroyError::HasChildren { children: 1 }));
    assert_eq!(ledger.root().destroy(), Err(DestroyError::Root));
    let charge = parent.try_charge(7).unwrap();
    child.destroy().unwrap();
    assert_eq!(child.destroy(), Err(DestroyError::Gone));
    assert_eq!(parent.destroy().unwrap().leftover, 7);
    drop(charge);
    assert_eq!(ledger.root().precise(), 0);
}

/// Destroys more groups than one fence serves, while threads charge and return on all CPUs, create more, and destroy single
/// ones.
#[test]
fn a_tree_that_is_destroyed_while_others_use_it_returns_every_unit() {
    in_both_modes("a_tree_that_is_destroyed_while_others_use_it_returns_every_unit", || {
        // Limits how many are created while the destroying thread has no CPU: it could not keep up with more.
        let ledger = Ledger::builder().capacity(1_000).anonymous().unwrap();
        let cpus = allowed_cpus();
        for round in 0..times(30, 3000) {
            let tenant = ledger.root().create("tenant").unwrap();
            let groups: Vec<Group<'_>> =
                (0..100).map(|n| tenant.create(&n.to_string()).unwrap()).collect();
            let (stop, created) = (AtomicBool::new(false), AtomicU64::new(0));
            let (groups, stop, created, cpus) = (&groups, &stop, &created, &cpus);
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    scope.spawn(move || {
                        pin(&[cpus[thread % cpus.len()]]);
                        let mut random = Random::new(round * 3 + thread as u64);
                        while !stop.load(Relaxed) {
                            let group = groups[random.below(100) as usize];
                            match random.below(50) {
                                0 => {
                                    let _settled = group.destroy();
                                }
                                1 => {
                                    let late = group.create(&unique("late")).is_ok();
                                    created.fetch_add(u64::from(late), Relaxed);
                                }
                                _ => {
                                    let n = 1 + random.below(5000);
                                    if group.try_charge_units(n).is_ok() {
                                        group.uncharge_units(n);
                                    }
                                }
                            }
                        }
                    });
                }
                std::thread::yield_now();
                while tenant.destroy_tree().is_err_and(|error| error != DestroyError::Gone) {}
                stop.store(true, Relaxed);
            });
            assert!(!tenant.exists() && groups.iter().all(|group| !group.exists()));
            assert_eq!(ledger.root().descendants().count(), 0);
            assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
            assert_eq!(ledger.root().approximate().value, 0, "no idle unit is left behind");
        }
    });
}

#[test]
fn a_group_whose_last_child_ends_at_that_moment_is_not_said_to_be_gone() {
    let ledger = Ledger::new().unwrap();
    let parent = || ledger.root().create(&unique("parent")).unwrap();
    let (current, stop) = (Mutex::new(parent()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let parent = *current.lock().unwrap();
                if let Ok(child) = parent.create(&unique("child")) {
                    child.destroy().unwrap();
                }
            }
        });
        let mut said = Ok(());
        for _ in 0..times(200_000, 20_000_000) {
            // No other thread destroys parents.
            let one = *current.lock().unwrap();
            match one.destroy() {
                Ok(_) => *current.lock().unwrap() = parent(),
                Err(DestroyError::HasChildren { children: 1 }) => {}
                Err(error) => said = Err(error),
            }
        }
        stop.store(true, Relaxed);
        assert_eq!(said, Ok(()));
    });
}

#[test]
fn what_is_left_stays_in_the_ancestors_until_it_is_returned() {
    let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
    let (a, by_guard) = {
        let a = ledger.root().create("a").unwrap();
        let b = a.create("b").unwrap();
        let guard = b.try_charge(5_000).unwrap();
        b.try_charge_units(300).unwrap();
        let settled = b.destroy().unwrap();
        assert_eq!(settled.leftover, 5_300);
        assert!(settled.peak.value >= 5_300);
        assert_eq!((settled.charges, settled.uncharges), (2, 0));
        assert_eq!((a.precise(), ledger.root().precise()), (5_300, 5_300));
        assert_eq!(ledger.root().approximate().value, 5_300, "the idle stock went back");
        // By id, as from an allocation's tag; in part, as `realloc` does.
        let b = ledger.group(b.id());
        b.uncharge_units(100);
        b.uncharge_units(200);
        assert_eq!((a.precise(), ledger.root().precise()), (5_000, 5_000));
        (a, guard)
    };
    // Its row is taken: two more groups fit besides the root and `a`, less one.
    let c = ledger.root().create("c").unwrap();
    assert_eq!(c.create("d").unwrap_err(), CreateError::Full { capacity: 4 });
    // `a` itself may go as well; the units still reach the ancestors.
    assert_eq!(a.destroy().unwrap().leftover, 5_000);
    drop(by_guard);
    assert_eq!(ledger.root().precise(), 0);
    assert_eq!(ledger.mistakes(), Mistakes::default());
    c.create("d").unwrap();
    c.create("e").unwrap();
    let counts = &ledger.snapshot().groups[0];
    assert_eq!((counts.charges, counts.uncharges), (2, 3), "its counts went to its ancestors");
}

#[test]
fn a_stale_handle_is_refused_and_does_not_disturb_the_next_group_of_its_row() {
    in_both_modes(
        "a_stale_handle_is_refused_and_does_not_disturb_the_next_group_of_its_row",
        || {
            let ledger = Ledger::builder().capacity(2).anonymous().unwrap();
            let stale = ledger.root().create(&unique("old")).unwrap();
            drop(stale.try_charge(100).unwrap());
            stale.destroy().unwrap();
            let group = ledger.root().create(&unique("new")).unwrap();
            assert_eq!(stale.id().index(), group.id().index(), "the row was reused");
            group.set_max(Limit::units(1 << 20)).unwrap();
            let charge = group.try_charge(1_000).unwrap();

            assert!(!stale.exists());
            let refusal = stale.try_charge_units(0).unwrap_err();
            assert_eq!((refusal.reason, refusal.charged), (Reason::Gone, stale.id()));
            assert_eq!(stale.try_charge(1).unwrap_err().reason, Reason::Gone);
            assert_eq!(stale.charge(1).unwrap_err().reason, Reason::Gone);
            assert_eq!(stale.create("x").unwrap_err(), CreateError::Gone);
            assert_eq!(stale.destroy(), Err(DestroyError::Gone));
            stale.uncharge_units(10);
            let mistakes = ledger.mistakes();
            assert_eq!((mistakes.underflows, mistakes.strays), (0, 1));
            let (charge, refused) = charge.transfer(stale).unwrap_err();
            assert_eq!(refused.reason, Reason::Gone);

            assert_eq!((group.precise(), group.approximate().value >= 1_000), (1_000, true));
            drop(charge);
            assert_eq!(group.precise(), 0);
            assert_eq!(group.max(), Limit::units(1 << 20));
        },
    );
}

#[test]
fn a_stale_handle_sets_nothing() {
    let ledger = Ledger::builder().capacity(2).anonymous().unwrap();
    let stale = ledger.root().create(&unique("old")).unwrap();
    stale.destroy().unwrap();
    let group = ledger.root().create(&unique("new")).unwrap();
    let charge = group.try_charge(1_000).unwrap();
    drop(group.try_charge(500_000).unwrap());
    let peak = group.peak();
    for stranger in [stale, ledger.group(GroupId::from_parts(77, 3))] {
        let _ = stranger.set_max(Limit::units(5_000_000));
        stranger.set_high(Limit::units(1));
        stranger.set_low(Limit::units(1));
        stranger.set_min(Limit::units(1));
        stranger.reset_peak();
    }
    for group in [group, ledger.root()] {
        assert_eq!((group.max(), group.high()), (Limit::MAX, Limit::MAX), "{}", group.path());
        assert_eq!((group.low(), group.min()), (Limit::ZERO, Limit::ZERO), "{}", group.path());
        assert_eq!(group.peak(), peak, "{}", group.path());
    }
    drop(charge);
}

#[test]
fn a_charge_of_nothing_outlives_its_group_and_is_no_mistake() {
    let ledger = Ledger::builder().capacity(3).anonymous().unwrap();
    let group = ledger.root().create("a").unwrap();
    let mut charge = group.try_charge(10).unwrap();
    let nothing = charge.split(0).unwrap();
    drop(charge);
    group.destroy().unwrap();
    drop(nothing);
    let group = ledger.root().create("b").unwrap();
    let nothing = group.try_charge(0).unwrap();
    group.destroy().unwrap();
    drop(nothing);
    assert_eq!(ledger.mistakes(), Mistakes::default());
    assert_eq!(ledger.snapshot().groups.len(), 1);
}

#[test]
fn a_full_ledger_says_so_and_recovers() {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
    for round in 0..3 {
        let groups: Vec<_> =
            (1..64).map(|n| ledger.root().create(&format!("{round}.{n}")).unwrap()).collect();
        let charges: Vec<_> = groups.iter().map(|group| group.try_charge(9).unwrap()).collect();
        assert_eq!(ledger.root().create("one").unwrap_err(), CreateError::Full { capacity: 64 });
        assert_eq!(groups[5].create("one").unwrap_err(), CreateError::Full { capacity: 64 });
        for group in &groups {
            group.destroy().unwrap();
        }
        // Each row is freed with its last unit.
        for (free, charge) in charges.into_iter().enumerate() {
            let before =
                (0..64).map_while(|_| ledger.root().create(&unique("x")).ok()).collect::<Vec<_>>();
            assert_eq!(before.len(), free);
            before.into_iter().for_each(|group| assert!(group.destroy().is_ok()));
            drop(charge);
        }
    }
    assert_eq!(ledger.root().precise(), 0);
}

/// One slot: a group that one thread replaces while others charge it.
type Slot = Mutex<GroupId>;

/// Charges the groups in the slots until the end; keeps some charges for a while.
fn charge_slots(ledger: &Ledger, slots: &[Slot], stop: &AtomicBool, seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let mut held: Vec<Charge<'_>> = Vec::new();
    let (mut granted, mut gone) = (0, 0);
    while !stop.load(Relaxed) {
        // Looked up once, used a few times: it may be destroyed at any moment.
        let slot = random.below(slots.len() as u64) as usize;
        let group = ledger.group(*slots[slot].lock().unwrap());
        for _ in 0..random.below(6) {
            match group.try_charge(random.size(14)) {
                Ok(charge) => {
                    granted += 1;
                    held.push(charge);
                }
                Err(refused) => {
                    assert_eq!(refused.reason, Reason::Gone, "{refused}");
                    gone += 1;
                }
            }
            if held.len() > 12 {
                let pick = random.below(held.len() as u64) as usize;
                drop(held.swap_remove(pick));
            }
        }
        if random.one_in(8) {
            held.clear();
        }
    }
    (granted, gone)
}

/// Replaces the group of a slot by one elsewhere in the tree.
fn replace(ledger: &Ledger, slot: &Slot, parents: &[Group<'_>], random: &mut Random) {
    let parent = parents[random.below(parents.len() as u64) as usize];
    let old = ledger.group(*slot.lock().unwrap());
    old.destroy().unwrap();
    // The free rows are a stack: the next group gets the row of the last one.
    let new = parent.create(&unique("slot")).unwrap();
    *slot.lock().unwrap() = new.id();
}

#[test]
fn groups_may_be_destroyed_and_rows_reused_while_others_charge_them() {
    in_both_modes("groups_may_be_destroyed_and_rows_reused_while_others_charge_them", || {
        let ledger = Ledger::builder().capacity(400).batch(4096).anonymous().unwrap();
        let parents: Vec<_> =
            (0..3).map(|n| ledger.root().create(&format!("p{n}")).unwrap()).collect();
        let slots: Vec<Slot> =
            (0..2).map(|_| Mutex::new(parents[0].create(&unique("slot")).unwrap().id())).collect();
        let stop = AtomicBool::new(false);
        let (granted, gone) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (ledger, slots, stop) = (&ledger, &slots, &stop);
                let (granted, gone) = (&granted, &gone);
                scope.spawn(move || {
                    let (ok, no) = charge_slots(ledger, slots, stop, seed);
                    granted.fetch_add(ok, Relaxed);
                    gone.fetch_add(no, Relaxed);
                });
            }
            let mut random = Random::new(99);
            for round in 0..times(60_000, 10_000_000) {
                replace(&ledger, &slots[round as usize % 2], &parents, &mut random);
            }
            stop.store(true, Relaxed);
        });
        assert!(granted.into_inner() > 0 && gone.into_inner() > 0, "the test met both cases");
        assert_eq!(ledger.mistakes(), Mistakes::default());
        ledger.root().drain();
        for group in ledger.snapshot().groups {
            assert_eq!((group.approximate, group.current), (0, 0), "{}", group.path);
            let estimate = ledger.group(group.id).approximate();
            assert_eq!((estimate.value, estimate.bound), (0, 0), "{}", group.path);
        }
        let root = &ledger.snapshot().groups[0];
        assert_eq!(root.charges, root.uncharges, "every charge was returned and counted");
        // No row was lost: the rest of the capacity can be used.
        let used = ledger.snapshot().groups.len();
        for _ in used..400 {
            parents[0].create(&unique("rest")).unwrap();
        }
    });
}

#[test]
fn of_several_who_destroy_a_group_one_does_and_nobody_hits_the_next_group() {
    in_both_modes("of_several_who_destroy_a_group_one_does_and_nobody_hits_the_next_group", || {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let rounds = times(40_000, 5_000_000);
        let slot = Mutex::new(ledger.root().create("first").unwrap().id());
        let destroyed = AtomicU64::new(0);
        let made = AtomicU64::new(1);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while made.load(Relaxed) < rounds {
                        let group = ledger.group(*slot.lock().unwrap());
                        match group.destroy() {
                            Ok(_) => {
                                destroyed.fetch_add(1, Relaxed);
                                // The row is reused at once, for a group that only the thread that finds it in the slot
                                // may destroy.
                                let next = ledger.root().create(&unique("next")).unwrap();
                                assert!(next.exists(), "destroyed by a stale handle");
                                made.fetch_add(1, Relaxed);
                                *slot.lock().unwrap() = next.id();
                            }
                            Err(error) => assert_eq!(error, DestroyError::Gone),
                        }
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), destroyed.into_inner() + 1);
        assert_eq!(ledger.snapshot().groups.len(), 2);
    });
}

#[test]
fn a_limit_set_while_the_group_is_destroyed_does_not_cost_its_row() {
    in_both_modes("a_limit_set_while_the_group_is_destroyed_does_not_cost_its_row", || {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap();
        let slot = Mutex::new(ledger.root().create("first").unwrap().id());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let group = ledger.group(*slot.lock().unwrap());
                    for limit in [1 << 40, 1 << 30, 1 << 20] {
                        let _ = group.set_max(Limit::units(limit));
                    }
                }
            });
            let mut failed = None;
            for round in 0..times(40_000, 5_000_000) {
                ledger.group(*slot.lock().unwrap()).destroy().unwrap();
                match ledger.root().create(&unique("next")) {
                    Ok(next) => *slot.lock().unwrap() = next.id(),
                    Err(error) => {
                        failed = Some((round, error));
                        break;
                    }
                }
            }
            stop.store(true, Relaxed);
            assert_eq!(failed, None, "a row was lost for good");
        });
    });
}

#[test]
fn a_million_groups_fit_and_take_half_a_gibibyte_at_most() {
    let ledger = Ledger::new().unwrap();
    let tenants: Vec<_> =
        (0..64).map(|n| ledger.root().create(&format!("t{n}")).unwrap()).collect();
    let mut last = tenants[0];
    for n in 0..(1 << 20) - 65 {
        last = tenants[n % 64].create(&unique("query")).unwrap();
        drop(last.try_charge(100).unwrap());
    }
    assert!(matches!(tenants[0].create("one"), Err(CreateError::Full { .. })));
    let footprint = ledger.footprint();
    assert!(footprint.resident < 512 << 20, "{footprint:?}");
    last.destroy().unwrap();
    tenants[0].create("one").unwrap();
}

#[test]
fn a_refusal_at_the_moment_of_its_groups_end_is_nobodys_mistake() {
    in_both_modes("a_refusal_at_the_moment_of_its_groups_end_is_nobodys_mistake", || {
        let ledger = Ledger::new().unwrap();
        let now = Mutex::new(ledger.root());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let group = *now.lock().unwrap();
                    for _ in 0..20 {
                        assert!(group == ledger.root() || group.try_charge(100).is_err());
                    }
                }
            });
            for _ in 0..times(30_000, 3_000_000) {
                let group = limited(ledger.root(), "g", 10);
                *now.lock().unwrap() = group;
                std::hint::spin_loop();
                // A charge in the middle of its walk may keep it busy.
                while group.destroy().is_err() {}
            }
            stop.store(true, Relaxed);
        });
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

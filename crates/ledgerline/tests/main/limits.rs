//! Limits with many threads: no charge goes over (I1), no charge that fits is refused (I2), nothing is lost (I7).

use crate::common::{Random, Run, in_both_modes, in_modes, times, unique};
use crate::support::{allowed_cpus, limited, pin, seconds};
use ledgerline::{Group, Ledger, Limit, Mistakes, Reason, SetMaxError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// One thread asks `big` for 1024 units repeatedly; this one asks `small` for one, `tries` times.
fn small_against_big(small: Group<'_>, big: Group<'_>, tries: u64) {
    let stop = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                assert!(big.try_charge_units(1024).is_err(), "1024 of 600");
                asked.fetch_add(1, Relaxed);
            }
        });
        while asked.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let refused: Vec<_> =
            (0..tries).filter_map(|_| small.try_charge(1).map(drop).err()).collect();
        stop.store(true, Relaxed);
        assert!(refused.is_empty(), "{} of {tries} refused: {}", refused.len(), refused[0]);
    });
    // The watermark follows every granted unit: at no instant was one too many (I1).
    for group in [small, big] {
        let mut level = Some(group);
        while let Some(group) = level {
            let (peak, max) = (group.peak().value, group.max().get().unwrap_or(u64::MAX));
            assert!(peak <= max, "{}: {peak} of {max}", group.path());
            level = group.parent();
        }
    }
    let root = small.ledger().root();
    root.drain();
    assert_eq!(root.approximate().value, 0);
}

#[test]
fn a_charge_that_cannot_succeed_never_locks_a_small_one_out() {
    in_both_modes("a_charge_that_cannot_succeed_never_locks_a_small_one_out", || {
        let tries = times(1_000_000, 100_000_000);
        let ledger = Ledger::new().unwrap();
        let group = limited(ledger.root(), "g", 600);
        small_against_big(group, group, tries / 2);
        // Different levels: the big request fits below the leaf's limit, but not below the root's.
        ledger.root().set_max(Limit::units(600)).unwrap();
        let parent = ledger.root().create("parent").unwrap();
        let leaf = limited(parent, "leaf", 1 << 20);
        let other = limited(parent, "other", 600);
        small_against_big(leaf, leaf, tries / 4);
        small_against_big(leaf, other, tries / 8);
        small_against_big(other, leaf, tries / 8);
    });
}

#[test]
fn idle_stock_on_another_cpu_refuses_nobody() {
    in_both_modes("idle_stock_on_another_cpu_refuses_nobody", || {
        let max = 100_000;
        let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
        let parent = limited(ledger.root(), "parent", max);
        let (a, b) = (parent.create("a").unwrap(), parent.create("b").unwrap());
        let cpus = allowed_cpus();
        for round in 0..times(300, 30_000) as usize {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin(&cpus[round % cpus.len()..][..1]);
                    // Charges of many sizes leave stock in the cells of this CPU.
                    for n in 1..40 {
                        drop(a.try_charge(n * 50).unwrap());
                        drop(b.try_charge(n * 31).unwrap());
                    }
                });
            });
            let idle = parent.approximate();
            assert!(idle.value <= idle.bound && idle.bound <= (max - idle.value) / 16);
            // Everything from here at once, then everything in the other group.
            for group in [a, b] {
                let all = group.try_charge(max).unwrap();
                let refused = group.try_charge(1).unwrap_err();
                assert_eq!((refused.group.as_str(), refused.usage), ("/parent", max));
                let moved = all.transfer(if group.id() == a.id() { b } else { a }).unwrap();
                drop(moved);
            }
        }
    });
}

#[test]
fn what_fits_exactly_is_never_refused_because_of_stock_on_its_way() {
    in_both_modes("what_fits_exactly_is_never_refused_because_of_stock_on_its_way", || {
        let max = 1_000_000;
        let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
        let parent = limited(ledger.root(), "parent", max);
        let groups: Vec<_> = (0..3).map(|n| parent.create(&format!("g{n}")).unwrap()).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Six threads hold at most one unit each; the seventh takes all the rest.
            for n in 0..6 {
                let (stop, group) = (&stop, groups[1 + n % 2]);
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        for _ in 0..50 {
                            drop(group.try_charge(1).expect("one unit is left for this thread"));
                        }
                        std::thread::yield_now();
                    }
                });
            }
            let start = Instant::now();
            while start.elapsed() < seconds(1.0, 60.0) {
                if let Err(refused) = groups[0].try_charge(max - 6) {
                    stop.store(true, Relaxed);
                    panic!("{refused}, while others held six at most");
                }
            }
            stop.store(true, Relaxed);
        });
    });
}

#[test]
fn once_a_limit_is_set_no_usage_above_it_is_ever_seen() {
    in_both_modes("once_a_limit_is_set_no_usage_above_it_is_ever_seen", || {
        let ledger = Ledger::builder().batch(64).anonymous().unwrap();
        let parent = ledger.root().create("parent").unwrap();
        let child = parent.create("child").unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let stop = &stop;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    while !stop.load(Relaxed) {
                        let n = random.below(900);
                        drop(if random.one_in(2) { child } else { parent }.try_charge(n));
                    }
                });
            }
            let mut random = Random::new(77);
            let start = Instant::now();
            let (mut set, mut busy) = (0, 0);
            while start.elapsed() < seconds(1.0, 120.0) || set == 0 || busy == 0 {
                let limit = random.below(2_000);
                match parent.set_max(Limit::units(limit)) {
                    Ok(()) => {
                        set += 1;
                        for _ in 0..random.below(40) {
                            let value = parent.approximate().value;
                            assert!(value <= limit, "{value} above {limit}");
                        }
                    }
                    Err(SetMaxError::Busy { usage, limit: asked }) => {
                        busy += 1;
                        assert!(asked == limit && usage <= 2_000, "{usage} {asked}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            stop.store(true, Relaxed);
        });
        ledger.root().drain();
        assert_eq!(ledger.root().approximate().value, 0);
    });
}

#[test]
fn what_must_not_fail_does_not_fail_and_counts_an_event_when_it_goes_over() {
    in_both_modes("what_must_not_fail_does_not_fail_and_counts_an_event_when_it_goes_over", || {
        let ledger = Ledger::new().unwrap();
        let parent = limited(ledger.root(), "parent", 1_000);
        let child = limited(parent, "child", 100);
        let first = child.charge(90).unwrap();
        assert_eq!((child.max_events(), parent.max_events()), (0, 0));
        let over = child.charge(900).unwrap();
        assert_eq!((child.max_events(), parent.max_events()), (1, 0));
        let more = child.charge(20).unwrap();
        assert_eq!((child.max_events(), parent.max_events()), (2, 1));
        assert_eq!((child.precise(), parent.precise(), child.peak().value), (1_010, 1_010, 1_010));
        assert_eq!(ledger.root().max_events(), 0);
        assert!(parent.try_charge(1).is_err(), "the overrun counts against the others");
        drop((first, over, more));
        assert_eq!(ledger.root().precise(), 0);

        // Not even while a thread sets a first limit on an ancestor.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let _ = ledger.root().set_max(Limit::units(50));
                    ledger.root().set_max(Limit::MAX).unwrap();
                }
            });
            let failed = (0..times(200_000, 20_000_000)).find_map(|_| child.charge(200).err());
            stop.store(true, Relaxed);
            assert_eq!(failed, None);
        });
    });
}

#[test]
fn a_charge_of_nothing_is_granted_above_a_limit_whether_or_not_a_cell_is_open() {
    in_both_modes(
        "a_charge_of_nothing_is_granted_above_a_limit_whether_or_not_a_cell_is_open",
        || {
            let ledger = Ledger::new().unwrap();
            let parent = limited(ledger.root(), "parent", 1_000);
            let child = limited(parent, "child", 100);
            // No cell is open yet; then one is, and is empty.
            for over in [900, 1] {
                let kept = child.charge(over + 100).unwrap();
                let events = (child.max_events(), parent.max_events());
                let nothing = [child.try_charge(0).unwrap(), child.charge(0).unwrap()];
                assert_eq!((child.max_events(), parent.max_events()), events);
                assert_eq!(child.precise(), over + 100);
                drop((nothing, kept));
                ledger.root().drain();
                drop(child.try_charge(50).unwrap());
            }
            let nothing = child.try_charge(0).unwrap();
            child.destroy().unwrap();
            assert!(child.try_charge(0).is_err());
            drop(nothing);
            assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
        },
    );
}

#[test]
fn an_overrun_leaves_no_more_idle_below_the_ancestors_than_their_limits_allow() {
    let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
    let top = limited(ledger.root(), "top", 1_000_000);
    let (idle, full) = (top.create("idle").unwrap(), limited(top, "full", 10));
    drop(idle.try_charge(300_000).unwrap());
    drop(idle.try_charge(1).unwrap());
    assert!(top.approximate().bound > 100);
    let over = full.charge(950_000).unwrap();
    let estimate = top.approximate();
    assert!(estimate.bound <= (1_000_000 - estimate.value) / 16, "{estimate:?}");
    drop(over);
}

#[test]
fn a_refusal_names_the_group_its_limit_and_what_is_in_use() {
    let ledger = Ledger::new().unwrap();
    let tenant = limited(ledger.root(), "tenant", 10_000);
    let query = limited(tenant, "query", 9_000);
    let other = tenant.create("other").unwrap();
    let held = (query.try_charge(5_000).unwrap(), other.try_charge(4_500).unwrap());
    let refused = query.try_charge(4_001).unwrap_err();
    assert_eq!(
        (refused.group.as_str(), refused.limit, refused.usage, refused.requested, refused.reason),
        ("/tenant/query", 9_000, 5_000, 4_001, Reason::Limit),
        "of two that are full, the one nearer to who asks"
    );
    drop(held.1);
    let refusal = query.try_charge_units(4_001).unwrap_err();
    assert_eq!(
        (refusal.group, refusal.charged, refusal.limit, refusal.usage, refusal.requested),
        (query.id(), query.id(), 9_000, 5_000, 4_001)
    );
    assert_eq!((query.max_events(), tenant.max_events()), (2, 0));
    // No refused unit stays anywhere, and a refusal raised no peak.
    drop(query.try_charge(4_000).unwrap());
    assert_eq!((query.precise(), tenant.precise()), (5_000, 5_000));
    assert!(tenant.peak().value <= 10_000 && query.peak().value <= 9_000);
    for absurd in [u64::MAX, 1 << 63, (1 << 62) + 1, 1 << 62] {
        assert!(other.try_charge(absurd).is_err(), "{absurd} beside 5 000");
        assert!(other.charge(absurd).is_err(), "{absurd} beside 5 000");
    }
    drop(held.0);
    assert_eq!(ledger.root().precise(), 0);
}

#[test]
fn an_uncharge_of_too_much_is_counted_and_takes_nothing() {
    in_both_modes("an_uncharge_of_too_much_is_counted_and_takes_nothing", || {
        let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
        let (a, b) = (ledger.root().create("a").unwrap(), ledger.root().create("b").unwrap());
        let held = b.try_charge(1_000_000).unwrap();
        a.uncharge_units(5_000_000);
        a.uncharge_units(u64::MAX);
        let mistakes = ledger.mistakes();
        assert_eq!((mistakes.underflows, mistakes.strays), (2, 0));
        assert_eq!((a.precise(), ledger.root().precise()), (0, 1_000_000));
        // With stock in the cell: it stays there or is returned, but is not lost.
        let mut random = Random::new(3);
        for round in 0..300 {
            let charge = a.try_charge(random.size(14)).unwrap();
            a.uncharge_units((1 << 40) + random.below(9));
            assert_eq!(ledger.mistakes().underflows, 3 + round);
            assert_eq!(a.precise(), charge.units());
            assert_eq!(ledger.root().precise(), charge.units() + 1_000_000);
        }
        ledger.root().drain();
        assert_eq!((a.approximate().value, b.approximate().value), (0, 1_000_000));
        drop(held);
    });
}

#[test]
fn an_uncharge_of_too_much_does_not_lose_the_stock_beside_it() {
    in_modes("an_uncharge_of_too_much_does_not_lose_the_stock_beside_it", &[Run::Natural], || {
        pin(&allowed_cpus()[..1]);
        // A little too much, so that the cell's surplus is needed, too.
        for n in 1..3_000u64 {
            let ledger = Ledger::builder().batch(1024).capacity(2).anonymous().unwrap();
            let group = ledger.root().create("a").unwrap();
            for size in [3_000, 40, 40, 700] {
                drop(group.try_charge(size).unwrap());
            }
            let before = group.approximate().value;
            group.uncharge_units(n);
            let after = ledger.mistakes().underflows;
            let drained = group.drain();
            if after > 0 {
                let left = group.approximate().value;
                assert_eq!(left, 0, "{n}: {before} lay idle, {drained} came back");
            }
        }
    });
}

#[test]
fn no_usage_above_the_limit_is_ever_seen_and_peaks_are_below_it() {
    in_both_modes("no_usage_above_the_limit_is_ever_seen_and_peaks_are_below_it", || {
        let ledger = Ledger::builder().batch(512).anonymous().unwrap();
        let parent = limited(ledger.root(), "parent", 50_000);
        let children: Vec<_> = (0..3).map(|n| limited(parent, &format!("c{n}"), 30_000)).collect();
        let stop = AtomicBool::new(false);
        let granted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (children, stop, granted) = (&children, &stop, &granted);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut held = Vec::new();
                    while !stop.load(Relaxed) {
                        let group = children[random.below(3) as usize];
                        if let Ok(charge) = group.try_charge(random.size(15)) {
                            held.push(charge);
                            granted.fetch_add(1, Relaxed);
                        } else {
                            held.truncate(held.len() / 2);
                        }
                    }
                });
            }
            let start = Instant::now();
            while start.elapsed() < seconds(1.0, 120.0) {
                for group in children.iter().chain([&parent]) {
                    let (value, max) = (group.approximate().value, group.max().get().unwrap());
                    assert!(value <= max, "{}: {value} above {max}", group.path());
                    assert!(group.peak().value <= max, "{}", group.path());
                }
            }
            stop.store(true, Relaxed);
        });
        assert!(granted.into_inner() > 1_000);
        ledger.root().drain();
        assert_eq!(ledger.root().approximate().value, 0);
    });
}

/// A mistake that put more units into a cell than the group holds takes nothing with it: the cell's own units are returned,
/// too.
#[test]
fn after_a_return_too_many_nothing_stays_charged() {
    in_both_modes("after_a_return_too_many_nothing_stays_charged", || {
        for n in [100, 1_000, 20_000] {
            let ledger = Ledger::new().unwrap();
            let tenant = ledger.root().create("tenant").unwrap();
            let group = tenant.create(&unique("group")).unwrap();
            group.try_charge_units(n).unwrap();
            group.uncharge_units(n);
            group.uncharge_units(n);
            ledger.root().drain();
            for group in [group, tenant, ledger.root()] {
                let (about, exactly) = (group.approximate(), group.precise());
                assert_eq!((about.value, about.bound, exactly), (0, 0, 0), "{n}: {}", group.path());
            }
            assert_eq!(ledger.mistakes().underflows, 1);
            tenant.set_max(Limit::units(n)).unwrap();
            drop(group.try_charge(n).unwrap());
            assert_eq!(group.destroy().unwrap().leftover, 0);
            assert_eq!(ledger.root().precise(), 0);
        }
    });
}

//! Reclaim before refusal: who is asked, in which order, and what a reclaimer may do.

mod common;

use common::{in_both_modes, limited};
use ledgerline::{Group, Ledger, Limit, Mistakes, Reason, Reclaimer};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A ledger that outlives every closure, and gives reclaim all the time it takes.
fn ledger() -> &'static Ledger {
    let builder = Ledger::builder().capacity(64).reclaim_time(Duration::from_secs(60));
    Box::leak(Box::new(builder.anonymous().unwrap()))
}

/// What a group holds beside its charges, and gives back when it is asked.
fn hoard(group: Group<'static>, units: u64) -> Arc<AtomicU64> {
    group.try_charge_units(units).unwrap();
    Arc::new(AtomicU64::new(units))
}

/// Registers a reclaimer that gives back what it is asked for, and notes that in `asked`.
fn generous(
    group: Group<'static>,
    priority: i32,
    held: &Arc<AtomicU64>,
    asked: &Arc<Mutex<Vec<(String, u64)>>>,
) -> Reclaimer<'static> {
    let (held, asked, name) = (held.clone(), asked.clone(), group.name());
    group.add_reclaimer(priority, move |need| {
        let give = need.min(held.load(SeqCst));
        held.fetch_sub(give, SeqCst);
        group.uncharge_units(give);
        asked.lock().unwrap().push((name.clone(), need));
        give
    })
}

#[test]
fn those_above_their_protection_are_asked_first_and_nobody_below_min() {
    in_both_modes("those_above_their_protection_are_asked_first_and_nobody_below_min", || {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let asked = Arc::default();
        let group = |name: &str, priority, held, low, min| {
            let group = tenant.create(name).unwrap();
            group.set_low(Limit::units(low));
            group.set_min(Limit::units(min));
            let held = hoard(group, held);
            let reclaimer = generous(group, priority, &held, &asked);
            (held, reclaimer)
        };
        let all = [
            group("protected", 0, 200, 200, 0),
            group("needed", 0, 200, 300, 150),
            group("spill", 9, 100, 0, 0),
            group("cache", 1, 100, 40, 0),
            group("never", -5, 300, 0, 300),
        ];
        let outside = ledger.root().create("outside").unwrap();
        let elsewhere = hoard(outside, 500);
        let _reclaimer = generous(outside, -9, &elsewhere, &asked);

        let query = tenant.create("query").unwrap();
        let mut charges = vec![query.try_charge(100).unwrap()];
        assert!(asked.lock().unwrap().is_empty(), "there was room");
        let names = || -> Vec<String> {
            asked.lock().unwrap().drain(..).map(|(name, _): (String, u64)| name).collect()
        };
        charges.push(query.try_charge(30).unwrap());
        assert_eq!(names(), ["cache"]);
        charges.push(query.try_charge(50).unwrap());
        assert_eq!(
            names(),
            ["cache", "spill"],
            "the cache down to its low, the rest from the next"
        );
        charges.push(query.try_charge(100).unwrap());
        assert_eq!(names()[0], "spill", "low protects while there is something else");
        charges.push(query.try_charge(200).unwrap());
        names();
        // All that is left is protected by min: 300 and 150.
        let refused = query.try_charge(1000 - query.precise() - 450 + 1).unwrap_err();
        assert_eq!(refused.reason, Reason::Limit);
        assert_eq!(all.each_ref().map(|(held, _)| held.load(SeqCst))[4], 300);
        assert!(all[1].0.load(SeqCst) >= 150);
        assert_eq!(elsewhere.load(SeqCst), 500, "not below what is full");
        assert!(tenant.precise() <= 1000);
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn a_charge_inside_a_reclaimer_is_refused_at_once_and_an_uncharge_is_not() {
    in_both_modes("a_charge_inside_a_reclaimer_is_refused_at_once_and_an_uncharge_is_not", || {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let cache = tenant.create("cache").unwrap();
        let outside = ledger.root().create("outside").unwrap();
        let held = hoard(cache, 900);
        let said = Arc::new(Mutex::new(Vec::new()));
        let _reclaimer = cache.add_reclaimer(0, {
            let said = said.clone();
            move |need| {
                let mut said = said.lock().unwrap();
                for group in [tenant, cache] {
                    said.push(group.try_charge(1).unwrap_err().reason);
                    said.push(group.charge(1).unwrap_err().reason);
                    said.push(group.try_charge_units(1).unwrap_err().reason);
                }
                drop(outside.try_charge(1).expect("not below what is full"));
                let give = need.min(held.swap(0, SeqCst));
                cache.uncharge_units(give);
                give
            }
        });
        let query = tenant.create("query").unwrap();
        // Stock in every cell, which would serve a charge if it were left there.
        drop((query.try_charge(50).unwrap(), cache.try_charge(50).unwrap()));
        drop(query.try_charge(400).unwrap());
        let said = said.lock().unwrap();
        assert_eq!(*said, [Reason::Reclaiming; 6]);
    });
}

#[test]
fn a_reclaimer_that_panics_or_lies_is_contained_and_counted() {
    in_both_modes("a_reclaimer_that_panics_or_lies_is_contained_and_counted", || {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let [panics, lies, honest] = ["panics", "lies", "honest"].map(|name| {
            let group = tenant.create(name).unwrap();
            (group, hoard(group, 300))
        });
        let panicking = panics.0.add_reclaimer(0, |_| panic!("on purpose"));
        let lying = lies.0.add_reclaimer(1, |need| need);
        let asked = Arc::default();
        let giving = generous(honest.0, 2, &honest.1, &asked);
        let query = tenant.create("query").unwrap();
        let _first = query.try_charge(200).expect("the honest one made room");
        assert_eq!(giving.report().freed, 100);
        assert_eq!((panicking.report().runs, panicking.report().panics), (1, 1));
        let report = lying.report();
        assert_eq!((report.runs, report.short, report.claimed, report.freed), (1, 1, 100, 0));
        let _second = query.try_charge(100).unwrap();
        assert_eq!(panicking.report().runs, 1, "it is not run again");
        // Nobody has anything to give: refused, and not for ever.
        let start = Instant::now();
        query.try_charge(900).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20));
        let stat = tenant.stat();
        let subtree = |name: &str| stat.get(name).unwrap().subtree;
        assert_eq!(subtree("refused"), 1, "what was reclaimed for was not refused");
        assert_eq!(subtree("reclaimed") as u64, giving.report().freed);
    });
}

#[test]
fn the_time_is_up_when_it_is_up() {
    let time = Duration::from_millis(50);
    let ledger: &'static Ledger =
        Box::leak(Box::new(Ledger::builder().reclaim_time(time).anonymous().unwrap()));
    let tenant = limited(ledger.root(), "tenant", 1000);
    tenant.try_charge_units(1000).unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let _slow: Vec<_> = (0..20)
        .map(|_| {
            let runs = runs.clone();
            tenant.add_reclaimer(0, move |_| {
                std::thread::sleep(Duration::from_millis(30));
                runs.fetch_add(1, SeqCst);
                0
            })
        })
        .collect();
    tenant.try_charge(1).unwrap_err();
    let runs = runs.load(SeqCst);
    assert!((1..=2).contains(&runs), "{runs} of 20 ran in 50 ms, 30 ms each");
}

#[test]
fn many_threads_reclaim_and_nothing_is_lost() {
    in_both_modes("many_threads_reclaim_and_nothing_is_lost", || {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "tenant", 10_000);
        let alone = Arc::new(AtomicBool::new(false));
        let caches: Vec<(Group<'static>, Arc<AtomicU64>)> = (0..3)
            .map(|n| {
                let group = tenant.create(&format!("cache{n}")).unwrap();
                (group, hoard(group, 3000))
            })
            .collect();
        let _reclaimers: Vec<_> = caches
            .iter()
            .take(1)
            .map(|(cache, held)| {
                let (cache, held, alone) = (*cache, held.clone(), alone.clone());
                cache.add_reclaimer(0, move |need| {
                    assert!(!alone.swap(true, SeqCst), "two threads run it");
                    let give = need.min(held.load(SeqCst));
                    held.fetch_sub(give, SeqCst);
                    cache.uncharge_units(give);
                    alone.store(false, SeqCst);
                    give
                })
            })
            .chain(
                caches[1..].iter().map(|(cache, held)| generous(*cache, 0, held, &Arc::default())),
            )
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (tenant, caches) = (&tenant, &caches);
                scope.spawn(move || {
                    let query = tenant.create("query").unwrap();
                    for round in 0..common::times(300, 30_000) {
                        if round % 10 == thread % 10 {
                            // A cache grows again, where there is room.
                            let (cache, held) = &caches[round as usize % 3];
                            if cache.try_charge_units(500).is_ok() {
                                held.fetch_add(500, SeqCst);
                            }
                        }
                        let _charge = query.try_charge(100 + 37 * round % 400);
                    }
                    query.destroy().unwrap();
                });
            }
        });
        let held: u64 = caches.iter().map(|(_, held)| held.load(SeqCst)).sum();
        assert_eq!(tenant.precise(), held);
        for (cache, held) in &caches {
            assert_eq!(cache.precise(), held.load(SeqCst));
        }
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn a_reclaimer_that_was_dropped_is_not_run_and_not_running() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "tenant", 100);
    tenant.try_charge_units(100).unwrap();
    let (started, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let reclaimer = tenant.add_reclaimer(0, {
        let (started, ended) = (started.clone(), ended.clone());
        move |_| {
            started.store(true, SeqCst);
            std::thread::sleep(Duration::from_millis(50));
            ended.store(true, SeqCst);
            0
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| tenant.try_charge(1).unwrap_err());
        while !started.load(SeqCst) {
            std::thread::yield_now();
        }
        drop(reclaimer);
        assert!(ended.load(SeqCst), "dropped while it ran");
    });
    started.store(false, SeqCst);
    tenant.try_charge(1).unwrap_err();
    assert!(!started.load(SeqCst));
}

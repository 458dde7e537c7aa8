//! Reclaim before a refusal: which reclaimers are asked, in which order, and the calls that a reclaimer may make.

use crate::common::{in_both_modes, ran_alone, times, unique};
use crate::support::tasks::block_on;
use crate::support::{LONG, limited};
use ledgerline::{CancelToken, Group, Ledger, Limit, Mistakes, Reason, Reclaimer, Refused};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Returns a ledger that outlives every closure, and sets no time limit on reclaim.
fn ledger() -> &'static Ledger {
    let builder = Ledger::builder().capacity(64).reclaim_time(Duration::from_secs(60));
    Box::leak(Box::new(builder.anonymous().unwrap()))
}

/// Charges units without a guard, and returns their number, for a reclaimer to give back.
fn hoard(group: Group<'static>, units: u64) -> Arc<AtomicU64> {
    group.try_charge_units(units).unwrap();
    Arc::new(AtomicU64::new(units))
}

/// Registers a reclaimer that gives back the requested units, and notes the requests in `asked`.
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

        let query = tenant.create(&unique("query")).unwrap();
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
        // All remaining units are protected by min: 300 and 150.
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
fn inside_a_reclaimer_charges_are_served_from_room_and_never_wait_or_reclaim() {
    in_both_modes(
        "inside_a_reclaimer_charges_are_served_from_room_and_never_wait_or_reclaim",
        || {
            let ledger = ledger();
            let tenant = limited(ledger.root(), "tenant", 1000);
            let [cache, other] = ["cache", "other"].map(|name| tenant.create(name).unwrap());
            let (held, others) = (hoard(cache, 600), hoard(other, 300));
            let asked = Arc::default();
            let _other = generous(other, 9, &others, &asked);
            // The other group is a victim, too, which could be cancelled.
            let token = CancelToken::new();
            let _victim = other.add_victim(&token);
            let runs = Arc::new(AtomicUsize::new(0));
            let _reclaimer = cache.add_reclaimer(0, {
                let (runs, held) = (runs.clone(), held.clone());
                move |need| {
                    runs.fetch_add(1, SeqCst);
                    let start = Instant::now();
                    let full = |refused: Refused| {
                        assert_eq!((refused.reason, &*refused.group), (Reason::Limit, "/tenant"));
                    };
                    for group in [tenant, cache] {
                        let room = 1000 - tenant.precise();
                        drop(group.try_charge(room).unwrap());
                        drop(group.request(room).wait(LONG).oom().charge().unwrap());
                        // A charge that must not fail succeeds.
                        drop(group.charge(room + 1).unwrap());
                        drop(group.try_charge(0).unwrap());
                        group.charge_units(room + 1).unwrap();
                        group.uncharge_units(room + 1);
                        // A charge that does not fit is refused at once, by the same group as outside.
                        full(group.try_charge(room + 1).unwrap_err());
                        full(group.request(room + 1).wait(LONG).oom().charge().unwrap_err());
                        full(
                            block_on(group.request(room + 1).wait(LONG).into_future()).unwrap_err(),
                        );
                        assert!(group.set_max(Limit::units(room / 2)).is_err());
                        assert!(group.try_charge_units(room + 1).is_err());
                    }
                    assert!(start.elapsed() < LONG / 2, "it waited");
                    let give = need.min(held.swap(0, SeqCst));
                    cache.uncharge_units(give);
                    give
                }
            });
            let query = tenant.create(&unique("query")).unwrap();
            // Stock in every cell.
            drop((query.try_charge(50).unwrap(), cache.try_charge(50).unwrap()));
            drop(query.try_charge(400).unwrap());
            assert_eq!((runs.load(SeqCst), others.load(SeqCst)), (1, 300));
            assert!(asked.lock().unwrap().is_empty(), "it reclaimed from inside a reclaimer");
            assert!(!token.is_cancelled(), "it had somebody cancelled from inside a reclaimer");
            assert_eq!(ledger.mistakes(), Mistakes::default());
        },
    );
}

#[test]
fn nobody_outside_of_the_lowest_full_group_gives_anything_back() {
    in_both_modes("nobody_outside_of_the_lowest_full_group_gives_anything_back", || {
        let ledger = ledger();
        let machine = limited(ledger.root(), "machine", 100_000);
        let tenant = limited(machine, "tenant", 50_000);
        let (own, neighbour) =
            (tenant.create("own").unwrap(), machine.create("neighbour").unwrap());
        let asked = Arc::default();
        let theirs = hoard(neighbour, 50_000);
        let _neighbour = generous(neighbour, -9, &theirs, &asked);
        let query = tenant.create(&unique("query")).unwrap();
        let much = query.try_charge(50_000).unwrap();
        // Both are full, and room above would not help.
        let refused = query.try_charge(1000).unwrap_err();
        assert_eq!((&*refused.group, refused.usage), ("/machine/tenant", 50_000));
        assert_eq!(theirs.load(SeqCst), 50_000);
        // With its own cache the tenant frees units in itself, which are free above, too.
        drop(much);
        let mine = hoard(own, 30_000);
        let _own = generous(own, 0, &mine, &asked);
        let much = query.try_charge(20_000).unwrap();
        let more = query.try_charge(1000).unwrap();
        assert_eq!((mine.load(SeqCst), theirs.load(SeqCst)), (29_000, 50_000));
        // Others give only if the tenant has room, and the group above it has none.
        let rest = machine.create("rest").unwrap();
        own.uncharge_units(mine.swap(0, SeqCst));
        let filler = rest.try_charge(29_000).unwrap();
        let last = query.try_charge(5000).unwrap();
        assert_eq!(theirs.load(SeqCst), 45_000);
        drop((much, more, filler, last));
        assert_eq!(machine.precise(), 45_000);
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn for_what_can_never_fit_nobody_gives_anything_back() {
    in_both_modes("for_what_can_never_fit_nobody_gives_anything_back", || {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let cache = tenant.create("cache").unwrap();
        let (held, asked) = (hoard(cache, 900), Arc::default());
        let _reclaimer = generous(cache, 0, &held, &asked);
        let token = CancelToken::new();
        let _victim = cache.add_victim(&token);
        let small = limited(tenant, "small", 2000);
        // Refused by an ancestor, although the group itself would have room; and by the group, which has none.
        for (group, units) in [(small, 1001), (limited(tenant, "tiny", 50), 51)] {
            let lowest = if units > 1000 { "/tenant" } else { "/tenant/tiny" };
            assert_eq!(group.try_charge(units).unwrap_err().group, lowest);
            let refused = group.request(units).wait(LONG).oom().charge().unwrap_err();
            assert_eq!(refused.group, lowest);
        }
        // The lowest full group could have room, but one above it never.
        held.fetch_sub(700, SeqCst);
        cache.uncharge_units(700);
        let inner = limited(small, "inner", 1500);
        let held_inside = hoard(inner, 600);
        let _inside = generous(inner, 0, &held_inside, &asked);
        assert_eq!(inner.try_charge(1001).unwrap_err().group, "/tenant/small/inner");
        assert_eq!(held_inside.load(SeqCst), 600);
        assert!(asked.lock().unwrap().is_empty() && !token.is_cancelled());
    });
}

#[test]
fn a_thousand_threads_reclaim_at_a_time() {
    if ran_alone("a_thousand_threads_reclaim_at_a_time") {
        return;
    }
    let ledger: &'static Ledger = {
        let builder = Ledger::builder().capacity(4096).reclaim_time(LONG);
        Box::leak(Box::new(builder.anonymous().unwrap()))
    };
    const THREADS: usize = 1000;
    let inside = Arc::new(AtomicUsize::new(0));
    let tenants: Vec<_> = (0..THREADS)
        .map(|_| {
            let tenant = limited(ledger.root(), "tenant", 100);
            let held = hoard(tenant, 100);
            let inside = inside.clone();
            let reclaimer = tenant.add_reclaimer(0, move |need| {
                inside.fetch_add(1, SeqCst);
                // Until all of them are here, or some cannot get here.
                let start = Instant::now();
                while inside.load(SeqCst) < THREADS && start.elapsed() < LONG / 4 {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let give = need.min(held.load(SeqCst));
                held.fetch_sub(give, SeqCst);
                tenant.uncharge_units(give);
                give
            });
            (tenant, reclaimer)
        })
        .collect();
    std::thread::scope(|scope| {
        for (tenant, _) in &tenants {
            let small = std::thread::Builder::new().stack_size(256 << 10);
            let charge = || std::mem::forget(tenant.try_charge(40).expect("reclaimed"));
            small.spawn_scoped(scope, charge).unwrap();
        }
    });
    assert_eq!(inside.load(SeqCst), THREADS, "all inside at the same time");
    assert!(tenants.iter().all(|(tenant, _)| tenant.precise() == 100));
}

#[test]
fn a_reclaimer_may_destroy_its_own_group_and_what_it_freed_is_counted_above() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "tenant", 1000);
    let scratch = tenant.create("scratch").unwrap();
    let held = hoard(scratch, 700);
    let reclaimer = scratch.add_reclaimer(0, move |_| {
        let all = held.swap(0, SeqCst);
        scratch.uncharge_units(all);
        scratch.destroy().unwrap();
        all
    });
    let query = tenant.create(&unique("query")).unwrap();
    let _charge = query.try_charge(800).unwrap();
    assert!(!scratch.exists());
    assert_eq!((reclaimer.report().freed, reclaimer.report().short), (700, 0));
    assert_eq!(tenant.stat().get("reclaimed").unwrap().subtree, 700);
    assert_eq!(ledger.mistakes(), Mistakes::default());
}

#[test]
fn what_is_granted_in_the_end_is_counted_as_no_refusal_and_what_is_refused_as_one() {
    in_both_modes(
        "what_is_granted_in_the_end_is_counted_as_no_refusal_and_what_is_refused_as_one",
        || {
            let ledger = ledger();
            let tenant = limited(ledger.root(), "tenant", 1000);
            let [cache, query] = ["cache", "query"].map(|name| tenant.create(name).unwrap());
            let (held, asked) = (hoard(cache, 900), Arc::default());
            let _reclaimer = generous(cache, 0, &held, &asked);
            let counted = || {
                let refused = query.stat().get("refused").unwrap().own;
                (refused, tenant.max_events(), tenant.events().max)
            };
            let watch = tenant.watch().unwrap();
            // Granted after reclaim.
            let first = query.try_charge(500).unwrap();
            let second = query.request(300).wait(LONG).charge().unwrap();
            assert_eq!(counted(), (0, 0, 0));
            // Granted after a wait. It is checked at each return of units, and several are needed.
            held.swap(0, SeqCst);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| query.request(700).wait(LONG).charge().map(drop));
                std::thread::sleep(Duration::from_millis(50));
                let mut first = first;
                for _ in 0..10 {
                    drop(first.split(50));
                    std::thread::sleep(Duration::from_millis(5));
                }
                drop(second);
                waiter.join().unwrap().unwrap();
            });
            assert_eq!(counted(), (0, 0, 0));
            assert_eq!(watch.look(), None, "nobody was woken for it");
            // Refused after reclaim without success, or after a wait: once each.
            query.try_charge(1000).unwrap_err();
            assert_eq!(counted(), (1, 1, 1));
            let soon = Duration::from_millis(20);
            query.request(1000).wait(soon).charge().unwrap_err();
            block_on(query.request(1000).wait(soon).into_future()).unwrap_err();
            assert_eq!(counted(), (3, 3, 3));
            query.try_charge_units(1000).unwrap_err();
            assert_eq!(counted(), (4, 4, 4));
            assert_eq!(watch.look().map(|events| events.max), Some(4));
            // A forced charge above it is an event, but no refusal.
            drop(query.charge(1000).unwrap());
            assert_eq!(counted(), (4, 5, 5));
        },
    );
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
        let query = tenant.create(&unique("query")).unwrap();
        let _first = query.try_charge(200).expect("the honest one made room");
        assert_eq!(giving.report().freed, 100);
        assert_eq!((panicking.report().runs, panicking.report().panics), (1, 1));
        let report = lying.report();
        // It is asked three times: threads could have charged the claimed units at once.
        assert_eq!((report.runs, report.short, report.claimed, report.freed), (3, 3, 300, 0));
        let _second = query.try_charge(100).unwrap();
        assert_eq!(panicking.report().runs, 1, "it is not run again");
        // No group has anything to give: refused, and not after an endless time.
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
                    let query = tenant.create(&unique("query")).unwrap();
                    for round in 0..times(300, 30_000) {
                        if round % 10 == thread % 10 {
                            // A cache grows again while there is room.
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

#[test]
fn a_charge_is_not_refused_before_a_reclaimer_was_asked_however_late_it_is() {
    // No time at all, like a thread that was preempted until the time was up.
    let ledger = Ledger::builder().reclaim_time(Duration::ZERO).anonymous().unwrap();
    let ledger: &'static Ledger = Box::leak(Box::new(ledger));
    let group = ledger.root().create("q").unwrap();
    group.set_max(Limit::units(100)).unwrap();
    let held = std::sync::Mutex::new(Some(group.try_charge(100).unwrap()));
    let _reclaimer = group.add_reclaimer(0, move |_| match held.lock().unwrap().take() {
        Some(charge) => {
            drop(charge);
            100
        }
        None => 0,
    });
    let second = group.try_charge(60).expect("the reclaimer made room");
    // It has nothing more.
    assert!(group.try_charge(60).is_err());
    drop(second);
}

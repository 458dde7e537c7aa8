//! Lowers a limit below the usage: after asking reclaimers, or at once.

use crate::common::{Random, in_both_modes, times, unique};
use crate::support::tasks::{Crowd, block_on};
use crate::support::{LONG, allowed_cpus, limited, pin};
use ledgerline::{
    Charge, ControlMode, Group, Ledger, Limit, Mistakes, Reason, Reclaimer, SetMaxError,
};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn ledger() -> &'static Ledger {
    let builder = Ledger::builder().capacity(64).batch(4096).reclaim_time(LONG);
    Box::leak(Box::new(builder.anonymous().unwrap()))
}

/// Creates a cache of so many units that gives back the requested units.
fn cache(group: Group<'static>, units: u64) -> (Arc<AtomicU64>, Reclaimer<'static>) {
    group.try_charge_units(units).unwrap();
    let held = Arc::new(AtomicU64::new(units));
    let cached = held.clone();
    let reclaimer = group.add_reclaimer(0, move |need| {
        let give = need.min(cached.load(SeqCst));
        cached.fetch_sub(give, SeqCst);
        group.uncharge_units(give);
        give
    });
    (held, reclaimer)
}

#[test]
fn a_limit_below_the_usage_is_set_if_reclaimers_give_the_excess_and_refused_if_not() {
    in_both_modes(
        "a_limit_below_the_usage_is_set_if_reclaimers_give_the_excess_and_refused_if_not",
        || {
            let ledger = ledger();
            let tenant = limited(ledger.root(), "tenant", 1000);
            let kept = tenant.create("kept").unwrap();
            kept.set_min(Limit::units(100));
            let (held, reclaimer) = cache(tenant.create("cache").unwrap(), 500);
            let (protected, _safe) = cache(kept, 100);
            let (elsewhere, _far) = cache(ledger.root().create("elsewhere").unwrap(), 500);
            let query = tenant.create("query").unwrap();
            let _charge = query.try_charge(300).unwrap();
            // If only idle stock is in the way of a limit, or nothing, no reclaimer is asked.
            tenant.set_max(Limit::units(900)).unwrap();
            assert_eq!(reclaimer.report().runs, 0);
            tenant.set_max(Limit::units(700)).unwrap();
            assert_eq!((held.load(SeqCst), tenant.precise()), (300, 700));
            let busy = tenant.set_max(Limit::units(300)).unwrap_err();
            assert_eq!(busy, SetMaxError::Busy { usage: 400, limit: 300 });
            assert_eq!(tenant.max(), Limit::units(700), "refused, it stays as it was");
            assert_eq!((held.load(SeqCst), protected.load(SeqCst)), (0, 100), "down to min");
            assert_eq!(elsewhere.load(SeqCst), 500, "not below the limit");
            assert!(busy.to_string().contains("set_max_now"), "{busy}");
            assert_eq!(ledger.mistakes(), Mistakes::default());
        },
    );
}

#[test]
fn asking_for_room_below_a_limit_ends_when_the_time_is_up() {
    let time = Duration::from_millis(50);
    let builder = Ledger::builder().capacity(8).reclaim_time(time);
    let ledger: &'static Ledger = Box::leak(Box::new(builder.anonymous().unwrap()));
    let tenant = limited(ledger.root(), "tenant", 1_000_000);
    tenant.try_charge_units(1_000_000).unwrap();
    // Always a little, and never enough.
    let reclaimer = tenant.add_reclaimer(0, move |_| {
        std::thread::sleep(Duration::from_millis(10));
        tenant.uncharge_units(1);
        1
    });
    tenant.set_max(Limit::units(10)).unwrap_err();
    let asked = reclaimer.report().runs;
    assert!((1..=6).contains(&asked), "{asked} times in 50 ms, 10 ms each");
    assert!(tenant.set_max_now(Limit::units(10)).unwrap() > 900_000);
    assert!(reclaimer.report().runs <= asked + 6);
}

#[test]
fn a_limit_that_is_set_at_once_lets_nothing_in_until_usage_is_below_it() {
    in_both_modes("a_limit_that_is_set_at_once_lets_nothing_in_until_usage_is_below_it", || {
        let ledger = ledger();
        let runaway = limited(ledger.root(), "runaway", 1_000_000);
        let part = runaway.create("part").unwrap();
        let mut charge = part.try_charge(1000).unwrap();
        // Stock on every CPU, which would serve charges there.
        let on_every_cpu = |each: &(dyn Fn() + Sync)| {
            for &cpu in &allowed_cpus() {
                let pinned = || {
                    pin(&[cpu]);
                    each();
                };
                std::thread::scope(|scope| scope.spawn(pinned).join().unwrap());
            }
        };
        let stock = || {
            on_every_cpu(&|| (1..40).for_each(|n| drop(part.try_charge(n * 50).unwrap())));
            assert!(runaway.approximate().bound > 0, "there is some");
        };
        let refused = || {
            assert!(!part.take_prepaid(1));
            let refused = part.try_charge(1).unwrap_err();
            assert_eq!((&*refused.group, refused.usage), ("/runaway", 1000));
        };
        stock();
        assert_eq!(runaway.set_max_now(Limit::units(600)), Ok(400));
        assert_eq!(runaway.max(), Limit::units(600));
        on_every_cpu(&refused);
        // All that can be given back is requested.
        runaway.set_max(Limit::units(1_000_000)).unwrap();
        let (held, _reclaimer) = cache(part, 100);
        stock();
        assert_eq!(runaway.set_max_now(Limit::units(600)), Ok(400));
        assert_eq!((held.load(SeqCst), runaway.precise()), (0, 1000));
        on_every_cpu(&refused);
        // Below it, it is an ordinary limit, and a raised one applies at once, too.
        drop(charge.split(500).unwrap());
        drop(part.try_charge(100).unwrap());
        assert!(part.try_charge(101).is_err());
        assert_eq!(runaway.set_max_now(Limit::units(700)), Ok(0));
        drop(part.try_charge(200).unwrap());
        // A destroyed group has nothing to set.
        drop(charge);
        part.destroy().unwrap();
        runaway.destroy().unwrap();
        for set in [runaway.set_max(Limit::MAX).err(), runaway.set_max_now(Limit::MAX).err()] {
            assert_eq!(set, Some(SetMaxError::Gone));
        }
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn a_limit_that_is_set_at_once_asks_a_reclaimer_again_that_ran_for_another_thread() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "tenant", 1000);
    tenant.try_charge_units(1000).unwrap();
    let (began, has_begun) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    let _reclaimer = tenant.add_reclaimer(0, move |need| {
        began.send(()).unwrap();
        let _ = may_go.lock().unwrap().recv_timeout(LONG);
        tenant.uncharge_units(need);
        need
    });
    std::thread::scope(|scope| {
        let other = scope.spawn(|| tenant.reclaim(10));
        has_begun.recv_timeout(LONG).unwrap();
        let setter = scope.spawn(|| tenant.set_max_now(Limit::units(400)));
        while tenant.max() != Limit::units(400) {
            std::thread::yield_now();
        }
        // It looks at the reclaimer right after that.
        std::thread::sleep(Duration::from_millis(50));
        drop(go);
        assert_eq!(setter.join().unwrap(), Ok(0));
        assert!(other.join().unwrap() >= 10);
    });
    assert_eq!(tenant.precise(), 400);
}

#[test]
fn under_fire_usage_only_falls_once_a_limit_is_set_at_once_below_it() {
    in_both_modes("under_fire_usage_only_falls_once_a_limit_is_set_at_once_below_it", || {
        let ledger = ledger();
        let runaway = ledger.root().create("runaway").unwrap();
        let parts: Vec<_> = (0..3).map(|_| runaway.create(&unique("part")).unwrap()).collect();
        for round in 0..times(10, 3000) {
            runaway.set_max_now(Limit::MAX).unwrap();
            let stop = AtomicBool::new(false);
            let turns: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
            std::thread::scope(|scope| {
                for (seed, (part, turns)) in parts.iter().zip(&turns).enumerate() {
                    let stop = &stop;
                    scope.spawn(move || {
                        let mut random = Random::new(round * 3 + seed as u64);
                        let mut held: Vec<Charge<'_>> = Vec::new();
                        while !stop.load(SeqCst) {
                            match part.try_charge(random.size(12)) {
                                Ok(charge) if held.len() < 100_000 => held.push(charge),
                                _ if random.one_in(4) => drop(held.pop()),
                                _ => {}
                            }
                            turns.fetch_add(1, SeqCst);
                        }
                    });
                }
                let in_turn = |more: u64| {
                    let from: Vec<u64> = turns.iter().map(|turns| turns.load(SeqCst)).collect();
                    for (turns, from) in turns.iter().zip(from) {
                        while turns.load(SeqCst) < from + more {
                            std::thread::yield_now();
                        }
                    }
                };
                in_turn(200);
                let limit = runaway.precise() / 2;
                runaway.set_max_now(Limit::units(limit)).unwrap();
                // Changes under way have arrived by now.
                in_turn(2);
                let mut most = runaway.approximate().value;
                for _ in 0..200 {
                    let value = runaway.approximate().value;
                    assert!(value <= most.max(limit), "{value} after {most}, limit {limit}");
                    most = value;
                }
                stop.store(true, SeqCst);
            });
            assert_eq!(runaway.precise(), 0);
        }
    });
}

#[test]
fn who_waits_for_more_than_the_limit_now_allows_is_refused() {
    in_both_modes("who_waits_for_more_than_the_limit_now_allows_is_refused", || {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let query = tenant.create(&unique("query")).unwrap();
        let charge = query.try_charge(900).unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| query.request(500).wait(LONG).charge().unwrap_err());
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(tenant.set_max_now(Limit::units(400)), Ok(500));
            let refused = thread.join().unwrap();
            assert_eq!((refused.reason, refused.limit), (Reason::Limit, 400));
        });
        let refused = block_on(query.request(500).wait(LONG).into_future()).unwrap_err();
        assert_eq!(refused.limit, 400);
        assert!(start.elapsed() < LONG / 2);
        drop(charge);
    });
}

#[test]
fn whoever_waits_anywhere_below_for_more_than_the_limit_now_allows_is_refused() {
    in_both_modes(
        "whoever_waits_anywhere_below_for_more_than_the_limit_now_allows_is_refused",
        || {
            let ledger = ledger();
            let tenant = limited(ledger.root(), "tenant", 1000);
            let query = limited(tenant, "query", 100);
            let held = query.try_charge(100).unwrap();
            let mut crowd = Crowd::new();
            // At the limit of a group below, the first and others.
            let waits = [5, 50, 60].map(|units| crowd.add(query.request(units).wait(10 * LONG)));
            assert_eq!(tenant.set_max_now(Limit::units(10)), Ok(90));
            // The first is notified, too, and continues to wait.
            let mut refused = [(); 2].map(|()| {
                let (number, refused) = crowd.next();
                assert_eq!(refused.unwrap_err().reason, Reason::Limit);
                number
            });
            refused.sort_unstable();
            assert_eq!(refused, waits[1..]);
            // The first itself, and one behind it that could be served.
            let behind = crowd.add(query.request(1).wait(10 * LONG));
            assert_eq!(tenant.set_max_now(Limit::units(4)), Ok(96));
            let (ended, refused) = crowd.next();
            assert_eq!((ended, refused.unwrap_err().reason), (waits[0], Reason::Limit));
            drop(held);
            let (served, charge) = crowd.next();
            assert_eq!((served, charge.unwrap().units()), (behind, 1));
            assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
        },
    );
}

#[test]
fn where_limits_are_measured_one_that_is_set_at_once_asks_nobody() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "tenant", 1000);
    let (held, _reclaimer) = cache(tenant, 800);
    tenant.set_mode(ControlMode::Measure);
    assert_eq!(tenant.set_max_now(Limit::units(500)), Ok(300));
    assert_eq!((held.load(SeqCst), tenant.max()), (800, Limit::units(500)));
    drop(tenant.try_charge(100).unwrap());
    tenant.set_mode(ControlMode::Enforce);
    assert_eq!(tenant.max(), Limit::units(500));
    tenant.try_charge(600).unwrap_err();
}

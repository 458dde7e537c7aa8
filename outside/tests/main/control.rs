//! Blame, reclaim, cancellation and admission as documented, tried from outside.

use ledgerline::{CancelToken, Charge, Ledger, Limit, SetMaxError};
use outside::cache::Cache;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn ledger() -> &'static Ledger {
    Box::leak(Box::new(Ledger::new().unwrap()))
}

#[test]
fn the_lowest_full_group_is_named_and_nobody_outside_of_it_gives_anything_up() {
    let root = ledger().root();
    root.set_max(Limit::units(100_000)).unwrap();
    let [tenant, neighbour] = ["tenant", "neighbour"].map(|name| root.create(name).unwrap());
    tenant.set_max(Limit::units(50_000)).unwrap();
    let cache = Cache::new(neighbour, 1000);
    cache.fill(50_000).unwrap();
    let _full = tenant.try_charge(50_000).unwrap();
    let token = CancelToken::new();
    let innocent = neighbour.create("innocent").unwrap();
    let _victim = innocent.add_victim(&token);

    let refused = tenant.create("query").unwrap().try_charge(100).unwrap_err();
    assert_eq!((refused.group.as_str(), refused.refusal.group), ("/tenant", tenant.id()));
    assert_eq!(cache.holds(), 50_000, "it could not have helped");
    let oom = tenant.request(100).oom().wait(Duration::from_millis(20)).charge().unwrap_err();
    assert_eq!(oom.group, "/tenant");
    assert!(!token.is_cancelled(), "its end would have helped nobody");
}

#[test]
fn a_request_that_waited_and_was_granted_counts_no_refusal() {
    let tenant = ledger().root().create("tenant").unwrap();
    tenant.set_max(Limit::units(100)).unwrap();
    let first = tenant.try_charge(80).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| tenant.request(50).wait(Duration::from_secs(60)).charge());
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
        drop(second.join().unwrap().unwrap());
    });
    assert_eq!((tenant.events().max, tenant.max_events()), (0, 0));
    assert_eq!(tenant.stat().get("refused").unwrap().subtree, 0);
    tenant.try_charge(101).unwrap_err();
    assert_eq!((tenant.events().max, tenant.stat().get("refused").unwrap().own), (1, 1));
}

#[test]
fn what_must_not_fail_does_not_fail_inside_a_reclaimer() {
    let ledger = ledger();
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(1000)).unwrap();
    let cache = tenant.create("cache").unwrap();
    let held = Mutex::new(Some(cache.try_charge(1000).unwrap()));
    let runs = Arc::new(AtomicU64::new(0));
    let ran = runs.clone();
    let _reclaimer = cache.add_reclaimer(0, move |_| {
        ran.fetch_add(1, Relaxed);
        // An allocator that charges is called in here, too.
        let over = tenant.charge(10).expect("charge does not fail");
        cache.charge_units(5).expect("nor does charge_units");
        drop(tenant.try_charge(0).expect("nothing always fits"));
        assert!(tenant.try_charge(10).is_err(), "there is no room yet");
        let freed = held.lock().unwrap().take().map_or(0, |charge| charge.units());
        drop(tenant.try_charge(100).expect("there is room now"));
        drop(over);
        cache.uncharge_units(5);
        freed
    });
    drop(tenant.create("query").unwrap().try_charge(600).unwrap());
    assert_eq!(runs.load(Relaxed), 1, "a charge from inside reclaims nothing itself");
    assert_eq!((tenant.precise(), ledger.mistakes()), (0, Default::default()));
}

#[test]
fn lowering_a_limit_asks_first_and_at_once_lets_nothing_more_in() {
    let tenant = ledger().root().create("tenant").unwrap();
    let cache = Cache::new(tenant.create("cache").unwrap(), 100);
    cache.fill(6000).unwrap();
    let runaway = tenant.try_charge(3000).unwrap();
    // The cache makes room.
    tenant.set_max(Limit::units(5000)).unwrap();
    assert!(cache.holds() <= 2000 && tenant.precise() <= 5000);
    // Nothing can make as much room.
    let busy = tenant.set_max(Limit::units(1000)).unwrap_err();
    assert!(matches!(busy, SetMaxError::Busy { usage: 3000.., limit: 1000, .. }), "{busy:?}");
    assert_eq!(tenant.max(), Limit::units(5000), "nothing was changed");
    // Holds at once, regardless of usage.
    let above = tenant.set_max_now(Limit::units(1000)).unwrap();
    assert_eq!((above, tenant.max(), cache.holds()), (2000, Limit::units(1000), 0));
    for units in [1, 64, 1000] {
        assert!(tenant.try_charge(units).is_err() && cache.group.try_charge_units(units).is_err());
    }
    drop(runaway);
    drop(tenant.try_charge(1000).unwrap());
    let gone = tenant.create("gone").unwrap();
    gone.destroy().unwrap();
    assert_eq!(gone.set_max(Limit::ZERO), Err(SetMaxError::Gone));
}

#[test]
fn who_crosses_high_has_the_caches_asked_for_the_excess() {
    let tenant = ledger().root().create("tenant").unwrap();
    tenant.set_high(Limit::units(1 << 20));
    let cache = Cache::new(tenant.create("cache").unwrap(), 4096);
    cache.fill(1 << 20).unwrap();
    let _query = tenant.create("query").unwrap().try_charge(512 << 10).unwrap();
    assert!(tenant.precise() <= 1 << 20, "{} are held", tenant.precise());
    assert!(cache.holds() >= 256 << 10, "no more than the excess is taken: {}", cache.holds());
}

#[test]
fn a_reclaimer_that_destroys_its_own_group_makes_no_mistake() {
    let ledger = ledger();
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(1000)).unwrap();
    let cache = tenant.create("cache").unwrap();
    let held = Mutex::new(Some(cache.try_charge(1000).unwrap()));
    let _reclaimer = cache.add_reclaimer(0, move |need| {
        drop(held.lock().unwrap().take());
        cache.destroy().map_or(0, |_| need)
    });
    drop(tenant.try_charge(500).unwrap());
    assert!(!cache.exists());
    assert_eq!(ledger.mistakes(), Default::default());
}

#[test]
fn a_request_that_finds_its_units_prepaid_costs_what_a_charge_costs() {
    use std::time::Instant;
    let query = ledger().root().create("tenant").unwrap().create("query").unwrap();
    let best = |work: &dyn Fn()| {
        (0..15)
            .map(|_| {
                let start = Instant::now();
                (0..20_000).for_each(|_| work());
                start.elapsed().as_secs_f64()
            })
            .fold(f64::MAX, f64::min)
    };
    let charge = best(&|| drop(query.try_charge(64).unwrap()));
    let request = best(&|| drop(query.request(64).wait(Duration::from_secs(1)).charge().unwrap()));
    // Only in an optimised build, and with a fast path: the fallback's charge is slow.
    if cfg!(not(debug_assertions)) && ledgerline::percpu::detect() == ledgerline::percpu::Mode::Rseq
    {
        assert!(request < 3.0 * charge, "{charge:.2e} s by charge, {request:.2e} s by request");
    }
}

#[test]
fn a_reclaimer_that_raises_the_limit_has_made_room() {
    let tenant = ledger().root().create("tenant").unwrap();
    tenant.set_max(Limit::units(100)).unwrap();
    let _full = tenant.try_charge(100).unwrap();
    let cache = tenant.create("cache").unwrap();
    tenant.set_max(Limit::units(110)).unwrap();
    let _entry = cache.try_charge(10).unwrap();
    let _reclaimer = cache.add_reclaimer(0, move |_| {
        tenant.set_max(Limit::units(500)).unwrap();
        0
    });
    drop(tenant.try_charge(50).unwrap());
    assert_eq!(tenant.events().max, 0);
}

#[test]
fn reclaimers_that_drop_each_other_do_not_wait_for_each_other() {
    let ledger = ledger();
    let both: Arc<[Mutex<Option<ledgerline::Reclaimer<'static>>>; 2]> = Arc::default();
    let met = Arc::new(std::sync::Barrier::new(2));
    let tenants = [0, 1].map(|n: usize| {
        let tenant = ledger.root().create(&format!("tenant{n}")).unwrap();
        tenant.set_max(Limit::units(100)).unwrap();
        let cache = tenant.create("cache").unwrap();
        let held = Mutex::new(Some(cache.try_charge(100).unwrap()));
        let (registered, met) = (both.clone(), met.clone());
        *both[n].lock().unwrap() = Some(cache.add_reclaimer(0, move |need| {
            met.wait();
            let other = registered[1 - n].lock().unwrap().take();
            drop(other);
            drop(held.lock().unwrap().take());
            need
        }));
        tenant
    });
    std::thread::scope(|scope| {
        for tenant in tenants {
            scope.spawn(move || drop(tenant.try_charge(60).unwrap()));
        }
    });
}

#[test]
fn a_time_without_end_ends_nothing() {
    let forever = Duration::MAX;
    let ledger = Ledger::builder()
        .reclaim_time(forever)
        .throttle_time(forever)
        .victim_time(forever)
        .anonymous()
        .unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(10)).unwrap();
    tenant.set_high(Limit::units(1 << 40));
    let _reclaimer = tenant.add_reclaimer(0, |_| 0);
    let held = tenant.try_charge(10).unwrap();
    assert!(tenant.try_charge(1).is_err());
    assert!(tenant.request(1).oom().wait(Duration::from_millis(5)).charge().is_err());
    assert_eq!(tenant.set_max_now(Limit::units(4)), Ok(6));
    assert!(held.backoff().penalty().is_zero());
}

#[test]
fn what_is_split_and_merged_is_counted_as_it_is_returned() {
    let ledger = ledger();
    let group = ledger.root().create("g").unwrap();
    let live = || group.stat().get("blocks_live").unwrap().own;
    let mut charge = group.try_charge(10).unwrap();
    let parts: Vec<Charge<'_>> = (0..9).map(|_| charge.split(1).unwrap()).collect();
    assert_eq!(live(), 10);
    drop(parts);
    assert_eq!(live(), 1);
    charge.merge(group.try_charge(5).unwrap()).unwrap();
    assert_eq!(live(), 1);
    drop(charge);
    assert_eq!(live(), 0);
    let settled = group.destroy().unwrap();
    assert_eq!(settled.charges, settled.uncharges);
}

#[test]
fn charges_that_are_not_counted_never_become_one_that_is() {
    let tenant = ledger().root().create("tenant").unwrap();
    tenant.set_max(Limit::units(1000)).unwrap();
    let held = tenant.try_charge(1000).unwrap();
    tenant.set_mode(ledgerline::ControlMode::Off);
    let mut much = tenant.try_charge(1 << 62).unwrap();
    let more = much.merge(tenant.try_charge((1 << 62) - 1).unwrap()).unwrap_err();
    let more = much.merge(more).unwrap_err();
    assert!(!much.is_counted() && !more.is_counted());
    tenant.set_mode(ledgerline::ControlMode::Enforce);
    drop((much, more));
    assert_eq!(tenant.precise(), 1000);
    drop(held);
}

#[test]
fn what_no_group_can_hold_is_said_to_be_that_and_is_no_limits_doing() {
    let group = ledger().root().create("g").unwrap();
    let refused = group.charge((1 << 62) + 1).unwrap_err();
    assert_eq!(refused.to_string(), "/g cannot hold 4.0E: no group counts beyond 4.0E");
    assert_eq!(group.events().max, 0);
}

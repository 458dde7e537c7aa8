//! What a choice costs, and which victims it waits for.

use super::*;
use crate::Limit;

#[test]
fn while_somebody_dies_asking_costs_the_same_however_many_could_be_cancelled() {
    let asking = |count: u64| {
        let builder = Ledger::builder().victim_time(Duration::from_secs(1000));
        let ledger = builder.anonymous().unwrap();
        let tenant = ledger.root().create("tenant").unwrap();
        tenant.set_max(Limit::units(count)).unwrap();
        let query = |_| {
            let group = tenant.create("query").unwrap();
            group.try_charge_units(1).unwrap();
            group.add_victim(&CancelToken::new())
        };
        let _victims: Vec<Victim<'_>> = (0..count).map(query).collect();
        let asks = tenant.create("asks").unwrap();
        let ask = || choose(tenant, asks.id(), 1);
        let Choice::Dying(until) = ask() else { panic!("nobody goes") };
        let once = |_| {
            let start = Instant::now();
            for _ in 0..200 {
                assert!(matches!(ask(), Choice::Dying(again) if again <= until));
            }
            start.elapsed().as_secs_f64()
        };
        let fastest = (0..15).map(once).fold(f64::INFINITY, f64::min);
        assert_eq!(tenant.events().oom_kill, 1);
        fastest
    };
    let (few, many) = (asking(10), asking(1000));
    assert!(many < few * 8.0, "{few} s among 10, {many} among 1000");
}

#[test]
fn who_was_cancelled_and_holds_nothing_is_not_waited_for() {
    let ledger = Ledger::builder().victim_time(Duration::from_secs(1000)).anonymous().unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(100)).unwrap();
    let [a, b, asks] = ["a", "b", "asks"].map(|name| tenant.create(name).unwrap());
    let [of_a, of_b] = [CancelToken::new(), CancelToken::new()];
    let victims = [a.add_victim(&of_a), b.add_victim(&of_b)];
    let (held, _rest) = (a.try_charge(60).unwrap(), b.try_charge(40).unwrap());
    let ask = |units| choose(tenant, asks.id(), units);
    assert!(matches!(ask(80), Choice::Dying(_)));
    assert!(of_a.is_cancelled() && dying_below(&ledger, tenant.id()).is_some());
    drop(held);
    assert_eq!(dying_below(&ledger, tenant.id()), None);
    assert!(matches!(ask(80), Choice::Dying(_)) && of_b.is_cancelled());
    // A victim that is registered no more is waited for no more.
    drop(victims);
    assert_eq!(dying_below(&ledger, tenant.id()), None);
    assert!(ledger.control().victims.with(|entries| entries.dying.is_empty()));
}

#[test]
fn a_choice_costs_by_those_below_what_is_full_and_not_by_others() {
    let ledger = Ledger::builder().capacity(4096).anonymous().unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(100)).unwrap();
    let query = tenant.create("query").unwrap();
    query.set_min(Limit::units(100));
    query.try_charge_units(100).unwrap();
    let token = CancelToken::new();
    let _protected = query.add_victim(&token);
    let choices = || {
        let once = |_| {
            let start = Instant::now();
            for _ in 0..500 {
                assert_eq!(choose(tenant, query.id(), 1), Choice::Nobody);
                assert!(!is_cancelled(&ledger, query.id()));
            }
            start.elapsed().as_secs_f64()
        };
        (0..15).map(once).fold(f64::INFINITY, f64::min)
    };
    let before = choices();
    // Elsewhere: two thousand that may be cancelled, of which one was.
    let others = ledger.root().create("others").unwrap();
    let elsewhere: Vec<_> = (0..2000)
        .map(|_| {
            let group = others.create("query").unwrap();
            group.try_charge_units(1).unwrap();
            group.add_victim(&CancelToken::new())
        })
        .collect();
    others.set_max_now(Limit::units(2000)).unwrap();
    let asking = others.create("asking").unwrap();
    assert!(matches!(choose(others, asking.id(), 1), Choice::Dying(_)));
    let after = choices();
    assert!(after < before * 4.0, "{before} s, and then {after}");
    drop(elsewhere);
    assert_eq!(ledger.control().victims.cancelled.load(Ordering::Relaxed), 0);
}

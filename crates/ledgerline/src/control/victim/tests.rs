//! The cost of a choice, and the victims that it waits for.

use super::*;
use crate::Limit;
use crate::sync::AtomicU64;

/// Registers a victim whose score counts its calls.
fn counted<'l>(group: Group<'l>, asked: &Arc<AtomicU64>) -> Victim<'l> {
    let asked = asked.clone();
    group.add_victim_scored(&CancelToken::new(), move |units| {
        asked.fetch_add(1, Ordering::Relaxed);
        units
    })
}

#[test]
fn while_somebody_dies_none_of_the_others_is_looked_at() {
    let builder = Ledger::builder().capacity(64).victim_time(Duration::from_secs(1000));
    let ledger = builder.anonymous().unwrap();
    let tenant = ledger.root().create("tenant").unwrap();
    tenant.set_max(Limit::units(20)).unwrap();
    let asked = Arc::default();
    let query = |number: u64| {
        let group = tenant.create(&format!("query{number}")).unwrap();
        group.try_charge_units(1).unwrap();
        counted(group, &asked)
    };
    let _victims: Vec<Victim<'_>> = (0..20).map(query).collect();
    let asks = tenant.create("asks").unwrap();
    let ask = || choose(tenant, asks.id(), 1, 0);
    let Choice::Dying(until) = ask() else { panic!("nobody goes") };
    let before = asked.load(Ordering::Relaxed);
    assert!(before >= 20, "each was a candidate: {before}");
    for _ in 0..200 {
        assert!(matches!(ask(), Choice::Dying(again) if again <= until));
    }
    assert_eq!((asked.load(Ordering::Relaxed), tenant.events().oom_kill), (before, 1));
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
    let ask = |units| choose(tenant, asks.id(), units, 0);
    assert!(matches!(ask(80), Choice::Dying(_)));
    assert!(of_a.is_cancelled() && dying_below(&ledger, tenant.id()).is_some());
    drop(held);
    assert_eq!(dying_below(&ledger, tenant.id()), None);
    assert!(matches!(ask(80), Choice::Dying(_)) && of_b.is_cancelled());
    // No request waits for a victim that is no longer registered.
    drop(victims);
    assert_eq!(dying_below(&ledger, tenant.id()), None);
    assert!(ledger.control().victims.with(|entries| entries.dying.is_empty()));
}

#[test]
fn a_choice_looks_at_those_below_what_is_full_and_at_no_others() {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
    let [tenant, others] = ["tenant", "others"].map(|name| ledger.root().create(name).unwrap());
    tenant.set_max(Limit::units(100)).unwrap();
    let query = tenant.create("query").unwrap();
    query.set_min(Limit::units(100));
    query.try_charge_units(100).unwrap();
    let (below, elsewhere) = (Arc::default(), Arc::default());
    let _protected = counted(query, &below);
    let theirs: Vec<_> = (0..20)
        .map(|number| {
            let group = others.create(&format!("query{number}")).unwrap();
            group.try_charge_units(1).unwrap();
            counted(group, &elsewhere)
        })
        .collect();
    assert_eq!(choose(tenant, query.id(), 1, 0), Choice::Nobody);
    let looked = |at: &Arc<AtomicU64>| at.load(Ordering::Relaxed);
    assert!(looked(&below) > 0 && looked(&elsewhere) == 0);
    assert!(!is_cancelled(&ledger, query.id()));
    others.set_max_now(Limit::units(20)).unwrap();
    let asking = others.create("asking").unwrap();
    let before = looked(&below);
    assert!(matches!(choose(others, asking.id(), 1, 0), Choice::Dying(_)));
    assert!(looked(&elsewhere) >= 20 && looked(&below) == before);
    // One of them was cancelled; it was not the tenant's.
    assert!(!is_cancelled(&ledger, query.id()));
    drop(theirs);
    assert_eq!(ledger.control().victims.cancelled.load(Ordering::Relaxed), 0);
}

//! Nodes of a fleet in one process, on books in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ledgerline::{Ledger, OwnedCharge};
use ledgerline_fleet::book::{Change, Terms};
use ledgerline_fleet::fleet::{Budget, Fleet, FleetError, Standing};

use ledgerline_fleet::node::AtEnd;
use ledgerline_fleet::store::Store;

use crate::support::line::{BUDGETS, LONG, Line, join, torn, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_says_why_its_lease_does_not_grow() {
    let store = Line::new(600, BUDGETS).await;
    let batch = join(&store, "a").budget("/acme/batch").await.unwrap();
    let _charge = batch.charge(200).await.unwrap();
    assert_eq!(batch.standing(), Standing::Open);
    let lower = Change::Set { path: "/acme/batch".to_owned(), limit: Some(150), minimum: None };
    store.administer("acme", &lower).await.unwrap();
    until(async || matches!(batch.standing(), Standing::Over { by: 1.. })).await;
    store.cut.store(true, Ordering::Relaxed);
    until(async || batch.standing() == Standing::Ended).await;
    store.cut.store(false, Ordering::Relaxed);
    let delete = Change::Delete { path: "/acme/batch".to_owned() };
    until(async || batch.standing() != Standing::Ended).await;
    store.administer("acme", &delete).await.unwrap();
    until(async || batch.standing() == Standing::Closing).await;
    let second = join(&store, "a").budget("/acme").await.unwrap();
    until(async || batch.standing() == Standing::Fenced).await;
    assert_eq!(second.standing(), Standing::Open);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_together_charge_no_more_than_the_limit() {
    let store = Line::new(60_000, BUDGETS).await;
    let mut budgets = Vec::new();
    for name in ["a", "b", "c"] {
        budgets.push(join(&store, name).budget("/acme/batch").await.unwrap());
    }
    let mut held: Vec<OwnedCharge> = Vec::new();
    for turn in 0..300 {
        if let Ok(charge) = budgets[turn % 3].charge(7).await {
            held.push(charge);
        }
    }
    let sum: u64 = held.iter().map(OwnedCharge::units).sum();
    assert!(sum <= 500, "{sum} are charged");
    assert!(sum > 400, "{sum} are charged, and the rest lies idle");
    assert!(store.leased("/acme/batch").await <= 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_waits_gets_what_another_node_holds_idle() {
    let store = Line::new(60_000, BUDGETS).await;
    let (a, b) = (join(&store, "a"), join(&store, "b"));
    let at_a = a.budget("/acme/batch").await.unwrap();
    let at_b = b.budget("/acme/batch").await.unwrap();
    drop(at_a.charge(450).await.unwrap());
    let charge = at_b.charge_within(400, LONG).await.unwrap();
    assert_eq!(charge.units(), 400);
    assert!(at_a.lease() <= 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_frees_is_told_at_once_where_another_waits() {
    // Turns are 20 seconds apart: if the node did not look for freed units, they would come that much later.
    let store = Line::new(60_000, BUDGETS).await;
    let at_a = join(&store, "a").budget("/acme/batch").await.unwrap();
    let at_b = join(&store, "b").budget("/acme/batch").await.unwrap();
    let all = at_a.charge(490).await.unwrap();
    let waits = tokio::spawn(async move {
        let began = Instant::now();
        let charge = at_b.charge_within(400, LONG).await;
        (charge.map(|charge| charge.units()), began.elapsed())
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waits.is_finished());
    drop(all);
    let (charged, took) = waits.await.unwrap();
    assert_eq!(charged, Ok(400));
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_charge_waits_nobody_keeps_a_reserve_and_the_last_unit_is_had() {
    let store = Line::new(60_000, BUDGETS).await;
    let mut held = Vec::new();
    for name in ["a", "b"] {
        let batch = join(&store, name).budget("/acme/batch").await.unwrap();
        let charge = batch.charge(200).await.unwrap();
        assert!(batch.lease() > 200, "it likes to have some idle");
        held.push((batch, charge));
    }
    let last = join(&store, "c").budget("/acme/batch").await.unwrap();
    assert_eq!(last.charge_within(100, LONG).await.unwrap().units(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_charges_that_wait_for_what_lies_split_among_their_nodes_one_is_served() {
    let store = Line::new(60_000, BUDGETS).await;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let batch = join(&store, name).budget("/acme/batch").await.unwrap();
        // Idle, like after a charge that was returned.
        drop(batch.charge_within(100, LONG).await.unwrap());
        nodes.push(batch);
    }
    let mut waiting = tokio::task::JoinSet::new();
    for batch in nodes {
        waiting.spawn(async move { (batch.charge_within(400, LONG).await, batch) });
    }
    let (first, _batch) = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(first.unwrap().units(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_budget_refuses_is_not_held_back_from_others_above_it() {
    let store =
        Line::new(60_000, &[("/acme", 1_000), ("/acme/batch", 500), ("/acme/web", 500)]).await;
    let at_a = join(&store, "a").budget("/acme/batch").await.unwrap();
    let _all = at_a.charge(490).await.unwrap();
    // It wants more and more, but its budget is full.
    assert!(at_a.charge(400).await.is_err());
    let waits = tokio::spawn(async move { at_a.charge_within(450, LONG).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(store.leased("/acme").await, store.leased("/acme/batch").await);
    let web = join(&store, "b").budget("/acme/web").await.unwrap();
    // In one round trip: no node has to be asked.
    let _web = web.charge(490).await.unwrap();
    waits.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_hears_whose_lease_is_full_and_why_it_does_not_grow() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let charge = batch.charge(300).await.unwrap();
    let said = async || batch.charge(400).await.unwrap_err().to_string();
    let granted = "400 of /acme/batch requested, and this node uses 300 of its lease of 500; \
                   both are more than the budget's limit of 500";
    assert_eq!(said().await, granted);
    let large = batch.charge(501).await.unwrap_err().to_string();
    assert!(large.ends_with("; that is more than the budget's limit of 500"), "{large}");
    let other = join(&store, "b");
    let there = other.budget("/acme/batch").await.unwrap();
    let theirs = there.charge_within(150, LONG).await.unwrap();
    let refused = batch.charge(100).await.unwrap_err().to_string();
    // Each node keeps a reserve.
    let told = [
        "uses 300 of its lease of 3",
        "; other nodes have leased 1",
        " of the budget's limit of 500",
    ];
    assert!(told.iter().all(|part| refused.contains(part)), "{refused}");
    drop((theirs, there));
    let drain = |on| Change::Drain { node: "a".to_owned(), on };
    store.administer("acme", &drain(true)).await.unwrap();
    until(async || batch.standing() == Standing::Drained).await;
    let drained = said().await;
    assert!(
        drained.ends_with("; an operator drains this node, so it is granted nothing"),
        "{drained}"
    );
    store.administer("acme", &drain(false)).await.unwrap();
    // A refusal by a group below a budget reads like in any ledger.
    let query = batch.owned().create("q42").unwrap();
    query.group().set_max(ledgerline::Limit::units(5)).unwrap();
    let error = FleetError::from(query.try_charge(6).unwrap_err());
    let FleetError::Refused(no_room) = &error else { panic!("{error}") };
    assert_eq!((no_room.standing(), error.to_string()), (None, no_room.refused().to_string()));
    store.administer("acme", &Change::Delete { path: "/acme/batch".to_owned() }).await.unwrap();
    until(async || batch.standing() == Standing::Closing).await;
    assert!(said().await.ends_with("; the budget is deleted, so it grants nothing"));
    drop(charge);
    // The budget is removed with its last lease.
    until(async || store.leased("/acme/batch").await == 0).await;
    let gone = batch.charge(400).await.unwrap_err();
    assert_eq!(gone, FleetError::Unknown("/acme/batch".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_store_does_not_answer_a_charge_says_so_and_not_that_the_budget_is_full() {
    let store = Line::new(60_000, BUDGETS).await;
    let batch = join(&store, "a").budget("/acme/batch").await.unwrap();
    store.fails.store(true, Ordering::Relaxed);
    let torn = FleetError::Store(torn());
    assert_eq!(batch.charge(300).await.unwrap_err(), torn);
    let goes_on = "(torn); leases go on until they end, and none grows";
    assert!(torn.to_string().ends_with(goes_on), "{torn}");
    let waited = batch.charge_within(300, Duration::from_millis(300)).await;
    assert_eq!(waited.unwrap_err(), torn);
    let waits = tokio::spawn(async move { batch.charge_within(300, LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    store.fails.store(false, Ordering::Relaxed);
    assert_eq!(
        waits.await.unwrap().unwrap().units(),
        300,
        "it answers again while the charge waits"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_asked_runs_its_reclaimers_once_the_budget_is_over() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let pages: Arc<Mutex<Vec<OwnedCharge>>> = Arc::default();
    for _ in 0..40 {
        let page = batch.charge(10).await.unwrap();
        pages.lock().unwrap().push(page);
    }
    let evict = pages.clone();
    let _reclaimer = batch.owned().add_reclaimer(0, move |need| {
        let mut freed = 0;
        while freed < need {
            let Some(page) = evict.lock().unwrap().pop() else { break };
            freed += page.units();
        }
        freed
    });
    let lower = Change::Set { path: "/acme/batch".to_owned(), limit: Some(200), minimum: None };
    store.administer("acme", &lower).await.unwrap();
    until(async || store.leased("/acme/batch").await <= 200).await;
    assert!(batch.group().precise() <= 200);
    assert!(batch.lease() <= 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_gives_all_back_and_one_that_is_dropped_does_so_too() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let charge = batch.charge(200).await.unwrap();
    let refused = fleet.clone().leave(Duration::ZERO).await;
    assert_eq!(refused, Err(FleetError::Charged(200)));
    assert!(batch.try_charge(1).is_err());
    drop(charge);
    fleet.leave(LONG).await.unwrap();
    assert_eq!(store.leased("/acme/batch").await, 0);

    let other = join(&store, "b").budget("/acme/batch").await.unwrap();
    assert!(store.leased("/acme/batch").await > 0);
    drop(other);
    until(async || store.leased("/acme/batch").await == 0).await;
}

/// Each organisation has its own book, and its charges end independently.
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_several_organisations_waits_no_longer_than_for_one() {
    let store = Line::new(60_000, BUDGETS).await;
    let names = ["acme", "b", "c", "d", "e"];
    for name in &names[1..] {
        let terms = Change::from(Terms { ttl: 60_000, grace: 60_000 });
        store.memory.administer(name, &terms).await.unwrap();
        let change = Change::Set { path: format!("/{name}"), limit: Some(100), minimum: None };
        store.memory.administer(name, &change).await.unwrap();
    }
    let fleet = join(&store, "a");
    let mut charges = Vec::new();
    for name in names {
        let budget = fleet.budget(&format!("/{name}")).await.unwrap();
        charges.push(budget.charge(70).await.unwrap());
    }
    // All charges but the last are returned, shortly before patience ends.
    let _kept = charges.pop();
    let patience = Duration::from_secs(20);
    tokio::spawn(async move {
        tokio::time::sleep(patience * 9 / 10).await;
        drop(charges);
    });
    let start = tokio::time::Instant::now();
    assert_eq!(fleet.leave(patience).await, Err(FleetError::Charged(70)));
    assert!(start.elapsed() < patience * 11 / 10, "{:?}", start.elapsed());
    for name in &names[..4] {
        let view = store.memory.view(name).await.unwrap();
        assert_eq!(view.budgets[0].leased, 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_shrinks_at_the_end_of_its_leases_and_comes_back() {
    let store = Line::new(300, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let charge = batch.charge(100).await.unwrap();
    store.cut.store(true, Ordering::Relaxed);
    until(async || batch.lease() == 0).await;
    drop(charge);
    assert!(batch.try_charge(1).is_err());
    store.cut.store(false, Ordering::Relaxed);
    until(async || batch.try_charge(1).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_goes_on_when_its_leases_end() {
    let store = Line::new(200, BUDGETS).await;
    let fleet = Fleet::join(store.clone(), "a").reserve(10).at_end(AtEnd::GoOn).start().unwrap();
    let mut events = fleet.events();
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let _charge = batch.charge(100).await.unwrap();
    let lease = batch.lease();
    store.cut.store(true, Ordering::Relaxed);
    while events.recv().await.unwrap() != ledgerline_fleet::node::Event::Ended {}
    assert_eq!(batch.lease(), lease);
    let _more = batch.try_charge(1).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_nobody_set_is_unknown_and_a_second_process_of_a_name_fences_the_first() {
    let store = Line::new(400, BUDGETS).await;
    let fleet = join(&store, "a");
    let unknown = fleet.budget("/acme/none").await.unwrap_err();
    assert_eq!(unknown, FleetError::Unknown("/acme/none".to_owned()));
    let first = fleet.budget("/acme/batch").await.unwrap();
    let second = join(&store, "a").budget("/acme/batch").await.unwrap();
    assert_eq!(first.charge(400).await.unwrap_err(), FleetError::Fenced);
    until(async || first.lease() == 0).await;
    assert!(second.charge(400).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_below_a_budget_charge_it_and_a_programs_own_ledger_has_them() {
    let store = Line::new(60_000, BUDGETS).await;
    let ledger = Arc::new(Ledger::new().unwrap());
    let fleet = Fleet::join(store.clone(), "a").reserve(10).ledger(&ledger).start().unwrap();
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let query = batch.owned().create("q42").unwrap();
    let _charge = query.try_charge(5).unwrap();
    assert_eq!(ledger.find("/acme/batch").unwrap().precise(), 5);
    assert!(query.try_charge(501).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_hears_who_was_refused_and_nothing_of_charges_that_asking_made_room_for() {
    let store = Line::new(6_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("/acme/batch").await.unwrap();
    let granted = batch.charge(300).await.unwrap();
    let query = batch.owned().create("q42").unwrap();
    assert!(query.try_charge(400).is_err());
    // The query's own limit does not concern the fleet.
    query.group().set_max(ledgerline::Limit::units(5)).unwrap();
    assert!(query.try_charge(6).is_err());
    query.group().destroy().unwrap();
    assert!(batch.charge(450).await.is_err());
    let refusals = async || store.memory.view("acme").await.unwrap().refusals;
    until(async || refusals().await.len() == 2).await;
    let refusals = refusals().await;
    let told = |one: &ledgerline_fleet::book::Refused| {
        (one.node.clone(), one.budget.clone(), one.group.clone(), one.units, one.count)
    };
    let [a, budget, group] = ["a", "/acme/batch", "/acme/batch/q42"].map(str::to_owned);
    let expected =
        [(a.clone(), budget.clone(), group, 400, 1), (a, budget.clone(), budget, 450, 1)];
    assert_eq!(refusals.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(refusals[1].full, ledgerline_fleet::book::Full::Limit);
    drop(granted);
}

/// Starts tasks that charge, hold and return until they are stopped. Each returns the number of granted charges, and fails if one
/// was refused.
fn busy(
    budget: &Arc<Budget>,
    tasks: usize,
    units: u64,
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<u64>> {
    let task = |_| {
        let (budget, stop) = (budget.clone(), stop.clone());
        tokio::spawn(async move {
            let mut granted = 0;
            while !stop.load(Ordering::Relaxed) {
                let charge = budget.charge_within(units, LONG).await.unwrap();
                granted += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(charge);
            }
            granted
        })
    };
    (0..tasks).map(task).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_later_is_served_while_charges_of_the_holder_wait_and_so_is_a_large_charge()
 {
    let line = Line::new(1_000, &[("/acme", 1_000), ("/acme/batch", 400)]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (first, second) = (join(&line, "first"), join(&line, "second"));
    let holder = Arc::new(first.budget("/acme/batch").await.unwrap());
    let saturates = busy(&holder, 32, 25, &stop);
    until(async || holder.lease() == 400).await;
    let late = Arc::new(second.budget("/acme/batch").await.unwrap());
    // Each charge waits as long as it takes; its patience would end with a refusal.
    for _ in 0..20 {
        let four: Vec<_> = (0..4).map(|_| late.charge_within(25, LONG)).collect();
        for charge in futures_util::future::join_all(four).await {
            drop(charge.unwrap());
        }
    }
    // A charge larger than the node's part, for which units are gathered.
    let large = late.charge_within(300, LONG).await.unwrap();
    drop(large);
    stop.store(true, Ordering::Relaxed);
    for task in saturates {
        assert!(task.await.unwrap() > 0, "the holder's go on");
    }
}

//! The number of a node's messages, and how much fits in one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ledgerline_fleet::fleet::FleetError;
use ledgerline_fleet::message::{MAX_LEVELS, MAX_LINES};

use crate::support::line::{BUDGETS, Line, join, torn, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_beyond_the_lease_takes_one_round_trip() {
    let store = Line::new(60_000, BUDGETS).await;
    let fleet = join(&store, "a");
    let batch = fleet.budget("acme/batch").await.unwrap();
    assert!(batch.lease() < 300, "the first lease is a reserve");
    let before = store.syncs.load(Ordering::Relaxed);
    let charge = batch.charge(300).await.unwrap();
    assert_eq!(store.syncs.load(Ordering::Relaxed), before + 1);
    assert_eq!(charge.units(), 300);
    assert!((300..=500).contains(&batch.lease()));
}

/// At most one message is under way when the charges come; the next covers all of them.
#[tokio::test(flavor = "multi_thread")]
async fn of_charges_that_need_the_store_at_once_each_waits_for_two_answers_at_most() {
    let names: Vec<String> = (0..20).map(|number| format!("/acme/t{number}")).collect();
    let mut budgets = vec![("/acme", 100_000)];
    budgets.extend(names.iter().map(|name| (name.as_str(), 1_000)));
    let store = Line::new(600_000, &budgets).await;
    let fleet = join(&store, "a");
    let mut opened = Vec::new();
    for name in &names {
        opened.push(Arc::new(fleet.budget(name).await.unwrap()));
    }
    for fails in [false, true] {
        // Waits until the task is silent: its next turn is minutes away.
        until(async || {
            let before = store.syncs.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
            before == store.syncs.load(Ordering::Relaxed)
        })
        .await;
        store.takes.store(200, Ordering::Relaxed);
        store.fails.store(fails, Ordering::Relaxed);
        let before = store.syncs.load(Ordering::Relaxed);
        let charges = (0..200).map(|number| {
            let budget = opened[number % opened.len()].clone();
            tokio::spawn(async move { budget.charge(if fails { 600 } else { 50 }).await })
        });
        let charges: Vec<_> = charges.collect();
        let mut held = Vec::new();
        for charge in charges {
            match charge.await.unwrap() {
                Ok(charge) => held.push(charge),
                Err(error) => assert_eq!(error, FleetError::Store(torn())),
            }
        }
        assert_eq!(held.len(), if fails { 0 } else { 200 });
        // The first message covers one need, the second those of all others, and one is the task's. The charges do not all come
        // at once.
        let messages = store.syncs.load(Ordering::Relaxed) - before;
        assert!(messages <= 12, "{messages} messages for 200 charges of 20 budgets");
        store.takes.store(0, Ordering::Relaxed);
        store.fails.store(false, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_that_are_opened_at_once_share_messages_and_each_hears_whether_it_is_there() {
    let names: Vec<String> = (0..50).map(|number| format!("/acme/t{number}")).collect();
    let mut budgets = vec![("/acme", 1_000)];
    budgets.extend(names.iter().map(|name| (name.as_str(), 1_000)));
    let store = Line::new(600_000, &budgets).await;
    let fleet = join(&store, "a");
    store.takes.store(100, Ordering::Relaxed);
    let opened: Vec<_> = (0..100)
        .map(|number| {
            let fleet = fleet.clone();
            tokio::spawn(async move { fleet.budget(&format!("/acme/t{number}")).await })
        })
        .collect();
    for (number, opened) in opened.into_iter().enumerate() {
        let told = opened.await.unwrap().map(|budget| budget.path().to_owned());
        let path = format!("/acme/t{number}");
        assert_eq!(told, if number < 50 { Ok(path) } else { Err(FleetError::Unknown(path)) });
    }
    let messages = store.syncs.load(Ordering::Relaxed);
    assert!(messages <= 10, "{messages} messages for 100 budgets");
}

/// Opens as many budgets as a message can name. With one more, stores would reject each later message.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_opens_no_more_budgets_than_a_message_names_and_keeps_those_it_has() {
    // Each budget has fourteen levels of its own below two shared ones.
    const OWN: usize = MAX_LEVELS - 2;
    const FIT: usize = (MAX_LINES - 2) / OWN;
    let mut paths = Vec::new();
    let mut budgets = vec![("/acme".to_owned(), 1_000_000), ("/acme/x".to_owned(), 1_000_000)];
    for number in 0..=FIT {
        let mut path = "/acme/x".to_owned();
        for level in 0..OWN {
            path = format!("{path}/{number}-{level}");
            budgets.push((path.clone(), 1_000));
        }
        paths.push(path);
    }
    let budgets: Vec<_> = budgets.iter().map(|(path, limit)| (path.as_str(), *limit)).collect();
    let store = Line::new(600_000, &budgets).await;
    let fleet = join(&store, "a");
    let opens = paths.iter().map(|path| fleet.budget(path));
    let mut opened = futures_util::future::join_all(opens).await;
    let refused = opened.pop().unwrap().unwrap_err();
    assert_eq!(refused, FleetError::TooMany(paths[FIT].clone()));
    let opened: Vec<_> = opened.into_iter().map(|budget| budget.unwrap()).collect();
    assert_eq!(opened[FIT - 1].charge(20).await.unwrap().units(), 20);
    // All of them fit into one message.
    opened[0].ask(500).await.unwrap();
    assert!(opened[0].lease() >= 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_asks_before_it_needs_has_its_lease_in_one_round_trip_and_nothing_charged() {
    let store = Line::new(60_000, BUDGETS).await;
    let batch = join(&store, "a").budget("/acme/batch").await.unwrap();
    let before = store.syncs.load(Ordering::Relaxed);
    batch.ask(300).await.unwrap();
    assert_eq!(store.syncs.load(Ordering::Relaxed), before + 1);
    assert!(batch.lease() >= 300 && batch.group().precise() == 0, "{batch:?}");
    batch.ask(300).await.unwrap();
    assert_eq!(store.syncs.load(Ordering::Relaxed), before + 1, "it has room enough");
    let _at_once = batch.try_charge(300).unwrap();
    let totals = batch.totals().await.unwrap();
    let told = totals.iter().map(|budget| (budget.path.as_str(), budget.limit)).collect::<Vec<_>>();
    assert_eq!(told, BUDGETS);
    assert!(totals.iter().all(|budget| budget.leased >= 300 && budget.holds.is_empty()));
}

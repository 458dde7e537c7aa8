//! `high`: charges above it succeed and pay, a bounded time each, and it is counted.

mod common;

use common::{in_both_modes, tasks::block_on};
use ledgerline::{Group, Ledger, Limit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

fn with_high<'l>(parent: Group<'l>, high: u64) -> Group<'l> {
    let group = parent.create("group").unwrap();
    group.set_high(Limit::units(high));
    group
}

fn ledger(most: Duration) -> Ledger {
    Ledger::builder().batch(64).throttle_time(most).anonymous().unwrap()
}

fn counted(group: Group<'_>) -> (i64, i64) {
    let stat = group.stat();
    (stat.get("throttled").unwrap().own, stat.get("throttled_usec").unwrap().own)
}

#[test]
fn a_charge_pays_in_proportion_to_its_units_and_to_the_square_of_the_excess() {
    in_both_modes(
        "a_charge_pays_in_proportion_to_its_units_and_to_the_square_of_the_excess",
        || {
            let ledger = ledger(Duration::from_secs(1000));
            let tenant = with_high(ledger.root(), 1_000_000);
            let query = tenant.create("query").unwrap();
            assert!(query.try_charge(999_000).unwrap().backoff().penalty().is_zero());
            let hoard = query.try_charge(1_100_000).unwrap();
            // A tenth above: 0.64 s a batch of 64.
            for (units, millis) in [(64, 640), (32, 320), (640, 6400), (1, 10)] {
                let backoff = query.backoff(units);
                let penalty = backoff.penalty().as_millis() as i64;
                assert!((penalty - millis).abs() <= 1 + millis / 100, "{units}: {penalty}");
                assert_eq!(backoff.group().unwrap().id(), tenant.id());
            }
            let more = query.try_charge(100_000).unwrap();
            assert!(
                (query.backoff(64).penalty().as_millis() as i64 - 2560).abs() < 30,
                "twice, squared"
            );
            // The group furthest above in proportion decides.
            query.set_high(Limit::units(400_000));
            assert_eq!(query.backoff(64).group().unwrap().id(), query.id());
            assert_eq!(counted(query), (0, 0), "what is not paid is not counted");
            drop((hoard, more));
            assert!(query.backoff(64).group().is_none());
        },
    );
}

#[test]
fn what_is_paid_is_bounded_for_each_charge_and_counted() {
    let ledger = ledger(20 * MILLI);
    let tenant = with_high(ledger.root(), 1000);
    let query = tenant.create("query").unwrap();
    let _hoard = query.try_charge(100_000).unwrap();
    // Far above: every charge pays the most, and none is refused or held for ever.
    let start = Instant::now();
    for _ in 0..3 {
        drop(query.try_charge_throttled(64).unwrap());
    }
    block_on(query.try_charge(64).unwrap().backoff());
    block_on(async { query.request(64).throttled().await }).map(drop).unwrap();
    query.request(64).throttled().charge().map(drop).unwrap();
    assert!(start.elapsed() >= 6 * 20 * MILLI);
    assert_eq!(counted(query), (6, 6 * 20_000));
    assert_eq!(counted(tenant), (0, 0));
    assert_eq!(tenant.stat().get("throttled").unwrap().subtree, 6);
    // A hint costs nothing and counts nothing.
    assert_eq!(query.try_charge(64).unwrap().backoff().penalty(), 20 * MILLI);
    assert_eq!(counted(query).0, 6);
}

#[test]
fn reclaimers_are_asked_before_anybody_pays() {
    let ledger: &'static Ledger = Box::leak(Box::new(ledger(20 * MILLI)));
    let tenant = with_high(ledger.root(), 1000);
    let cache = tenant.create("cache").unwrap();
    cache.try_charge_units(900).unwrap();
    let cached = Arc::new(AtomicU64::new(900));
    let left = cached.clone();
    let _reclaimer = cache.add_reclaimer(0, move |need| {
        let give = need.min(left.load(SeqCst));
        left.fetch_sub(give, SeqCst);
        cache.uncharge_units(give);
        give
    });
    let query = tenant.create("query").unwrap();
    let _held = query.try_charge_throttled(600).unwrap();
    assert_eq!(counted(query), (0, 0), "the cache made room");
    let given = 900 - cached.load(SeqCst);
    assert!((500..=564).contains(&given), "what was above high, and what lay idle: {given}");
    // When it has no more, one pays.
    let _more = query.try_charge_throttled(3000).unwrap();
    assert_eq!((cached.load(SeqCst), counted(query).0), (0, 1));
}

//! `high`: charges above it succeed and pay a bounded time each, which is counted.

use crate::common::{in_both_modes, unique};
use crate::support::tasks::block_on;
use ledgerline::{Group, Ledger, Limit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

fn with_high<'l>(parent: Group<'l>, high: u64) -> Group<'l> {
    let group = parent.create(&unique("group")).unwrap();
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
            let query = tenant.create(&unique("query")).unwrap();
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
        drop(query.request(64).throttled().charge().unwrap());
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
    let _held = query.request(600).throttled().charge().unwrap();
    assert_eq!(counted(query), (0, 0), "the cache made room");
    let given = 900 - cached.load(SeqCst);
    assert!((500..=564).contains(&given), "what was above high, and what lay idle: {given}");
    // When the reclaimer has no more, the charge pays.
    let _more = query.request(3000).throttled().charge().unwrap();
    assert_eq!((cached.load(SeqCst), counted(query).0), (0, 1));
}

#[test]
fn a_plain_charge_that_ends_above_high_has_the_excess_given_back_and_an_allocators_has_not() {
    in_both_modes(
        "a_plain_charge_that_ends_above_high_has_the_excess_given_back_and_an_allocators_has_not",
        || {
            let ledger: &'static Ledger = Box::leak(Box::new(ledger(20 * MILLI)));
            let top = with_high(ledger.root(), 5000);
            let tenant = with_high(top, 1000);
            let (cache, outside) = (tenant.create("cache").unwrap(), top.create("out").unwrap());
            let give = |group: Group<'static>, units| {
                group.try_charge_units(units).unwrap();
                let left = Arc::new(AtomicU64::new(units));
                let cached = left.clone();
                let reclaimer = group.add_reclaimer(0, move |need| {
                    // Inside, a charge that ends above high asks no reclaimer: it would ask itself.
                    drop(group.try_charge(100).unwrap());
                    let give = need.min(cached.load(SeqCst));
                    cached.fetch_sub(give, SeqCst);
                    group.uncharge_units(give);
                    give
                });
                (left, reclaimer)
            };
            let ((cached, _one), (others, _two)) = (give(cache, 900), give(outside, 3000));
            let query = tenant.create("query").unwrap();
            query.try_charge_units(300).unwrap();
            assert_eq!(cached.load(SeqCst), 900, "an allocator runs nobody's code");
            let mut charges = vec![query.try_charge(100).unwrap()];
            assert_eq!(cached.load(SeqCst), 600, "1300 were in use");
            charges.push(query.request(200).charge().unwrap());
            assert_eq!((cached.load(SeqCst), tenant.precise()), (400, 1000));
            assert_eq!(others.load(SeqCst), 3000, "the tenant's high is nothing to others");
            // Over its own high it has nothing more; then the next one up is above its own, too.
            charges.push(query.try_charge(2500).unwrap());
            assert_eq!((cached.load(SeqCst), others.load(SeqCst)), (0, 1900));
            assert_eq!(top.precise(), 5000);
            assert_eq!(counted(query), (0, 0), "nobody sleeps unless it wants to");
            assert_eq!(ledger.mistakes(), ledgerline::Mistakes::default());
        },
    );
}

#[test]
fn who_gives_nothing_back_is_not_asked_at_every_charge_above_high() {
    let time = Duration::from_millis(100);
    let builder = Ledger::builder().batch(64).reclaim_time(time);
    let ledger: &'static Ledger = Box::leak(Box::new(builder.anonymous().unwrap()));
    let tenant = with_high(ledger.root(), 1000);
    tenant.try_charge_units(2000).unwrap();
    let reclaimer = tenant.add_reclaimer(0, |_| 0);
    let start = Instant::now();
    // Each of them walks, as it is larger than a batch.
    for _ in 0..20_000 {
        std::mem::forget(tenant.try_charge(100).unwrap());
    }
    let most = 2 + (start.elapsed().as_millis() / time.as_millis()) as u64;
    let runs = reclaimer.report().runs;
    assert!((1..=most).contains(&runs), "{runs} runs, {most} at most");
}

#[test]
fn who_gives_back_what_is_above_high_is_asked_once_in_many_charges() {
    in_both_modes("who_gives_back_what_is_above_high_is_asked_once_in_many_charges", || {
        let builder = Ledger::builder().batch(1 << 16);
        let ledger: &'static Ledger = Box::leak(Box::new(builder.anonymous().unwrap()));
        let tenant = with_high(ledger.root(), 100 << 20);
        let (cache, query) = (tenant.create("cache").unwrap(), tenant.create("query").unwrap());
        cache.try_charge_units(90 << 20).unwrap();
        query.try_charge_units(10 << 20).unwrap();
        let reclaimer = cache.add_reclaimer(0, move |need| {
            cache.uncharge_units(need);
            need
        });
        let charges = 100_000;
        for _ in 0..charges {
            std::mem::forget(query.try_charge(100).unwrap());
        }
        // The units that a walk fetches lie idle for a while, and do not count as an excess.
        let (runs, above) = (reclaimer.report().runs, tenant.precise().saturating_sub(100 << 20));
        assert!((1..charges / 50).contains(&runs), "{runs} runs in {charges} charges");
        assert!(above <= 4 << 16, "{above} above high, and two batches on a CPU may lie idle");
    });
}

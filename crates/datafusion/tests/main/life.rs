//! Begin and end of queries and tenants, `grow`, the reports, and the effects of a watch of RSS.

use crate::support::{MIB, builder, fill, fixed, pool, query, spill, spiller};
use datafusion_execution::memory_pool::MemoryLimit;
use datafusion_execution::runtime_env::RuntimeEnv;
use ledgerline::{Ledger, Limit};
use ledgerline_datafusion::{LedgerPool, RssWatch};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const MAX: usize = 100 * MIB;

#[test]
fn a_query_ends_with_its_last_handle_or_reservation() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let sort = spiller(&query.pool(), "ExternalSorter[0]");
    drop(query);
    sort.try_grow(MIB).unwrap();
    assert_eq!(pool.group().children().count(), 1, "a stream may outlive the handle");
    drop(sort);
    assert_eq!(pool.group().children().count(), 0);
}

#[test]
fn no_group_of_a_consumer_is_left_when_all_have_ended_at_once() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    for _ in 0..2000 {
        let sorts = [0, 1, 2].map(|at| spiller(&query.pool(), &format!("Sort[{at}]")));
        let all = Barrier::new(sorts.len());
        std::thread::scope(|scope| {
            for sort in sorts {
                let all = &all;
                scope.spawn(move || {
                    sort.try_grow(MIB).unwrap();
                    all.wait();
                    drop(sort);
                });
            }
        });
        assert_eq!((query.group().children().count(), query.group().precise()), (0, 0));
    }
}

#[test]
fn a_query_that_is_ended_refuses_and_reports_who_still_holds_what() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = told.clone();
    let pool =
        builder(MAX).on_query_end(move |report| hook.lock().unwrap().push(report.clone())).build();
    let query = query(&pool, "q42");
    let [sort, join] = [spiller(&query.pool(), "Sort[0]"), fixed(&query.pool(), "Join[0]")];
    sort.try_grow(3 * MIB).unwrap();
    join.try_grow(5 * MIB).unwrap();
    let report = query.end().unwrap();
    assert_eq!(report.leftover, 8 << 20);
    assert_eq!(report.holders, [("Join[0]".to_owned(), 5 << 20), ("Sort[0]".to_owned(), 3 << 20)]);
    assert!(report.peak >= 8 << 20 && report.peak - report.peak_bound <= 8 << 20, "{report:?}");
    let text = report.to_string();
    assert!(text.contains("8.0 MB still reserved by Join[0] (5.0 MB), Sort[0] (3.0 MB)"), "{text}");
    assert_eq!(query.end(), None, "once");
    assert_eq!(*told.lock().unwrap(), [report]);

    let refused = join.try_grow(1).unwrap_err().to_string();
    assert!(refused.contains("/acme/q42/Join[0]") && refused.contains("has ended"), "{refused}");
    assert_eq!(pool.group().precise(), 8 << 20, "it counts in the tenant until it is returned");
    join.grow(MIB);
    drop((sort, join));
    assert_eq!(pool.group().precise(), 0);
    let ledger = pool.group().ledger();
    assert_eq!(ledger.mistakes(), Default::default(), "what was not charged is not uncharged");
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn a_tenant_lives_as_long_as_one_of_its_queries() {
    let pool = pool(MAX);
    let tenant = pool.tenant("beta").unwrap();
    let query = query(&tenant, "q");
    drop(tenant);
    assert_eq!(query.group().path(), "/acme/beta/q");
    fixed(&query.pool(), "Join[0]").try_grow(MIB).unwrap();
    drop(query);
    assert_eq!(pool.group().children().count(), 0);
}

#[test]
fn grow_is_granted_over_the_limit_and_counted() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let join = fixed(&query.pool(), "Join[0]");
    join.try_grow(MAX - MIB).unwrap();
    join.grow(3 * MIB);
    assert_eq!(pool.group().precise(), (MAX + 2 * MIB) as u64);
    assert!(join.try_grow(1).is_err());
    join.shrink(3 * MIB);
    join.try_grow(MIB).unwrap();
    drop(join);
    assert_eq!(query.end().unwrap().overrun, 3 << 20);
}

#[test]
fn the_lowest_limit_of_the_chain_is_the_pools_limit() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let limit = || match query.pool().memory_limit() {
        MemoryLimit::Finite(bytes) => Some(bytes),
        _ => None,
    };
    assert_eq!(limit(), Some(MAX));
    query.group().set_max(Limit::units(7 << 20)).unwrap();
    assert_eq!(limit(), Some(7 * MIB));
    assert_eq!(query.pool().to_string(), "ledger(/acme/q, used: 0.0 B, limit: 7.0 MB)");
    for group in [query.group(), pool.group()] {
        group.set_max(Limit::MAX).unwrap();
    }
    assert_eq!(limit(), None);
    let sort = spiller(&query.pool(), "Sort[0]");
    sort.try_grow(1 << 40).unwrap();
}

#[test]
fn a_query_that_is_full_does_not_take_from_another() {
    let pool = pool(MAX);
    let [a, b] = ["a", "b"].map(|name| query(&pool, name));
    a.group().set_max(Limit::units(10 << 20)).unwrap();
    let [sort_a, sort_b] = [&a, &b].map(|query| spiller(&query.pool(), "Sort[0]"));
    let in_a = fill(&sort_a, MIB, usize::MAX);
    assert!((8 * MIB..10 * MIB).contains(&in_a), "{in_a}");
    assert_eq!(fill(&sort_b, MIB, 60 * MIB), 60 * MIB);
    let text = sort_a.try_grow(2 * MIB).unwrap_err().to_string();
    assert!(text.contains("/acme/a has 8.1 MB of 10.0 MB"), "its own limit said no: {text}");
}

#[test]
fn a_consumer_with_nothing_to_spill_begins_in_a_full_pool() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let large = spiller(&query.pool(), "Sort[0]");
    fill(&large, MIB, usize::MAX);
    // A refusal would end its query: it takes from the kept part, and half of that stays.
    let small =
        (1..20).map(|at| spiller(&query.pool(), &format!("Sort[{at}]"))).collect::<Vec<_>>();
    let began = small.iter().filter(|one| one.try_grow(MIB).is_ok()).count();
    assert!((10..15).contains(&began), "{began}");
    let join = fixed(&query.pool(), "Join[0]");
    assert!(fill(&join, MIB, usize::MAX) >= 6 * MIB);
    assert!(query.pool().reserved() <= MAX);
}

/// Like an aggregation that merges its spilled data: registered as one that can spill, and unable to.
#[test]
fn a_consumer_that_holds_little_is_not_refused_for_what_larger_ones_hold() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let [sort, other, merge] = [0, 1, 2].map(|at| spiller(&query.pool(), &format!("Sort[{at}]")));
    merge.try_grow(MIB).unwrap();
    other.try_grow(MIB).unwrap();
    fill(&sort, MIB, usize::MAX);
    // Another one takes the remainder up to the line before that.
    fill(&other, MIB / 4, 6 * MIB);
    merge.try_grow(5 * MIB).unwrap();
    assert!(query.pool().reserved() > MAX * 7 / 8, "that is beyond the overdraft");
    fill(&merge, MIB, usize::MAX);
    assert!(query.pool().reserved() <= MAX * 15 / 16, "half of what is kept stays");
}

#[test]
fn who_was_asked_to_spill_has_room_to_finish() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let [sort, other] = [0, 1].map(|at| spiller(&query.pool(), &format!("Sort[{at}]")));
    other.try_grow(MIB).unwrap();
    fill(&sort, MIB / 4, usize::MAX);
    // It spills now. The data that a merge sorts takes a little more than was held, and the merge cannot spill.
    sort.try_grow(2 * MIB).unwrap();
    let merge = fixed(&query.pool(), "Merge[0]");
    merge.try_grow(10 * MIB).unwrap();
    spill(&sort);
    assert_eq!(fill(&sort, MIB, 70 * MIB), 70 * MIB, "and then it has what it gave back");
}

#[test]
fn caches_of_the_tenant_give_way_before_a_query_spills() {
    let pool = pool(MAX);
    let cache = Arc::new(Mutex::new(vec![pool.owned_group().try_charge(30 << 20).unwrap()]));
    let taken = cache.clone();
    let _reclaimer = pool.owned_group().add_reclaimer(0, move |_| {
        taken.lock().unwrap().drain(..).map(|charge| charge.units()).sum()
    });
    let query = query(&pool, "q");
    let join = fixed(&query.pool(), "Join[0]");
    join.try_grow(90 * MIB).unwrap();
    assert!(cache.lock().unwrap().is_empty());
}

/// An operator that gives way like a cache: it belongs to the very query that asks.
#[test]
fn a_reclaimer_may_begin_and_end_consumers_of_the_query_that_asks() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let cached = fixed(&query.pool(), "Cache[0]");
    cached.try_grow(50 * MIB).unwrap();
    let cached = Mutex::new(Some(cached));
    let of_the_query = query.pool();
    let _reclaimer = pool.owned_group().add_reclaimer(0, move |_| {
        let given_back = cached.lock().unwrap().take().map_or(0, |cached| cached.free());
        let brief = fixed(&of_the_query, "Reclaim[0]");
        brief.try_grow(1).unwrap();
        given_back as u64
    });
    let join = fixed(&query.pool(), "Join[0]");
    join.try_grow(90 * MIB).unwrap();
    assert_eq!(query.holders(), [("Join[0]".to_owned(), 90 << 20)]);
}

#[test]
fn what_others_charge_to_the_tenant_is_no_room_for_spillers() {
    let pool = pool(MAX);
    let cache = pool.owned_group().try_charge(60 << 20).unwrap();
    let query = query(&pool, "q");
    let sort = spiller(&query.pool(), "Sort[0]");
    let got = fill(&sort, MIB, usize::MAX);
    assert!((30 * MIB..36 * MIB).contains(&got), "the room to finish is still there: {got}");
    drop(cache);
    assert_eq!(fill(&sort, MIB, 80 * MIB), 80 * MIB);
}

#[test]
fn memory_that_nobody_reserved_makes_spillers_spill_and_then_refuses_all() {
    let resident = Arc::new(AtomicU64::new(0));
    let read = resident.clone();
    let watch =
        RssWatch::new(MAX as u64).every(Duration::ZERO).reading(move || Some(read.load(Relaxed)));
    let pool = builder(MAX).keep_for_unspillable(0.0).room_to_finish(0.0).watch_rss(watch).build();
    let query = query(&pool, "q");
    let [sort, join] = [spiller(&query.pool(), "Sort[0]"), fixed(&query.pool(), "Join[0]")];
    resident.store(20 << 20, Relaxed);
    sort.try_grow(10 * MIB).unwrap();
    // 10 MiB are reserved and 60 resident: 50 are not in the account, and 35 of 85 are left to spillers.
    resident.store(60 << 20, Relaxed);
    sort.try_grow(25 * MIB).unwrap();
    let text = sort.try_grow(30 * MIB).unwrap_err().to_string();
    assert!(text.contains("that no query reserved"), "{text}");
    resident.store(95 << 20, Relaxed);
    spill(&sort);
    let text = join.try_grow(MIB).unwrap_err().to_string();
    assert!(text.contains("the process holds 95.0 MB that no query reserved"), "{text}");
    resident.store(30 << 20, Relaxed);
    join.try_grow(60 * MIB).unwrap();
}

#[test]
fn a_querys_environment_differs_by_its_pool_alone() {
    let pool = pool(MAX);
    let query = query(&pool, "q");
    let env = RuntimeEnv::default();
    let ours = query.runtime(&env).unwrap();
    assert!(Arc::ptr_eq(&ours.memory_pool, &query.pool()));
    assert!(Arc::ptr_eq(&ours.disk_manager, &env.disk_manager));
    assert!(Arc::ptr_eq(&ours.object_store_registry, &env.object_store_registry));
}

#[test]
fn a_ledger_without_rows_left_charges_the_query() {
    let ledger = Arc::new(Ledger::builder().capacity(3).anonymous().unwrap());
    let pool = LedgerPool::builder(ledger.owned_root().create("acme").unwrap()).build();
    let query = query(&pool, "q");
    let joins = [0, 1].map(|at| fixed(&query.pool(), &format!("Join[{at}]")));
    joins.iter().for_each(|join| join.try_grow(MIB).unwrap());
    assert_eq!(query.group().precise(), 2 << 20);
    assert!(pool.for_query("r").is_err());
    assert_eq!(query.holders().len(), 2);
    drop(joins);
    assert_eq!(query.end().unwrap().leftover, 0);
}

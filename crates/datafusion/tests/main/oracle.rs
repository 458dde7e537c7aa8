//! The account equals the live reservations, whichever thread moves them, and `try_grow` never takes a group over its
//! max.

use crate::support::{MIB, builder, spiller};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use ledgerline::{Ledger, Limit};
use ledgerline_datafusion::{LedgerPool, Query};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;

const ENGINE: u64 = 64 << 20;
const TENANT: u64 = 24 << 20;
const QUERY: u64 = 10 << 20;

/// Pseudo-random numbers, the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Makes one random step of an operator on its reservations. Steps with `grow` are made if requested.
fn step(numbers: &mut Numbers, mine: &mut Vec<MemoryReservation>, query: &Query, grow: bool) {
    let size = numbers.next(512 << 10) as usize;
    let at = numbers.next(mine.len().max(1) as u64) as usize;
    match numbers.next(12) {
        0 if mine.len() < 12 => {
            let spills = numbers.next(2) == 0;
            let name = format!("Operator[{}]", numbers.next(4));
            mine.push(MemoryConsumer::new(name).with_can_spill(spills).register(&query.pool()));
        }
        1 if mine.len() > 4 => drop(mine.swap_remove(at)),
        _ if mine.is_empty() => {}
        2 => drop(mine[at].free()),
        3 => mine[at].shrink(size.min(mine[at].size())),
        4 => {
            let half = mine[at].size() / 2;
            let other = mine[at].split(half);
            mine.push(other);
        }
        5 => {
            let other = mine[at].new_empty();
            mine.push(other);
        }
        6 => {
            let taken = mine[at].take();
            mine[at] = taken;
        }
        7 => drop(mine[at].try_resize(size)),
        8 if grow => mine[at].grow(size / 4),
        _ => {
            if mine[at].try_grow(size).is_err() && mine[at].consumer().can_spill() {
                mine[at].free();
            }
        }
    }
}

fn held(reservations: &[MemoryReservation]) -> u64 {
    reservations.iter().map(|one| one.size() as u64).sum()
}

/// Runs three tenants with two queries each, and two threads for each query.
fn run(grow: bool, steps: usize) {
    let ledger = Arc::new(Ledger::builder().capacity(4096).anonymous().unwrap());
    let engine = ledger.owned_root().create("engine").unwrap();
    engine.group().set_max(Limit::units(ENGINE)).unwrap();
    let pool = LedgerPool::builder(engine.clone()).build();
    let tenants = ["a", "b", "c"].map(|name| {
        let tenant = pool.tenant(name).unwrap();
        tenant.group().set_max(Limit::units(TENANT)).unwrap();
        tenant
    });
    let queries = tenants
        .iter()
        .flat_map(|tenant| ["q1", "q2"].map(|name| tenant.for_query(name).unwrap()))
        .collect::<Vec<_>>();
    for query in &queries {
        query.group().set_max(Limit::units(QUERY)).unwrap();
    }
    for round in 1..4 {
        let done = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            let watcher = (!grow).then(|| {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        assert!(engine.group().precise() <= ENGINE);
                        tenants.iter().for_each(|one| assert!(one.group().precise() <= TENANT));
                        queries.iter().for_each(|one| assert!(one.group().precise() <= QUERY));
                    }
                })
            });
            let workers = (0..queries.len() * 2).map(|at| {
                let query = &queries[at / 2];
                scope.spawn(move || {
                    let mut numbers =
                        Numbers(crate::seed::seed(0x9e37_79b9 + at as u64 * 7919 + round));
                    let mut mine = Vec::new();
                    (0..steps).for_each(|_| step(&mut numbers, &mut mine, query, grow));
                    mine
                })
            });
            let workers = workers.collect::<Vec<_>>();
            let mine = workers.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>();
            done.store(true, Relaxed);
            watcher.into_iter().for_each(|watcher| watcher.join().unwrap());
            mine
        });
        // No thread writes now: each level is the sum of the groups below it, and each consumer equals its holding.
        let mut total = 0;
        for (at, query) in queries.iter().enumerate() {
            let live = held(&ended[at * 2]) + held(&ended[at * 2 + 1]);
            assert_eq!(query.group().precise(), live);
            assert_eq!(query.pool().reserved() as u64, live);
            assert_eq!(query.holders().iter().map(|(_, bytes)| bytes).sum::<u64>(), live);
            total += live;
        }
        assert_eq!(engine.group().precise(), total);
        drop(ended);
        assert_eq!(engine.group().precise(), 0);
        for query in &queries {
            assert_eq!((query.pool().reserved(), query.group().children().count()), (0, 0));
        }
    }
    for query in &queries {
        let report = query.end().unwrap();
        assert_eq!((report.leftover, report.holders.len()), (0, 0));
        assert!(report.asked_to_spill > 0 && report.refused > 0, "limits were met: {report}");
        assert_eq!(report.overrun > 0, grow, "{report}");
    }
    drop((queries, tenants));
    assert_eq!(engine.group().children().count(), 0, "tenants went with their last handle");
    assert_eq!(ledger.mistakes(), Default::default());
}

#[test]
fn the_account_is_what_is_reserved_and_try_grow_never_oversteps_a_max() {
    run(false, 3000);
}

#[test]
fn the_account_is_what_is_reserved_though_grow_oversteps() {
    run(true, 3000);
}

#[test]
fn spillers_of_all_threads_together_leave_half_of_what_is_kept() {
    let pool = builder(32 * MIB).keep_for_unspillable(0.25).room_to_finish(0.125).build();
    let query = pool.for_query("q").unwrap();
    let kept = 8 << 20;
    // Consumers that hold no more than their share may take half of the kept part.
    let begun = Barrier::new(4);
    thread::scope(|scope| {
        for at in 0..4 {
            let (pool, query, begun) = (&pool, &query, &begun);
            scope.spawn(move || {
                let mut numbers = Numbers(7 + at);
                let mine = spiller(&query.pool(), &format!("ExternalSorter[{at}]"));
                mine.try_grow(MIB).unwrap();
                begun.wait();
                for _ in 0..20_000 {
                    if mine.try_grow(numbers.next(1 << 16) as usize).is_err() {
                        mine.shrink(mine.size() - MIB);
                    }
                    // The reserved amount of a query's pool includes requests that the engine's level then refuses.
                    assert!(pool.group().precise() <= (32 << 20) - kept / 2);
                }
            });
        }
    });
}

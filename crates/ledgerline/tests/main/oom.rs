//! Victims: which one is cancelled, when and how often, and the counts.

use crate::common::{in_both_modes, times, unique};
use crate::support::limited;
use crate::support::tasks::block_on;
use ledgerline::{CancelToken, Charge, Group, Killed, Ledger, Limit, Mistakes, Victim};
use proptest::prelude::*;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A query that releases its charges when it is cancelled.
struct Query {
    group: Group<'static>,
    token: CancelToken,
    held: Arc<Mutex<Vec<Charge<'static>>>>,
    _victim: Victim<'static>,
}

impl Query {
    fn holding(parent: Group<'static>, name: &str, units: u64) -> Query {
        let group = parent.create(name).or_else(|_| parent.create(&unique(name))).unwrap();
        let token = CancelToken::new();
        let held = Arc::new(Mutex::new(Vec::from_iter(group.try_charge(units))));
        let victim = group.add_victim(&token);
        let lets_go = held.clone();
        token.on_cancel(move |_| lets_go.lock().unwrap().clear());
        Query { group, token, held, _victim: victim }
    }

    fn oom_kills(&self) -> u64 {
        self.group.local_events().oom_kill
    }
}

fn ledger() -> &'static Ledger {
    let builder = Ledger::builder().capacity(256).victim_time(Duration::from_millis(300));
    Box::leak(Box::new(builder.anonymous().unwrap()))
}

#[test]
fn the_largest_above_its_protection_is_cancelled_and_the_others_go_on() {
    in_both_modes("the_largest_above_its_protection_is_cancelled_and_the_others_go_on", || {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "acme", 1000);
        let small = Query::holding(tenant, "small", 200);
        let protected = Query::holding(tenant, "protected", 450);
        protected.group.set_low(Limit::units(300));
        let large = Query::holding(tenant, "large", 350);
        let elsewhere = Query::holding(ledger.root(), "elsewhere", 5000);
        let new = tenant.create("new").unwrap();
        new.try_charge(300).unwrap_err();
        assert!(!large.token.is_cancelled(), "only who asks for it has others cancelled");

        let granted = new.request(300).oom().charge().unwrap();
        let killed = large.token.killed().unwrap();
        assert_eq!(*killed, Killed::new("/acme/large", 350, "/acme", 300));
        for other in [&small, &protected, &elsewhere] {
            assert!(!other.token.is_cancelled() && other.oom_kills() == 0);
        }
        assert_eq!(tenant.precise(), 950);
        let events = tenant.events();
        assert_eq!((events.oom, events.oom_kill, events.oom_group_kill), (1, 1, 0));
        assert_eq!((tenant.local_events().oom, tenant.local_events().oom_kill), (1, 0));
        assert_eq!(large.oom_kills(), 1);
        drop(granted);
        // The same in a task: the next is the small one, since the other has 150 unprotected.
        block_on(new.request(400).oom().into_future()).map(drop).unwrap();
        assert!(small.token.is_cancelled() && !protected.token.is_cancelled());
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn below_a_group_that_goes_together_all_are_cancelled() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "acme", 1000);
    let job = tenant.create("job").unwrap();
    job.set_oom_group(true);
    assert!(job.oom_group() && !tenant.oom_group());
    let stage = job.create("stage").unwrap();
    let parts = [
        Query::holding(stage, "a", 10),
        Query::holding(stage, "b", 500),
        Query::holding(job, "c", 90),
    ];
    let other = Query::holding(tenant, "other", 400);
    let new = tenant.create("new").unwrap();
    new.request(550).oom().charge().map(drop).unwrap();
    assert!(parts.iter().all(|part| part.token.is_cancelled() && part.oom_kills() == 1));
    assert!(!other.token.is_cancelled());
    let events = tenant.events();
    assert_eq!((events.oom, events.oom_kill, events.oom_group_kill), (1, 3, 1));
    assert_eq!(job.local_events().oom_group_kill, 1);
    assert!(tenant.events().to_string().ends_with("oom 1\noom_kill 3\noom_group_kill 1\n"));
}

#[test]
fn a_victim_that_does_not_let_go_is_followed_by_another_when_its_time_is_up() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "acme", 1000);
    let group = tenant.create("stuck").unwrap();
    let stuck = CancelToken::new();
    let _victim = group.add_victim(&stuck);
    let _never = group.try_charge(600).unwrap();
    let next = Query::holding(tenant, "next", 300);
    let new = tenant.create("new").unwrap();
    let start = Instant::now();
    let granted = new.request(200).oom().charge().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300), "the first has its time");
    assert!(stuck.is_cancelled() && next.token.is_cancelled());
    assert_eq!(tenant.events().oom_kill, 2);
    drop(granted);
    // Without a victim left it waits like any other, and is refused in the end.
    let patience = Duration::from_millis(50);
    let refused = new.request(900).wait(patience).oom().charge().unwrap_err();
    assert_eq!((&*refused.group, refused.usage), ("/acme", 600));
    assert_eq!(tenant.events().oom, 2, "nothing is counted where nobody is chosen");
}

#[test]
fn nobody_outside_of_the_lowest_full_group_is_cancelled() {
    in_both_modes("nobody_outside_of_the_lowest_full_group_is_cancelled", || {
        let ledger = ledger();
        let machine = limited(ledger.root(), "machine", 1000);
        let acme = limited(machine, "acme", 500);
        let neighbour = Query::holding(machine, "neighbour", 500);
        let hoard = acme.try_charge(400).unwrap();
        let small = Query::holding(acme, "small", 100);
        let new = acme.create("new").unwrap();
        // Both are full. The tenant's own limit is in the way, so one of its own queries has to go.
        let granted = new.request(90).oom().charge().unwrap();
        assert!(small.token.is_cancelled() && !neighbour.token.is_cancelled());
        // Without a victim left in the tenant, none is cancelled: it would still be full.
        let patience = Duration::from_millis(50);
        let refused = new.request(90).wait(patience).oom().charge().unwrap_err();
        assert_eq!(refused.group, "/machine/acme");
        let refused = block_on(new.request(90).wait(patience).oom().into_future()).unwrap_err();
        assert_eq!(refused.group, "/machine/acme");
        assert!(!neighbour.token.is_cancelled());
        assert_eq!((machine.local_events().oom, acme.local_events().oom), (0, 1));
        drop((hoard, granted));
    });
}

#[test]
fn when_the_lowest_has_room_those_above_it_are_reclaimed_and_then_cancelled() {
    in_both_modes(
        "when_the_lowest_has_room_those_above_it_are_reclaimed_and_then_cancelled",
        || {
            let ledger = ledger();
            let machine = limited(ledger.root(), "machine", 1000);
            let acme = limited(machine, "acme", 500);
            let own = Query::holding(acme, "own", 450);
            let neighbour = Query::holding(machine, "neighbour", 300);
            let cache = machine.create("cache").unwrap();
            let cached = Arc::new(Mutex::new(vec![cache.try_charge(250).unwrap()]));
            let gives = cached.clone();
            let reclaimer = cache.add_reclaimer(0, move |_| {
                gives.lock().unwrap().drain(..).map(|charge| charge.units()).sum()
            });
            let new = acme.create("new").unwrap();
            // The tenant is full until its own query goes. Then the machine lacks 40, which its cache has.
            let granted = new.request(490).oom().charge().unwrap();
            assert!(own.token.is_cancelled() && cached.lock().unwrap().is_empty());
            assert_eq!(reclaimer.report().runs, 1);
            assert!(!neighbour.token.is_cancelled());
            assert_eq!((acme.local_events().oom, machine.local_events().oom), (1, 0));
            // When the cache has no more, one of the machine's victims is cancelled, since the tenant has room.
            let _rest = machine.create("rest").unwrap().try_charge(210).unwrap();
            drop(granted);
            let _rest = (acme.try_charge(100).unwrap(), cache.try_charge(390).unwrap());
            drop(new.request(300).oom().charge().unwrap());
            assert!(neighbour.token.is_cancelled());
            assert_eq!((acme.local_events().oom, machine.local_events().oom), (1, 1));
            assert_eq!(ledger.mistakes(), Mistakes::default());
        },
    );
}

#[test]
fn who_is_the_victim_itself_is_refused_at_once() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "acme", 1000);
    let small = Query::holding(tenant, "small", 100);
    let greedy = Query::holding(tenant, "greedy", 900);
    let start = Instant::now();
    // The callback releases its charges, but the request is still refused, since it is cancelled.
    let refused = greedy.group.request(500).wait(Duration::from_secs(100)).oom().charge();
    assert_eq!(refused.unwrap_err().reason, ledgerline::Reason::Cancelled);
    assert!(greedy.token.is_cancelled() && !small.token.is_cancelled());
    assert!(start.elapsed() < Duration::from_secs(50));
    drop(greedy.held.lock().unwrap());
}

#[test]
fn a_victim_that_waits_itself_is_woken_in_whichever_queue_it_waits() {
    // In the queue of an inner group, and in the very queue in which the other waits behind it.
    for (asks, inner_max) in [(360, 650), (750, 10_000)] {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "acme", 1000);
        let inner = limited(tenant, "inner", inner_max);
        let victim = inner.create(&unique("victim")).unwrap();
        let token = CancelToken::new();
        let _victim = victim.add_victim(&token);
        let long = Duration::from_secs(100);
        let [first, second] = [300, 300].map(|units| victim.try_charge(units).unwrap());
        std::thread::scope(|scope| {
            // It holds a charge without which it could never be served, and releases it when its wait ends.
            let stuck = |task: bool, held: Charge<'static>| {
                scope.spawn(move || {
                    let request = victim.request(asks).wait(long);
                    let refused = match task {
                        true => block_on(request.into_future()).unwrap_err(),
                        false => request.charge().unwrap_err(),
                    };
                    assert_eq!(refused.reason, ledgerline::Reason::Cancelled, "{refused}");
                    drop(held);
                })
            };
            // The first in the queue, and behind it a task.
            let waiting = [stuck(false, first), stuck(true, second)];
            std::thread::sleep(Duration::from_millis(50));
            let start = Instant::now();
            let other = tenant.create(&unique("other")).unwrap();
            other.request(700).wait(long).oom().charge().map(drop).unwrap();
            assert!(start.elapsed() < Duration::from_secs(50));
            waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
        });
        assert_eq!((tenant.precise(), tenant.events().oom_kill), (0, 1));
    }
}

#[test]
fn many_that_meet_the_limit_at_once_have_one_cancelled() {
    for _ in 0..times(30, 3000) {
        let ledger = ledger();
        let tenant = limited(ledger.root(), "acme", 1000);
        let queries: Vec<Query> =
            (0..10).map(|number| Query::holding(tenant, "query", 95 + number)).collect();
        // 995 are in use. Ten requests ask for 9 each: one of the victims makes room for all.
        let new = tenant.create("new").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| std::mem::forget(new.request(9).oom().charge().unwrap()));
            }
        });
        let cancelled: Vec<usize> =
            (0..10).filter(|&number| queries[number].token.is_cancelled()).collect();
        assert_eq!(cancelled, [9]);
    }
}

#[test]
fn a_score_of_the_programs_own_decides() {
    let ledger = ledger();
    let tenant = limited(ledger.root(), "acme", 1000);
    let [important, batch, panics] = ["important", "batch", "panics"].map(|name| {
        let group = tenant.create(name).unwrap();
        (group, CancelToken::new())
    });
    let _never = important.0.add_victim_scored(&important.1, |_| 0);
    let _first = batch.0.add_victim_scored(&batch.1, |units| units * 100);
    let _broken = panics.0.add_victim_scored(&panics.1, |_| panic!("in a score"));
    let held = Mutex::new(Some(batch.0.try_charge(50).unwrap()));
    important.0.try_charge_units(600).unwrap();
    panics.0.try_charge_units(300).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !batch.1.is_cancelled() {
                std::thread::yield_now();
            }
            held.lock().unwrap().take();
        });
        tenant.create(&unique("new")).unwrap().request(90).oom().charge().map(drop).unwrap();
    });
    assert!(!important.1.is_cancelled() && !panics.1.is_cancelled());
}

proptest! {
    #![proptest_config(crate::common::cases::few(file!(), 60))]

    /// The choice by two passes equals the choice by one exact look at all.
    #[test]
    fn the_choice_is_that_of_a_slow_obvious_one(
        held in proptest::collection::vec((0u64..400, 0u64..300, any::<bool>()), 1..12),
    ) {
        let ledger = ledger();
        let tenant = ledger.root().create("acme").unwrap();
        let queries: Vec<Query> = held
            .iter()
            .map(|&(units, low, gone)| {
                let query = Query::holding(tenant, "query", units);
                query.group.set_low(Limit::units(low));
                if gone {
                    query.held.lock().unwrap().clear();
                }
                query
            })
            .collect();
        let usage = |query: &Query| query.group.precise();
        let total: u64 = queries.iter().map(usage).sum();
        prop_assume!(total > 0);
        tenant.set_max(Limit::units(total)).unwrap();
        // Right below the full group, protection equals the setting.
        let above: Vec<u64> = queries
            .iter()
            .zip(&held)
            .map(|(query, (_, low, _))| usage(query).saturating_sub(*low))
            .collect();
        let most = *above.iter().max().unwrap();
        // Of equal ones, the last registered.
        let expected = above.iter().rposition(|&above| above == most).filter(|_| most > 0);
        let new = tenant.create("new").unwrap();
        let patience = Duration::from_millis(if expected.is_some() { 1000 } else { 5 });
        let granted = new.request(1).wait(patience).oom().charge();
        let cancelled: Vec<usize> =
            (0..queries.len()).filter(|&query| queries[query].token.is_cancelled()).collect();
        prop_assert_eq!(cancelled, Vec::from_iter(expected));
        prop_assert_eq!(granted.is_ok(), expected.is_some());
    }
}

//! Waiting in futures: woken, in order, dropped at any time; by units, by events, by time.

mod common;

use common::{LONG, in_both_modes, limited, tasks::block_on};
use ledgerline::{Ledger, Mistakes, Reason};
use std::future::{Future, IntoFuture};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// A task that waits in a queue.
type Waiting<'l> = std::pin::Pin<Box<ledgerline::Requested<'l>>>;

#[test]
fn no_task_is_forgotten_among_tasks_and_threads() {
    in_both_modes("no_task_is_forgotten_among_tasks_and_threads", || {
        const MAX: u64 = 1000;
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", MAX);
        let granted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..8u64 {
                let (tenant, granted) = (&tenant, &granted);
                scope.spawn(move || {
                    let query = limited(*tenant, "query", 600);
                    for round in 0..common::times(500, 50_000) {
                        let units = 1 + (round * 7919 + number * 104_729) % 600;
                        let request = query.request(units).wait(LONG);
                        let charge = if number % 3 == 0 {
                            request.charge().expect("a thread was forgotten")
                        } else {
                            block_on(request.into_future()).expect("a task was forgotten")
                        };
                        let in_use = granted.fetch_add(units, SeqCst) + units;
                        assert!(in_use <= MAX, "{in_use}");
                        if round % 8 == 0 {
                            std::thread::yield_now();
                        }
                        granted.fetch_sub(units, SeqCst);
                        drop(charge);
                    }
                    query.destroy().unwrap();
                });
            }
        });
        assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

#[test]
fn tasks_are_served_in_the_order_in_which_they_came_and_one_that_is_dropped_is_passed() {
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
    let tenant = limited(ledger.root(), "tenant", 100);
    let all = tenant.try_charge(100).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut polled = |units| {
        let mut request = Box::pin(tenant.request(units).wait(LONG).into_future());
        assert!(request.as_mut().poll(&mut context).is_pending());
        request
    };
    let (first, second, third) = (polled(60), polled(100), polled(10));
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let serve = |number: u32, request: Waiting<'static>| {
            let served = &served;
            scope.spawn(move || {
                let charge = block_on(request);
                served.lock().unwrap().push((number, charge.is_ok()));
                std::thread::sleep(Duration::from_millis(20));
                drop(charge);
            })
        };
        // The first gives up: those behind it are not held up by it.
        drop(first);
        let third = serve(3, third);
        let second = serve(2, second);
        std::thread::sleep(Duration::from_millis(50));
        assert!(served.lock().unwrap().is_empty());
        drop(all);
        second.join().unwrap();
        third.join().unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), [(2, true), (3, true)]);
    assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

#[test]
fn a_task_is_refused_when_its_time_is_up_or_no_waiting_helps() {
    let ledger = Ledger::new().unwrap();
    let tenant = limited(ledger.root(), "tenant", 100);
    let all = tenant.try_charge(100).unwrap();
    let start = Instant::now();
    let patience = Duration::from_millis(60);
    let refused = block_on(tenant.request(1).wait(patience).into_future()).unwrap_err();
    assert!(start.elapsed() >= patience);
    assert_eq!((refused.reason, refused.limit), (Reason::Limit, 100));
    let never = block_on(tenant.request(101).wait(LONG).into_future()).unwrap_err();
    assert_eq!(never.requested, 101);
    let at_once = block_on(tenant.request(1).into_future()).unwrap_err();
    assert_eq!(at_once.usage, 100);
    // The group goes away under it.
    let part = tenant.create("part").unwrap();
    let gone = std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| block_on(part.request(1).wait(LONG).into_future()).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        part.destroy().unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(gone.reason, Reason::Gone);
    drop(all);
    // A future that is never polled charges nothing and holds nobody up.
    drop(tenant.request(100).wait(LONG).into_future());
    block_on(tenant.request(100).wait(LONG).into_future()).map(drop).unwrap();
}

#[test]
fn a_task_that_watches_sees_the_count_that_woke_it() {
    in_both_modes("a_task_that_watches_sees_the_count_that_woke_it", || {
        let rounds = common::times(500, 50_000);
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let query = limited(tenant, "query", 10);
        let told = AtomicU64::new(0);
        let watch = tenant.watch().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    query.try_charge_units(11).unwrap_err();
                    let end = Instant::now() + LONG;
                    while told.load(SeqCst) < round {
                        assert!(Instant::now() < end, "the task was not woken");
                        std::hint::spin_loop();
                    }
                }
            });
            for round in 1..=rounds {
                let events = block_on(watch.changed());
                assert_eq!(events.max, round);
                told.store(round, SeqCst);
            }
        });
    });
}

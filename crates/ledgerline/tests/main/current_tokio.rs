//! Tasks of tokio have their group at each poll, whichever worker polls them, and leave the worker its own.

use ledgerline::current::future::ChargeTo;
use ledgerline::current::tokio::{JoinSetExt, spawn, spawn_blocking, spawn_local};
use ledgerline::{Group, Ledger, Reason, current};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, LocalSet, yield_now};

fn ledger() -> &'static Ledger {
    Ledger::builder().capacity(256).anonymous().unwrap().into_static()
}

fn group(name: &str) -> Group<'static> {
    ledger().root().create(name).unwrap()
}

fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_time().build().unwrap()
}

/// Notes the group in which it is dropped.
struct Drops(Arc<Mutex<Vec<Option<Group<'static>>>>>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(current::group());
    }
}

/// Holds a charge across each of its polls, and sees its group in each.
async fn query(group: Group<'static>, polls: usize) -> HashSet<std::thread::ThreadId> {
    let mut threads = HashSet::new();
    for poll in 0..polls {
        assert_eq!(current::group(), Some(group));
        threads.insert(std::thread::current().id());
        let held = current::try_charge(100).unwrap().expect("a group is current");
        yield_now().await;
        assert_eq!(held.group(), group);
        if poll % 16 == 0 {
            let child = spawn(async { current::group() });
            assert_eq!(child.await.unwrap(), Some(group), "a child inherits");
        }
    }
    threads
}

#[test]
fn tasks_that_wander_between_workers_are_charged_to_their_groups_and_to_no_other() {
    let ledger = ledger();
    let runtime = workers(4);
    let groups: Vec<Group<'static>> =
        (0..100).map(|number| ledger.root().create(&number.to_string()).unwrap()).collect();
    let threads = runtime.block_on(async {
        let tasks: Vec<_> =
            groups.iter().map(|&group| tokio::spawn(query(group, 200).charged_to(group))).collect();
        let mut threads = Vec::new();
        for task in tasks {
            threads.push(task.await.unwrap().len());
        }
        threads
    });
    assert!(threads.iter().any(|&threads| threads > 1), "no task wandered: the test says nothing");
    for group in &groups {
        assert_eq!(group.precise(), 0);
        assert!(group.peak().value >= 100, "{:?}", group.peak());
        assert!(group.destroy().unwrap().charges >= 200);
    }
    // Each worker is without a group again.
    runtime.block_on(async {
        for _ in 0..100 {
            assert_eq!(tokio::spawn(async { current::group() }).await.unwrap(), None);
        }
    });
}

#[test]
fn a_task_that_is_aborted_is_dropped_in_its_group() {
    let (query, dropped) = (group("query"), Arc::default());
    let drops = Drops(Arc::clone(&dropped));
    workers(2).block_on(async {
        let (told, hears) = tokio::sync::oneshot::channel();
        let task = query.scope(|| {
            spawn(async move {
                let _drops = drops;
                let _held = current::try_charge(1 << 20).unwrap();
                told.send(()).unwrap();
                std::future::pending::<()>().await;
            })
        });
        hears.await.unwrap();
        assert_eq!(query.precise(), 1 << 20);
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    });
    assert_eq!(*dropped.lock().unwrap(), [Some(query)]);
    assert_eq!(query.precise(), 0);
}

#[test]
fn a_task_that_panics_returns_what_it_held_and_leaves_the_worker_its_own() {
    let query = group("query");
    let runtime = workers(1);
    runtime.block_on(async {
        let task = query.scope(|| {
            spawn(async {
                let _held = current::try_charge(1 << 20).unwrap();
                yield_now().await;
                std::panic::resume_unwind(Box::new("in the task"));
            })
        });
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(tokio::spawn(async { current::group() }).await.unwrap(), None, "the one worker");
    });
    assert_eq!(query.precise(), 0);
}

#[test]
fn a_set_of_tasks_inherits_and_what_it_drops_is_dropped_in_the_group() {
    let (query, dropped) = (group("query"), Arc::default());
    let runtime = workers(2);
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        query.scope(|| {
            for _ in 0..50 {
                tasks.spawn_inheriting(async { current::group() });
                tasks.spawn_blocking_inheriting(current::group);
            }
        });
        tasks.spawn(async { current::group() });
        let mut seen = Vec::new();
        while let Some(task) = tasks.join_next().await {
            seen.push(task.unwrap());
        }
        assert_eq!(seen.iter().filter(|&&seen| seen == Some(query)).count(), 100);
        assert_eq!(
            seen.iter().filter(|&&seen| seen.is_none()).count(),
            1,
            "tokio's own inherits nothing"
        );
        query.scope(|| {
            let drops = Drops(Arc::clone(&dropped));
            tasks.spawn_inheriting(async move {
                let _drops = drops;
                std::future::pending().await
            });
        });
        tasks.shutdown().await;
    });
    assert_eq!(*dropped.lock().unwrap(), [Some(query)]);
}

#[test]
fn blocking_work_and_local_tasks_inherit() {
    let (query, other) = (group("query"), group("other"));
    let runtime = Builder::new_current_thread().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let _entered = query.scope(|| spawn_blocking(current::group));
        assert_eq!(_entered.await.unwrap(), Some(query));
        let polls = std::rc::Rc::new(AtomicUsize::new(0));
        let mut set = JoinSet::new();
        for group in [query, other] {
            let polls = polls.clone();
            group.scope(|| {
                set.spawn_local_inheriting(async move {
                    for _ in 0..100 {
                        assert_eq!(current::group(), Some(group));
                        polls.fetch_add(1, Relaxed);
                        yield_now().await;
                    }
                })
            });
        }
        while let Some(task) = set.join_next().await {
            task.unwrap();
        }
        assert_eq!(polls.load(Relaxed), 200);
        let local = query.scope(|| spawn_local(async { current::group() }));
        assert_eq!(local.await.unwrap(), Some(query));
    });
}

#[test]
fn select_drops_the_loser_in_its_group_and_a_timeout_returns_its_units() {
    let (query, dropped) = (group("query"), Arc::default());
    workers(2).block_on(async {
        let endless = |drops: Drops| {
            let task = async move {
                let _held = (drops, current::try_charge(4096).unwrap());
                assert_eq!(query.precise(), 4096);
                std::future::pending::<()>().await;
            };
            task.charged_to(query)
        };
        let loser = endless(Drops(Arc::clone(&dropped)));
        tokio::select! {
            biased;
            () = loser => unreachable!("it never ends"),
            () = yield_now() => assert_eq!(query.precise(), 0),
        }
        let late = endless(Drops(Arc::clone(&dropped)));
        assert!(tokio::time::timeout(Duration::from_millis(5), late).await.is_err());
        assert_eq!(current::group(), None);
    });
    assert_eq!(*dropped.lock().unwrap(), [Some(query); 2]);
    assert_eq!(query.precise(), 0);
}

#[test]
fn a_task_that_outlives_its_group_is_refused_and_its_charges_stay_with_the_ancestors() {
    let ledger = ledger();
    let tenant = ledger.root().create("tenant").unwrap();
    let query = tenant.create("query").unwrap();
    let (destroyed, hears) = tokio::sync::oneshot::channel::<()>();
    workers(2).block_on(async {
        let (told, holds) = tokio::sync::oneshot::channel();
        let task = async move {
            let held = current::try_charge(1000).unwrap();
            told.send(()).unwrap();
            hears.await.unwrap();
            assert_eq!(current::group(), Some(query), "it stays current");
            (held, current::try_charge(1).unwrap_err(), current::charge(1).unwrap_err())
        };
        let task = tokio::spawn(task.charged_to(query));
        holds.await.unwrap();
        assert_eq!(query.destroy().unwrap().leftover, 1000);
        // The row's next group is not charged.
        let next = tenant.create("next").unwrap();
        destroyed.send(()).unwrap();
        let (held, refused, over) = task.await.unwrap();
        assert_eq!((refused.reason, over.reason), (Reason::Gone, Reason::Gone));
        assert_eq!((refused.charged, refused.requested), (query.id(), 1));
        assert_eq!((tenant.precise(), next.precise()), (1000, 0));
        drop(held);
        assert_eq!(tenant.precise(), 0);
    });
}

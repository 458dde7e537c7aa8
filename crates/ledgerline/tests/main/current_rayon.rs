//! Jobs of rayon run in the group of their creator, including stolen jobs.

use ledgerline::current::rayon::{self as ours, ScopeExt, ThreadPoolExt};
use ledgerline::{Group, Ledger, current};
use rayon::prelude::*;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, mpsc};

fn groups<const N: usize>() -> [Group<'static>; N] {
    let ledger = Ledger::builder().capacity(16).anonymous().unwrap().into_static();
    std::array::from_fn(|number| ledger.root().create(&number.to_string()).unwrap())
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// Halves the range until one is left.
fn each(
    range: std::ops::Range<usize>,
    group: Group<'static>,
    seen: &AtomicUsize,
    moved: &AtomicUsize,
) {
    assert_eq!(current::group(), Some(group));
    if range.len() == 1 {
        let _held = current::try_charge(64).unwrap().expect("a group is current");
        seen.fetch_add(1, Relaxed);
        return;
    }
    let middle = range.start + range.len() / 2;
    let from = rayon::current_thread_index();
    ours::join(
        || each(range.start..middle, group, seen, moved),
        || {
            if rayon::current_thread_index() != from {
                moved.fetch_add(1, Relaxed);
            }
            each(middle..range.end, group, seen, moved);
        },
    );
    // While it waited, the worker may have run other jobs.
    assert_eq!(current::group(), Some(group));
}

#[test]
fn each_of_100_000_jobs_sees_its_group_while_eight_groups_share_a_pool() {
    let groups: [Group<'static>; 8] = groups();
    let (pool, seen, moved) = (pool(4), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for group in groups {
            let (pool, seen, moved) = (&pool, &seen, &moved);
            scope.spawn(move || {
                group.scope(|| pool.install_inheriting(|| each(0..12_500, group, seen, moved)));
            });
        }
    });
    assert_eq!(seen.load(Relaxed), 100_000);
    assert!(moved.load(Relaxed) > 0, "no job was stolen: the test says nothing");
    assert!(groups.iter().all(|group| group.precise() == 0));
    assert!(pool.broadcast(|_| current::group()).iter().all(Option::is_none));
}

#[test]
fn each_item_of_a_parallel_iterator_sees_its_group() {
    let groups: [Group<'static>; 8] = groups();
    let pool = pool(4);
    std::thread::scope(|scope| {
        for group in groups {
            let pool = &pool;
            scope.spawn(move || {
                let _entered = group.enter();
                let sum: usize = pool.install(current_sum(group));
                assert_eq!(sum, 12_500 * 12_499 / 2);
            });
        }
    });
    assert!(pool.broadcast(|_| current::group()).iter().all(Option::is_none));
}

/// Returns a closure that sums numbers, and checks for each that the caller's group is current.
fn current_sum(group: Group<'static>) -> impl FnOnce() -> usize + Send {
    let here = current::get();
    let same = current::inherit(move |number: usize| {
        assert_eq!(current::group(), Some(group));
        number
    });
    move || {
        (0..12_500).into_par_iter().map(same).reduce(
            || 0,
            |a, b| {
                here.scope(|| {
                    assert_eq!(current::group(), Some(group));
                    a + b
                })
            },
        )
    }
}

#[test]
fn a_worker_that_waits_runs_a_job_of_another_group_and_comes_back_to_its_own() {
    let [waits, other] = groups();
    // One worker, so that queued jobs run on top of the one that waits.
    let pool = pool(1);
    let (told, hears) = mpsc::channel();
    waits.scope(|| {
        pool.install_inheriting(|| {
            rayon::scope(|_| {
                other.scope(|| {
                    let told = told.clone();
                    ours::spawn(move || told.send(("inherits", current::group())).unwrap());
                });
                let plain = told.clone();
                rayon::spawn(move || plain.send(("says nothing", current::group())).unwrap());
                while rayon::yield_now() == Some(rayon::Yield::Executed) {}
                assert_eq!(current::group(), Some(waits));
            });
        });
    });
    let mut seen: Vec<_> = hears.try_iter().collect();
    seen.sort_by_key(|(what, _)| *what);
    // The second is the hazard that the documentation names.
    assert_eq!(seen, [("inherits", Some(other)), ("says nothing", Some(waits))]);
}

#[test]
fn jobs_of_a_scope_inherit_from_whom_they_were_spawned_by() {
    let [outer, inner] = groups();
    let pool = pool(2);
    let (both, count) = (Barrier::new(2), AtomicUsize::new(0));
    pool.install(|| {
        outer.scope(|| {
            ours::scope(|s| {
                assert_eq!(current::group(), Some(outer));
                s.spawn_inheriting(|s| {
                    assert_eq!(current::group(), Some(outer));
                    inner.scope(|| {
                        s.spawn_inheriting(|_| {
                            assert_eq!(current::group(), Some(inner));
                            both.wait();
                            count.fetch_add(1, Relaxed);
                        });
                    });
                });
                // On the other worker at the same time.
                s.spawn_inheriting(|_| {
                    both.wait();
                    assert_eq!(current::group(), Some(outer));
                    count.fetch_add(1, Relaxed);
                });
            });
        });
        assert_eq!(current::group(), None);
    });
    assert_eq!(count.load(Relaxed), 2);
}

#[test]
fn a_job_that_panics_leaves_the_worker_its_own() {
    let [group] = groups();
    let pool = pool(1);
    let unwound = std::panic::catch_unwind(AssertUnwindSafe(|| {
        group.scope(|| {
            pool.install_inheriting(|| std::panic::resume_unwind(Box::new("in the job")))
        });
    }));
    assert!(unwound.is_err());
    assert_eq!(pool.install(current::group), None);
    let (told, hears) = mpsc::channel();
    group.scope(|| pool.spawn_inheriting(move || told.send(current::group()).unwrap()));
    assert_eq!(hears.recv().unwrap(), Some(group));
}

//! A limit ends the work that met it, on every thread that the work uses, and nothing else.

use crate::common::{again, ran_alone};
use ledgerline::{Group, Ledger, Limit, Refused, alloc, current};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const MAX: u64 = 1 << 20;

fn groups<const N: usize>() -> [Group<'static>; N] {
    let ledger = Ledger::builder().capacity(64).anonymous().unwrap().into_static();
    std::array::from_fn(|number| {
        let group = ledger.root().create(&format!("g{number}")).unwrap();
        group.set_max(Limit::units(MAX)).unwrap();
        group
    })
}

/// Grows without end unless a checkpoint ends it.
fn runaway() -> usize {
    let mut rows = Vec::new();
    for _ in 0..100_000 {
        alloc::checkpoint();
        rows.push([0u8; 4096].to_vec());
    }
    rows.len()
}

fn is_refusal(payload: Box<dyn std::any::Any + Send>) -> bool {
    payload.downcast::<Refused>().is_ok()
}

#[test]
fn a_thread_that_work_spawned_ends_with_the_refusal_and_so_does_the_work() {
    let [group] = groups();
    let mut of_thread = None;
    let result = group.catch(|| {
        let ended = current::spawn(runaway).join();
        of_thread = Some(ended.map_err(is_refusal));
    });
    assert_eq!(result.unwrap_err().group, "/g0");
    assert_eq!(of_thread, Some(Err(true)), "its handle returns the refusal");
    assert_eq!((group.precise(), group.max_events()), (0, 1));
}

#[test]
fn a_part_that_outlives_its_catch_still_ends_and_the_next_catch_is_another_work() {
    let [group] = groups();
    let (begun, go) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|threads| {
        let mut part = None;
        let refused = group.catch(|| {
            let work = current::inherit_once(|| {
                begun.wait();
                go.wait();
                runaway()
            });
            part = Some(threads.spawn(work));
            begun.wait();
            drop(vec![0u8; 2 * MAX as usize]);
        });
        assert!(refused.is_err());
        assert_eq!(group.catch(alloc::checkpoint).map_err(|_| ()), Ok(()));
        go.wait();
        let payload = part.unwrap().join().unwrap_err();
        assert!(is_refusal(payload));
    });
    assert_eq!(group.precise(), 0);
}

#[test]
fn a_panicking_thread_charges_nobody_for_its_message_and_its_backtrace() {
    const NAME: &str = "a_panicking_thread_charges_nobody_for_its_message_and_its_backtrace";
    const CHILD: &str = "LEDGERLINE_TEST_BACKTRACE";
    if std::env::var_os(CHILD).is_none() {
        let output = again(NAME).env(CHILD, "1").env("RUST_BACKTRACE", "1").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.contains("stack backtrace"), "{stderr}");
        return;
    }
    let [group] = groups();
    let panicked = catch_unwind(AssertUnwindSafe(|| group.catch(|| panic!("a bug in the query"))));
    assert!(panicked.map(|_: Result<(), _>| ()).is_err());
    // At most the content of the thread's cache when it panicked; the table of symbols has tens of megabytes.
    assert!(group.precise() <= 64 << 10, "{}", group.precise());
    assert!(group.peak().value <= 128 << 10, "{:?}", group.peak());
}

#[test]
fn after_the_warm_up_a_backtrace_without_a_panic_leaves_little_charged() {
    if ran_alone("after_the_warm_up_a_backtrace_without_a_panic_leaves_little_charged") {
        return;
    }
    ledgerline::warm_up();
    let [group] = groups();
    group.set_max(Limit::MAX).unwrap();
    let words = group.scope(|| std::backtrace::Backtrace::force_capture().to_string());
    assert!(words.contains("after_the_warm_up"), "{words}");
    drop(words);
    // Without it this is several megabytes, or tens of megabytes in a larger program.
    assert!(group.precise() < 1 << 20, "{}", group.precise());
}

#[test]
fn what_the_machine_cannot_serve_shows_in_no_peak_and_ends_no_work() {
    let [group] = groups();
    let result = group.catch(|| {
        let mut fresh = Vec::<u8>::new();
        assert!(fresh.try_reserve_exact(100 << 40).is_err());
        let mut grown = vec![1u8; 1000];
        assert!(grown.try_reserve_exact(100 << 40).is_err());
        assert_eq!(alloc::last_refusal(), None);
        grown.len()
    });
    assert_eq!(result.unwrap(), 1000);
    assert!(group.peak().value < MAX && group.ledger().root().peak().value < MAX);
    assert_eq!(group.max_events(), 0);
}

#[test]
fn what_is_unattributed_is_nobodys_and_the_work_still_ends() {
    let [group] = groups();
    let result = group.catch(|| {
        let kept = current::unattributed(|| vec![0u8; 4 * MAX as usize]);
        assert_eq!(group.precise(), 0);
        drop(vec![0u8; 2 * MAX as usize]);
        current::unattributed(alloc::checkpoint);
        unreachable!("{}", kept.len());
    });
    result.unwrap_err();
}

/// Imitates code that unwraps the result of a part.
#[test]
fn a_panic_of_work_that_was_refused_is_its_refusal() {
    let [group] = groups();
    let part = || drop(vec![0u8; 2 * MAX as usize]);
    let result = group.catch(|| {
        part();
        std::panic::resume_unwind(Box::new("of the part's result"));
    });
    assert_eq!(result.unwrap_err().group, "/g0");
    let mut task = std::pin::pin!(group.catch_future(async {
        part();
        std::panic::resume_unwind(Box::new("of the part's result"));
    }));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(result) = task.as_mut().poll(&mut context) else { panic!() };
    assert_eq!(result.unwrap_err().group, "/g0");
    assert_eq!((group.precise(), group.max_events()), (0, 2));
}

#[test]
fn a_fiber_has_its_own_work_while_it_runs() {
    let [a, b] = groups();
    let result = a.catch(|| {
        drop(vec![0u8; 2 * MAX as usize]);
        let scheduler = current::swap(b.into());
        // The fiber is in no catch.
        alloc::checkpoint();
        let fiber = current::swap(scheduler);
        assert_eq!(fiber.group(), Some(b));
        alloc::checkpoint();
    });
    assert_eq!(result.unwrap_err().group, "/g0");
}

/// A reclaimer has privileges. A job that its thread runs for others meanwhile does not.
#[test]
fn a_job_on_top_of_a_reclaimer_is_not_a_reclaimer() {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let [full, other] = ["full", "other"].map(|name| ledger.root().create(name).unwrap());
    for group in [full, other] {
        group.set_max(Limit::units(100)).unwrap();
    }
    static ASKED: AtomicBool = AtomicBool::new(false);
    let _others = other.add_reclaimer(0, move |_| {
        ASKED.store(true, SeqCst);
        0
    });
    let filled = other.try_charge(100).unwrap();
    let theirs = current::inherit(move |()| other.try_charge(1).is_err());
    let _reclaimer = full.add_reclaimer(0, move |_| {
        assert!(other.try_charge(1).is_err(), "a reclaimer asks no other");
        assert!(!ASKED.load(SeqCst));
        assert!(theirs(()));
        0
    });
    let held = full.try_charge(100).unwrap();
    assert!(full.try_charge(1).is_err());
    assert!(ASKED.load(SeqCst), "a job of others reclaims as ever");
    drop((held, filled));
}

#[cfg(feature = "rayon")]
mod on_rayon {
    use super::*;
    use ledgerline::current::rayon as ours;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Returns some rows of a query that is within its limit.
    fn rows() -> usize {
        let row = |_| {
            alloc::checkpoint();
            vec![0u8; 100]
        };
        (0..10).map(row).collect::<Vec<_>>().len()
    }

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    #[test]
    fn both_halves_of_a_join_end_and_the_pool_lives() {
        let [group] = groups();
        let pool = pool(2);
        let result = pool.install(|| group.catch(|| ours::join(runaway, runaway)));
        assert_eq!(result.unwrap_err().group, "/g0");
        assert_eq!((pool.install(|| 7), group.max_events()), (7, 1));
    }

    /// One worker waits inside the catch of A, whose query is refused, and runs the job of B on top of its stack.
    #[test]
    fn a_stolen_job_of_another_query_is_not_ended_by_the_query_below_it() {
        let [a, b] = groups();
        let pool = pool(1);
        let (send, receive) = mpsc::channel();
        let job = b.scope(|| {
            current::inherit_once(move || {
                let rows: Vec<_> = (0..10)
                    .map(|_| {
                        alloc::checkpoint();
                        vec![0u8; 100]
                    })
                    .collect();
                send.send(rows.len()).unwrap();
            })
        });
        let of_a = pool.install(|| {
            a.catch(|| {
                drop(vec![0u8; 3 * MAX as usize]);
                rayon::spawn(job);
                while let Some(rayon::Yield::Executed) = rayon::yield_now() {}
            })
        });
        assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(10));
        assert_eq!(of_a.unwrap_err().group, "/g0");
        assert_eq!(b.max_events(), 0);
    }

    /// Imitates a job that a server spawns: it does not name its group, and begins with its own catch.
    #[test]
    fn a_catch_on_top_of_anothers_stack_is_not_ended_by_that() {
        let [a, b] = groups();
        let pool = pool(1);
        let (send, receive) = mpsc::channel();
        let task = move || {
            use futures::FutureExt;
            use ledgerline::current::future::ChargeTo;
            async move { rows() }.charged_to(b).now_or_never()
        };
        let job = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| (b.catch(rows).ok(), task())));
            send.send(ended.ok()).unwrap();
        };
        let of_a = pool.install(|| {
            a.catch(|| {
                drop(vec![0u8; 3 * MAX as usize]);
                rayon::spawn(job);
                while let Some(rayon::Yield::Executed) = rayon::yield_now() {}
            })
        });
        assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(Some((Some(10), Some(10)))));
        assert_eq!(of_a.unwrap_err().group, "/g0");
    }

    #[test]
    fn a_reclaimer_and_what_it_begins_are_not_ended_by_the_work_that_asks_for_room() {
        let [a, b] = groups();
        static ENDED: AtomicBool = AtomicBool::new(false);
        let _reclaimer = a.add_reclaimer(0, move |_| {
            assert_eq!((rows(), b.catch(rows).ok()), (10, Some(10)));
            ENDED.store(true, SeqCst);
            0
        });
        let _held = a.try_charge(MAX / 2).unwrap();
        let of_a = a.catch(|| {
            drop(vec![0u8; 3 * MAX as usize]);
            a.try_charge(MAX - MAX / 4).map(drop).is_err()
        });
        assert_eq!(of_a.unwrap_err().group, "/g0");
        assert!(ENDED.load(SeqCst));
    }

    #[test]
    fn a_job_in_the_pool_that_is_refused_ends_without_the_pools_panic_handler() {
        let [group] = groups();
        let pool = pool(2);
        let (send, receive) = mpsc::channel::<()>();
        let result = pool.install(move || {
            group.catch(move || {
                // Dropped when the job ends.
                ours::spawn(move || {
                    let _send = send;
                    runaway();
                });
                receive.recv_timeout(Duration::from_secs(60)).unwrap_err()
            })
        });
        assert_eq!(result.unwrap_err().group, "/g0");
        assert_eq!(pool.install(|| 7), 7);
    }
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use super::*;
    use ledgerline::current::future::ChargeTo;
    use ledgerline::current::tokio as ours;
    use std::time::Duration;
    use tokio::runtime::{Builder, Runtime};

    fn runtimes() -> [Runtime; 2] {
        let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        [threads, Builder::new_current_thread().enable_all().build().unwrap()]
    }

    #[test]
    fn spawned_tasks_and_blocking_work_end_with_their_request() {
        for runtime in runtimes() {
            let [group] = groups();
            let handles = std::sync::Mutex::new(Vec::new());
            let result = runtime.block_on(group.catch_future(async {
                let task = ours::spawn(async { runaway() }).await;
                let blocking = ours::spawn_blocking(runaway).await;
                handles.lock().unwrap().extend([task.map(drop), blocking.map(drop)]);
                std::future::pending::<()>().await;
            }));
            assert_eq!(result.unwrap_err().group, "/g0");
            assert_eq!(group.max_events(), 1, "one request is refused once");
            for ended in handles.into_inner().unwrap() {
                assert!(is_refusal(ended.unwrap_err().into_panic()));
            }
        }
    }

    #[test]
    fn a_set_of_tasks_ends_with_its_request() {
        use ledgerline::current::tokio::JoinSetExt;
        for runtime in runtimes() {
            let [group] = groups();
            let result = runtime.block_on(group.catch_future(async {
                let mut tasks = tokio::task::JoinSet::new();
                tasks.spawn_inheriting(async { runaway() });
                tasks.spawn_blocking_inheriting(runaway);
                let mut refused = 0;
                while let Some(ended) = tasks.join_next().await {
                    refused += u32::from(is_refusal(ended.unwrap_err().into_panic()));
                }
                assert_eq!(refused, 2);
            }));
            assert_eq!(result.unwrap_err().group, "/g0");
        }
    }

    #[test]
    fn a_loop_that_neither_polls_nor_checks_ends_at_its_next_poll() {
        for runtime in runtimes() {
            let [group] = groups();
            let result = runtime.block_on(group.catch_future_within(64 << 20, async {
                let rows: Vec<_> = (0..5000).map(|_| vec![0u8; 1000]).collect();
                tokio::task::yield_now().await;
                unreachable!("{}", rows.len());
            }));
            assert_eq!(result.unwrap_err().group, "/g0");
            assert_eq!(group.precise(), 0);
        }
    }

    #[test]
    fn a_task_of_others_that_a_runtime_runs_on_top_of_a_catch_is_not_in_it() {
        let [a, b] = groups();
        let [_, runtime] = runtimes();
        let theirs = runtime.spawn(
            async {
                alloc::checkpoint();
                tokio::time::sleep(Duration::from_millis(1)).await;
                alloc::checkpoint();
                vec![0u8; 100].len()
            }
            .charged_to(b),
        );
        let mut of_b = None;
        let of_a = a.catch(|| {
            drop(vec![0u8; 2 * MAX as usize]);
            of_b = Some(runtime.block_on(theirs));
        });
        assert_eq!(of_a.unwrap_err().group, "/g0");
        assert_eq!(of_b.unwrap().unwrap(), 100);
    }

    #[test]
    fn a_task_that_was_put_into_the_group_before_is_a_part_of_the_catch_that_awaits_it() {
        let [group] = groups();
        let [_, runtime] = runtimes();
        let handler = async { runaway() }.charged_to(group);
        assert!(runtime.block_on(group.catch_future(handler)).is_err());
        assert_eq!(group.precise(), 0);
    }

    /// Follows the advice of docs/faq.md for tests that expect zero.
    #[test]
    fn a_runtime_that_did_the_same_for_nobody_before_leaves_nothing_charged() {
        let [group] = groups();
        let [_, runtime] = runtimes();
        let work = || async {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            ours::spawn(async { tokio::task::yield_now().await }).await.unwrap();
        };
        runtime.block_on(work().charged_to(current::Current::NOBODY));
        for _ in 0..3 {
            runtime.block_on(work().charged_to(group));
            assert_eq!(group.precise(), 0);
        }
        assert!(group.peak().value > 0, "it was charged");
    }

    #[test]
    fn outside_of_a_catch_tasks_go_over_the_limit_and_the_runtime_lives() {
        for runtime in runtimes() {
            let [group] = groups();
            let work = || vec![1u8; 3 * MAX as usize].len();
            let task = runtime.spawn(async move { work() }.charged_to(group));
            assert_eq!(runtime.block_on(task).unwrap(), 3 * MAX as usize);
            assert_eq!((group.precise(), group.max_events()), (0, 1));
        }
    }
}

#[cfg(feature = "futures")]
mod of_streams {
    use super::*;
    use futures::Stream;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
        match Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(item) => item,
            Poll::Pending => unreachable!("its items are there"),
        }
    }

    #[test]
    fn a_stream_that_is_refused_ends_with_the_refusal() {
        let [group] = groups();
        let mut rows = Vec::new();
        let items = (0..100).map(|number| (number, vec![0u8; 64 << 10]));
        let mut body = group.catch_stream(futures::stream::iter(items));
        let mut items = 0;
        let refused = loop {
            match next(&mut body).expect("a refusal is the last item") {
                Ok(item) => {
                    assert_eq!(item.0, items);
                    items += 1;
                    rows.push(item);
                }
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused.group.as_str(), items), ("/g0", 16));
        assert!(next(&mut body).is_none());
        drop(rows);
        assert_eq!(group.precise(), 0);
    }
}

#[cfg(feature = "tracing")]
#[test]
fn a_span_that_work_makes_is_a_part_of_it() {
    use tracing_subscriber::prelude::*;
    let [group] = groups();
    let layer = current::tracing::GroupLayer::new("tenant", move |_: &str| Some(group));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        let result = group.catch(|| {
            let span = tracing::info_span!("request", tenant = "g0");
            span.in_scope(runaway)
        });
        assert_eq!(result.unwrap_err().group, "/g0");
    });
}

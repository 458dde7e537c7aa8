//! The suite `task` measures the cost that a task's group adds to a poll.

use super::loops::{UNROLLED, four_times};
use super::rounds::{Made, Run, Work};
use super::row::{Row, Rows, thousandths};
use super::suite::{Suite, names};
use crate::measure::padded::Padded;
use ledgerline::current::future::ChargeTo;
use ledgerline::current::tracing::GroupLayer;
use ledgerline::{Group, Ledger};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::runtime::{Builder, Runtime};
use tracing::dispatcher::{self, Dispatch};
use tracing::{Instrument, info_span};
use tracing_subscriber::prelude::*;

pub(super) static TASK: Suite =
    Suite { name: "task", help: HELP, cases: &names(&CASES), measure, remark };

const HELP: &str = "\
Cases (figures are nanoseconds a poll and thread):
  atomic_add          for comparison: an addition to an atomic that no other
                      thread uses
  poll                poll a task that does next to nothing
  poll_charged        the same task in a group (charged_to)
  poll_scope          the same, polled within Group::scope
  poll_groups8        eight tasks in eight groups, polled in turn
  poll_span           for comparison: the task in a span of tracing, in a registry
  poll_span_group     ... whose layer maps the span's field to a group
  tokio_yield         two tasks of tokio take turns on one thread
  tokio_yield_charged ... each in a group of its own

added_ns is what a case takes more than the same without a group: poll, poll_span or
tokio_yield. No case has units to flush at a switch: they lie in the cells of CPUs.

Examples:
  ledgerline bench task
  ledgerline bench task --threads 1 --mode rseq --cases poll,poll_charged";

/// Makes a case for a number of threads.
type Make = fn(usize) -> Made<Work<'static>>;

const CASES: [(&str, Make); 9] = [
    ("atomic_add", |threads| {
        let own: Vec<Padded<AtomicU64>> = (0..threads).map(|_| Padded::default()).collect();
        Ok((UNROLLED, Box::new(move |thread, n| atomic_add(&own[thread], black_box(1), n))))
    }),
    ("poll", |_| Ok((UNROLLED, Box::new(move |_, n| poll(&mut task(), n))))),
    ("poll_charged", |_| {
        let group = groups(1)?[0];
        Ok((UNROLLED, Box::new(move |_, n| poll(&mut charged(group), n))))
    }),
    ("poll_scope", |_| {
        let group = groups(1)?[0];
        Ok((UNROLLED, Box::new(move |_, n| poll_scope(&mut task(), group, n))))
    }),
    ("poll_groups8", |_| {
        let groups = groups(8)?;
        Ok((
            8,
            Box::new(move |_, n| {
                poll_each(&mut groups.iter().map(|&g| charged(g)).collect::<Vec<_>>(), n)
            }),
        ))
    }),
    ("poll_span", |_| spanned(Dispatch::new(tracing_subscriber::registry()))),
    ("poll_span_group", |_| {
        let group = groups(1)?[0];
        let layer = GroupLayer::new("tenant", move |_| Some(group));
        spanned(Dispatch::new(tracing_subscriber::registry().with(layer)))
    }),
    ("tokio_yield", |threads| yielding(threads, |turns, _| Box::pin(turns))),
    ("tokio_yield_charged", |threads| {
        let groups = groups(2)?;
        yielding(threads, move |turns, number| Box::pin(turns.charged_to(groups[number])))
    }),
];

/// Returns the same case without a group.
fn without(case: &str) -> Option<&'static str> {
    match case {
        "poll_charged" | "poll_scope" | "poll_groups8" => Some("poll"),
        "poll_span_group" => Some("poll_span"),
        "tokio_yield_charged" => Some("tokio_yield"),
        _ => None,
    }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let mut rows = run.in_rounds(&run.options.threads, &run.options.cases, |turn| {
        turn.time(&CASES, |_, make| make(turn.plan.threads))
    })?;
    let added: Vec<Option<f64>> = rows.iter().map(|row| added(row, Rows(&rows))).collect();
    rows.iter_mut().zip(added).for_each(|(row, added)| row.added_ns = added.map(thousandths));
    Ok(rows)
}

fn added(row: &Row, rows: Rows<'_>) -> Option<f64> {
    Some(row.ns_per_op - rows.beside(row, without(&row.case)?)?)
}

/// Returns the remark on a group's cost.
fn remark(row: &Row, rows: Rows<'_>) -> String {
    match (added(row, rows), without(&row.case)) {
        (Some(added), Some(without)) => format!("{added:+.2} ns on {without}"),
        _ => String::new(),
    }
}

/// Makes `count` groups of a ledger that stays until this process ends.
fn groups(count: usize) -> Made<Vec<Group<'static>>> {
    let ledger = Ledger::builder().capacity(16).anonymous()?.into_static();
    let groups = (0..count).map(|number| ledger.root().create(&number.to_string()));
    Ok(groups.collect::<Result<_, _>>()?)
}

/// A task in the form of an executor, which does not know its type.
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Counts its polls.
struct Counts(u64);

impl Future for Counts {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0 = black_box(self.0 + 1);
        Poll::Pending
    }
}

fn task() -> Task {
    black_box(Box::pin(Counts(0)))
}

fn charged(group: Group<'static>) -> Task {
    black_box(Box::pin(Counts(0).charged_to(group)))
}

#[inline(always)]
fn once(task: &mut Task, context: &mut Context<'_>) {
    let _pending = task.as_mut().poll(context);
}

#[inline(never)]
fn poll(task: &mut Task, n: u64) {
    let context = &mut Context::from_waker(Waker::noop());
    for _ in 0..n / UNROLLED {
        four_times!(once(task, context));
    }
}

#[inline(never)]
fn poll_scope(task: &mut Task, group: Group<'static>, n: u64) {
    let context = &mut Context::from_waker(Waker::noop());
    for _ in 0..n / UNROLLED {
        four_times!(group.scope(|| once(task, context)));
    }
}

#[inline(never)]
fn poll_each(tasks: &mut [Task], n: u64) {
    let context = &mut Context::from_waker(Waker::noop());
    for _ in 0..n / tasks.len() as u64 {
        for task in &mut *tasks {
            once(task, context);
        }
    }
}

#[inline(never)]
fn atomic_add(own: &AtomicU64, units: u64, n: u64) {
    for _ in 0..n / UNROLLED {
        // Relaxed: no other thread uses it.
        four_times!(own.fetch_add(units, Ordering::Relaxed));
    }
}

/// Makes the task in a span that has the field.
fn spanned(dispatch: Dispatch) -> Made<Work<'static>> {
    let body = move |_, n| {
        dispatcher::with_default(&dispatch, || {
            let span = info_span!("request", tenant = "acme");
            let mut task: Task = black_box(Box::pin(Counts(0).instrument(span)));
            poll(&mut task, n);
        });
    };
    Ok((UNROLLED, Box::new(body)))
}

/// A task that may move to another thread.
type SendTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes two tasks on a runtime of the thread's own, each of which does half of the turns.
fn yielding(
    threads: usize,
    make: impl Fn(SendTask, usize) -> SendTask + Sync + 'static,
) -> Made<Work<'static>> {
    let runtime = |_| Builder::new_current_thread().build().map(Mutex::new);
    let runtimes: Vec<Mutex<Runtime>> = (0..threads).map(runtime).collect::<Result<_, _>>()?;
    let body = move |thread: usize, n: u64| {
        let runtime = runtimes[thread].lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(async {
            let tasks = [0, 1].map(|number| tokio::spawn(make(Box::pin(turns(n / 2)), number)));
            for task in tasks {
                task.await.expect("it only yields");
            }
        });
    };
    Ok((2, Box::new(body)))
}

async fn turns(n: u64) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline::current;

    #[test]
    fn tasks_are_polled_in_the_groups_that_the_cases_name() {
        let seen = |name: &str| {
            let group = groups(1).unwrap()[0];
            let looks = std::sync::Arc::new(Mutex::new(Vec::new()));
            let noted = looks.clone();
            let task = std::future::poll_fn(move |_| {
                noted.lock().unwrap().push(current::group().is_some());
                Poll::<()>::Pending
            });
            let mut task: Task = match name {
                "poll_charged" => Box::pin(task.charged_to(group)),
                _ => Box::pin(task),
            };
            match name {
                "poll_scope" => poll_scope(&mut task, group, 8),
                _ => poll(&mut task, 8),
            }
            assert!(current::group().is_none());
            looks.lock().unwrap().clone()
        };
        assert_eq!(seen("poll"), [false; 8]);
        assert_eq!(seen("poll_charged"), [true; 8]);
        assert_eq!(seen("poll_scope"), [true; 8]);
    }

    #[test]
    fn every_case_runs_on_two_threads_and_leaves_them_without_a_group() {
        for (name, make) in CASES {
            let (granule, body) = make(2).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let body = &body;
                    scope.spawn(move || {
                        body(thread, 2 * granule);
                        assert!(current::group().is_none(), "{name}");
                    });
                }
            });
        }
    }
}

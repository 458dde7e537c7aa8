//! The current group follows spans: across tasks and threads, in any order, and with fields recorded late.

use crate::common::ran_alone;
use ledgerline::current::future::ChargeTo;
use ledgerline::current::tracing::GroupLayer;
use ledgerline::{Group, Ledger, current};
use std::sync::{Arc, Barrier};
use tokio::task::yield_now;
use tracing::dispatcher::{self, Dispatch};
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

fn ledger() -> &'static Ledger {
    Ledger::builder().capacity(256).anonymous().unwrap().into_static()
}

/// Returns a subscriber. Tenants are groups below the root, created at first sight, except for names that begin with `x`.
fn subscriber(ledger: &'static Ledger) -> impl tracing::Subscriber + Send + Sync {
    let tenant = move |name: &str| {
        assert_eq!(current::group(), None, "the layer itself is nobody's");
        if name.starts_with('x') {
            return None;
        }
        ledger.root().child(name).or_else(|| ledger.root().create(name).ok())
    };
    tracing_subscriber::registry().with(GroupLayer::new("tenant", tenant))
}

/// Runs the test with a layer, and with the groups `a` and `b`.
fn with_layer(test: impl FnOnce([Group<'static>; 2])) {
    let ledger = ledger();
    let groups = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
    with_default(subscriber(ledger), || test(groups));
    assert_eq!(current::group(), None, "all spans were left");
}

#[test]
fn spans_below_one_with_the_field_are_its_groups() {
    with_layer(|[a, b]| {
        let request = info_span!("request", tenant = "a");
        request.in_scope(|| {
            assert_eq!(current::group(), Some(a));
            info_span!("parse", tenant_id = 7).in_scope(|| {
                assert_eq!(current::group(), Some(a));
                info_span!("on behalf", tenant = %"b")
                    .in_scope(|| assert_eq!(current::group(), Some(b)));
                assert_eq!(current::group(), Some(a));
            });
        });
        // A span's parent counts, not the span in which it is entered.
        let below = info_span!(parent: &request, "below");
        let elsewhere = info_span!(parent: None, "elsewhere");
        info_span!("other", tenant = "b").in_scope(|| {
            below.in_scope(|| assert_eq!(current::group(), Some(a)));
            assert_eq!(current::group(), Some(b));
            elsewhere
                .in_scope(|| assert_eq!(current::group(), Some(b), "no group changes nothing"));
            info_span!("unknown", tenant = "x").in_scope(|| assert_eq!(current::group(), Some(b)));
        });
    });
}

#[test]
fn any_value_is_told_as_it_is_formatted() {
    let ledger = ledger();
    with_default(subscriber(ledger), || {
        let tenant = "shown";
        for (span, name) in [
            (info_span!("number", tenant = 42), "42"),
            (info_span!("shown", %tenant), "shown"),
            (info_span!("quoted", ?tenant), "\"shown\""),
        ] {
            span.in_scope(|| assert_eq!(current::group().expect("a group").name(), name));
        }
        // A name that no group may have gives no group.
        info_span!("bad", tenant = "a/b").in_scope(|| assert_eq!(current::group(), None));
    });
}

#[test]
fn a_field_that_is_recorded_late_counts_at_once_here_and_below() {
    with_layer(|[a, b]| {
        let request = info_span!("request", tenant = Empty);
        request.in_scope(|| {
            assert_eq!(current::group(), None);
            let parse = info_span!("parse").entered();
            assert_eq!(current::group(), None);
            request.record("tenant", "a");
            assert_eq!(current::group(), Some(a), "in a span below");
            drop(parse);
            assert_eq!(current::group(), Some(a));
            request.record("tenant", "b");
            assert_eq!(current::group(), Some(b));
            request.record("other", "a");
            info_span!("own", tenant = "a").in_scope(|| {
                request.record("tenant", "b");
                assert_eq!(current::group(), Some(a), "a span keeps its own");
            });
            assert_eq!(current::group(), Some(b));
            a.scope(|| {
                request.record("tenant", "x");
                assert_eq!(current::group(), Some(a), "what others made current stays");
            });
        });
        request.in_scope(|| assert_eq!(current::group(), None, "it has none any more"));
    });
}

#[test]
fn spans_are_left_in_any_order() {
    with_layer(|[a, b]| {
        let spans = || {
            [
                info_span!("1", tenant = "a"),
                info_span!("2"),
                info_span!(parent: None, "3"),
                info_span!(parent: None, "4", tenant = "b"),
            ]
        };
        // The second is created outside the first, so it has no group of its own.
        for order in permutations() {
            let mut entered = spans().map(|span| Some(span.entered()));
            assert_eq!(current::group(), Some(b));
            let mut left = [false; 4];
            for &place in &order {
                entered[place] = None;
                left[place] = true;
                // The innermost span with a group that the thread is still in.
                let expected = if !left[3] { Some(b) } else { (!left[0]).then_some(a) };
                assert_eq!(current::group(), expected, "{order:?} after {place}");
            }
        }
        // The same span twice.
        let span = info_span!("twice", tenant = "a");
        let (first, second) = (span.enter(), span.enter());
        drop(first);
        assert_eq!(current::group(), Some(a));
        drop(second);
    });
}

fn permutations() -> Vec<[usize; 4]> {
    let mut all = Vec::new();
    for number in 0..256 {
        let order = [number & 3, number >> 2 & 3, number >> 4 & 3, number >> 6];
        if (0..4).all(|place| order.contains(&place)) {
            all.push(order);
        }
    }
    assert_eq!(all.len(), 24);
    all
}

#[test]
fn a_span_that_is_closed_inside_of_itself_is_left_as_any() {
    with_layer(|[a, b]| {
        let _outer = b.enter();
        // The handle is dropped first, so the registry forgets the span as it is left.
        let entered = info_span!("gone", tenant = "a").entered();
        assert_eq!(current::group(), Some(a));
        drop(entered);
        assert_eq!(current::group(), Some(b));
        let span = info_span!("gone", tenant = "a");
        let dispatch = dispatcher::get_default(Dispatch::clone);
        let id = span.id().expect("it is enabled");
        dispatch.enter(&id);
        drop(span);
        assert_eq!(current::group(), Some(a));
        dispatch.exit(&id);
        assert_eq!(current::group(), Some(b));
        // Numbers of spans are reused.
        info_span!("next").in_scope(|| assert_eq!(current::group(), Some(b)));
    });
}

#[test]
fn a_span_that_several_threads_are_in_is_left_by_each_for_itself() {
    with_layer(|[a, _]| {
        let (span, dispatch) =
            (info_span!("shared", tenant = "a"), dispatcher::get_default(Dispatch::clone));
        let both = Arc::new(Barrier::new(2));
        let there = {
            let (span, both) = (span.clone(), both.clone());
            move || {
                dispatcher::with_default(&dispatch, || {
                    let entered = span.enter();
                    both.wait();
                    assert_eq!(current::group(), Some(a));
                    both.wait();
                    // The other thread has left.
                    assert_eq!(current::group(), Some(a));
                    drop(entered);
                    assert_eq!(current::group(), None);
                });
            }
        };
        let thread = std::thread::spawn(there);
        let entered = span.enter();
        both.wait();
        drop(entered);
        assert_eq!(current::group(), None);
        both.wait();
        thread.join().unwrap();
    });
}

#[test]
fn a_hundred_tasks_that_alternate_on_a_few_workers_are_charged_to_their_tenants() {
    if ran_alone("a_hundred_tasks_that_alternate_on_a_few_workers_are_charged_to_their_tenants") {
        return;
    }
    let ledger = ledger();
    // Workers of a runtime see the process's own subscriber.
    tracing::subscriber::set_global_default(subscriber(ledger)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    runtime.block_on(async {
        let task = |number: usize| async move {
            let tenant = format!("tenant{number}");
            for turn in 0..50 {
                assert_eq!(current::group().expect("a group").name(), tenant);
                let _held = current::try_charge(10 + number as u64).unwrap();
                let inner = async {
                    yield_now().await;
                    assert_eq!(current::group().expect("a group").name(), tenant);
                };
                if turn % 2 == 0 {
                    inner.instrument(info_span!("step", turn)).await
                } else {
                    inner.await
                }
            }
            current::group().expect("a group")
        };
        let tasks: Vec<_> = (0..100)
            .map(|number| {
                let span = match number % 2 {
                    0 => info_span!("request", tenant = format!("tenant{number}")),
                    _ => info_span!("request", tenant = Empty),
                };
                tokio::spawn(
                    async move {
                        if number % 2 == 1 {
                            Span::current().record("tenant", format!("tenant{number}"));
                        }
                        task(number).await
                    }
                    .instrument(span),
                )
            })
            .collect();
        for (number, handle) in tasks.into_iter().enumerate() {
            let group = handle.await.unwrap();
            assert_eq!((group.name(), group.precise()), (format!("tenant{number}"), 0));
            assert!(group.destroy().unwrap().charges >= 50);
        }
        assert_eq!(tokio::spawn(async { current::group() }).await.unwrap(), None);
        // A wrapper within a span is the innermost.
        let own = ledger.root().create("own").unwrap();
        let span = info_span!("request", tenant = "tenant");
        let wrapped = async { current::group() }.charged_to(own).instrument(span);
        assert_eq!(tokio::spawn(wrapped).await.unwrap(), Some(own));
    });
}

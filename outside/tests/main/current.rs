//! The current group as a program uses it: threads, tasks, closures and charges, without a feature.

use ledgerline::current::future::ChargeTo;
use ledgerline::{Group, Ledger, Reason, Refused, current};
use std::future::Future;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

static LEDGER: LazyLock<Ledger> = LazyLock::new(|| Ledger::new().expect("one mapping"));

fn group(name: &str) -> Group<'static> {
    LEDGER.root().create(name).unwrap()
}

/// Code that was not given a group.
fn sort(rows: u64) -> Result<u64, Refused> {
    let held = current::try_charge(64 * rows)?;
    Ok(held.map_or(0, |held| held.group().precise()))
}

/// A minimal executor.
fn block_on<F: Future>(task: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn code_that_was_handed_no_group_charges_that_of_its_task_and_thread() {
    let query = group("query");
    query.set_max("1M".parse().unwrap()).unwrap();
    assert_eq!(sort(1_000_000).unwrap(), 0, "nobody's");
    assert_eq!(query.scope(|| sort(1000)).unwrap(), 64_000);
    assert_eq!(query.scope(|| sort(1_000_000)).unwrap_err().group, "/query");
    assert_eq!(query.scope(|| current::spawn(|| sort(10))).join().unwrap().unwrap(), 640);
    let sorted = query.scope(|| {
        thread::scope(|scope| {
            let parts =
                [1, 2, 3].map(|rows| scope.spawn(current::inherit_once(move || sort(rows))));
            parts.map(|part| part.join().unwrap().is_ok())
        })
    });
    assert_eq!(sorted, [true; 3]);

    let task = async { (sort(1000).unwrap(), current::unattributed(|| sort(1000)).unwrap()) };
    assert_eq!(block_on(task.charged_to(query)), (64_000, 0));
    assert_eq!((query.precise(), current::group()), (0, None));

    query.destroy().unwrap();
    assert_eq!(block_on(async { sort(1) }.charged_to(query)).unwrap_err().reason, Reason::Gone);
}

#[test]
fn the_pages_example_of_the_current_group_is_this_one_and_charges_its_query() {
    const PAGE: &str = include_str!("../../../docs/calls.md");
    assert!(PAGE.contains(concat!("```rust\n", include_str!("../../src/serve.rs"), "```")));
    block_on(outside::serve::serve("q42")).unwrap();
    // Its query is destroyed.
    assert!(current::group().is_none());
    block_on(outside::serve::serve("q42")).unwrap();
}

//! Tasks whose result is a refusal.

use ledgerline::{Group, Ledger, Limit, alloc, current};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const MAX: u64 = 1 << 20;

fn query() -> Group<'static> {
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let query = ledger.root().create("query").unwrap();
    query.set_max(Limit::units(MAX)).unwrap();
    query
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Is pending at the first poll.
async fn once_pending() {
    let mut polled = false;
    poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// Allocates when it drops, like destructors that log or send something, and notes the group.
struct Says(Rc<Cell<Option<Option<Group<'static>>>>>);

impl Drop for Says {
    fn drop(&mut self) {
        assert_eq!(std::hint::black_box(vec![1u8; 4096]).len(), 4096);
        self.0.set(Some(current::group()));
    }
}

#[test]
fn a_task_that_is_within_its_limit_returns_what_it_returns_and_stays_where_it_is() {
    let query = query();
    let mut task = pin!(query.catch_future(async {
        let rows = vec![7u8; 1000];
        // A reference into the task itself, held while others run.
        let first = &rows[0];
        let here = &raw const *first;
        once_pending().await;
        assert_eq!(here, &raw const rows[0]);
        assert_eq!(current::group(), Some(query));
        u64::from(*first)
    }));
    assert!(poll(task.as_mut()).is_pending());
    assert_eq!((query.precise(), current::group()), (1000, None));
    assert!(matches!(poll(task.as_mut()), Poll::Ready(Ok(7))));
    assert_eq!(query.precise(), 0);
    assert!(catch_unwind(AssertUnwindSafe(|| poll(task))).is_err(), "it has ended");
}

#[test]
fn a_task_over_its_limit_is_dropped_in_its_group_and_its_destructors_may_allocate() {
    for with_checkpoint in [true, false] {
        let query = query();
        let seen = Rc::default();
        let says = Says(Rc::clone(&seen));
        let mut task = pin!(query.catch_future(async move {
            let says = says;
            let mut rows = Vec::new();
            for _ in 0..2 {
                once_pending().await;
                // The second time is too much.
                rows.push(vec![0u8; (MAX - (MAX >> 3)) as usize]);
                if with_checkpoint {
                    alloc::checkpoint();
                }
            }
            // The result is discarded, since the refusal comes before it.
            (says, rows)
        }));
        assert!(poll(task.as_mut()).is_pending());
        assert!(poll(task.as_mut()).is_pending());
        assert!(query.precise() > MAX / 2 && seen.get().is_none());
        let Poll::Ready(Err(refused)) = poll(task.as_mut()) else { panic!("it is refused") };
        assert_eq!((refused.group.as_str(), refused.limit), ("/query", MAX));
        assert_eq!(seen.get(), Some(Some(query)), "dropped by then, in its group");
        assert_eq!((query.precise(), current::group()), (0, None));
    }
}

#[test]
fn another_panic_goes_on_and_another_task_is_not_in_the_catch() {
    let query = query();
    let mut task = pin!(query.catch_future(async { std::panic::resume_unwind(Box::new("other")) }));
    let payload =
        catch_unwind(AssertUnwindSafe(|| poll::<_>(task.as_mut()).is_pending())).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"other"));
    drop(payload);
    assert_eq!(current::group(), None);
    // Outside a catch an allocation goes over the limit, and a checkpoint does nothing.
    query.scope(|| {
        let mut rows: Vec<u8> = Vec::new();
        assert!(rows.try_reserve_exact(2 * MAX as usize).is_ok());
        alloc::checkpoint();
        assert_eq!(query.over(), MAX);
    });
    assert_eq!((query.over(), query.precise()), (0, 0));
}

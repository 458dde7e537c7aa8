//! Tasks that are polled in a group.

use super::{Current, Entered, swap};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Puts a future, a stream or a sink into a group.
pub trait ChargeTo: Sized {
    /// Whenever this is polled, and when it is dropped, the group is the thread's current one. Switching costs about
    /// a nanosecond a poll, and flushes nothing.
    fn charged_to(self, group: impl Into<Current>) -> ChargedTo<Self> {
        ChargedTo { inner: ManuallyDrop::new(self), current: group.into() }
    }
}

impl<T> ChargeTo for T {}

/// What [`ChargeTo::charged_to`] returns.
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct ChargedTo<T> {
    /// Structurally pinned; dropped in `drop` alone.
    inner: ManuallyDrop<T>,
    current: Current,
}

impl<T> ChargedTo<T> {
    /// Runs `work` on what is inside, in the group.
    #[inline]
    fn within<R>(self: Pin<&mut Self>, work: impl FnOnce(Pin<&mut T>) -> R) -> R {
        // SAFETY: what is inside stays where it is: nothing here moves it, and `drop` drops it in its place.
        let this = unsafe { self.get_unchecked_mut() };
        let _polled = Polled { before: swap(this.current), current: &mut this.current };
        // SAFETY: as above.
        work(unsafe { Pin::new_unchecked(&mut *this.inner) })
    }
}

/// While this lives, the task's group is current.
struct Polled<'p> {
    current: &'p mut Current,
    before: Current,
}

impl Drop for Polled<'_> {
    #[inline]
    fn drop(&mut self) {
        let was = swap(self.before);
        // What the allocator found out about the group meanwhile is known at the next poll.
        if was == *self.current {
            *self.current = was;
        }
    }
}

impl<T> Drop for ChargedTo<T> {
    fn drop(&mut self) {
        let _entered = Entered::new(self.current);
        // SAFETY: it is dropped once, here, and not touched afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) }
    }
}

impl<F: Future> Future for ChargedTo<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.within(|future| future.poll(context))
    }
}

#[cfg(test)]
mod tests {
    use super::super::group;
    use super::*;
    use crate::{Group, Ledger};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    struct Seen<'s>(&'s std::cell::Cell<Option<Group<'static>>>);

    impl Drop for Seen<'_> {
        fn drop(&mut self) {
            self.0.set(group());
        }
    }

    #[test]
    fn a_task_is_polled_and_dropped_in_its_group_and_the_executor_keeps_its_own() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
        let [task, executor] = ["task", "executor"].map(|name| ledger.root().create(name).unwrap());
        let _executor = executor.enter();
        let dropped = std::cell::Cell::new(None);
        {
            let seen = Seen(&dropped);
            let mut polls = 0;
            let mut future = pin!(
                poll_fn(move |_| {
                    let _kept = &seen;
                    polls += 1;
                    assert_eq!(group(), Some(task));
                    if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
                })
                .charged_to(task)
            );
            let mut context = Context::from_waker(Waker::noop());
            assert!(future.as_mut().poll(&mut context).is_pending());
            assert_eq!(group(), Some(executor));
            assert!(future.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(dropped.get(), Some(task));
        assert_eq!(group(), Some(executor));
    }
}

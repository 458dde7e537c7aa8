//! Tasks that are polled in a group. Streams and sinks need the feature `futures`.

use super::refused::{joined, outer};
use super::{Current, peek};
use crate::group::Group;
use crate::scope::Held;
use crate::whose;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Puts a future, a stream or a sink into a group.
pub trait ChargeTo: Sized {
    /// Makes the group the thread's current one whenever this is polled, and when it is dropped. Between polls the
    /// thread has its own group again, also after a panic. Switching adds 1.1 ns to a poll on a virtual EPYC (Zen 5)
    /// of 2026 (`ledgerline bench task`), and flushes nothing. The result belongs to the awaiting code: its memory
    /// stays charged to the group that was current when it was allocated.
    ///
    /// Streams and sinks need the feature `futures`.
    ///
    /// ```
    /// use ledgerline::current::future::ChargeTo;
    /// use ledgerline::{Ledger, current};
    ///
    /// let ledger = Ledger::new()?.into_static();
    /// let query = ledger.root().create("q42")?;
    /// let task = async {
    ///     let _rows = current::try_charge(1 << 20).unwrap();
    ///     current::group()
    /// };
    /// let task = task.charged_to(query);
    /// # let mut task = std::pin::pin!(task);
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let std::task::Poll::Ready(seen) = task.as_mut().poll(&mut context) else { panic!() };
    /// # assert_eq!(seen, Some(query));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn charged_to(self, group: impl Into<Current>) -> ChargedTo<Self> {
        let mut current: Current = group.into();
        // The task is a part of the work that makes it.
        if current.scope.is_unsaid() && peek().scope.is_named() {
            current.scope = outer(current.group);
        }
        ChargedTo { inner: ManuallyDrop::new(self), current, held: Held::new(current.scope) }
    }

    /// Like [`charged_to`](Self::charged_to), with the group that is current here. Without a current group, the task
    /// has none.
    fn charged_to_current(self) -> ChargedTo<Self> {
        self.charged_to(peek())
    }
}

impl<T> ChargeTo for T {}

/// A future, stream or sink in a group, made by [`ChargeTo::charged_to`].
///
/// Invariant C1: the inner value is pinned when this is. Nothing moves it out of a pinned value, `drop` drops it in
/// its place, and this is `Unpin` only if it is.
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct ChargedTo<T> {
    /// Dropped in `drop` or moved out by `into_inner`, never both.
    inner: ManuallyDrop<T>,
    current: Current,
    /// The work that this is a part of.
    held: Option<Held>,
}

impl<T> ChargedTo<T> {
    /// Returns the inner value.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the inner value. Its methods run in the caller's group.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the inner value, pinned. Its methods run in the caller's group.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut T> {
        // SAFETY: C1 (guarded by `a_pinned_task_stays_where_it_is`).
        unsafe { self.map_unchecked_mut(|this| &mut *this.inner) }
    }

    /// Takes out the inner value, which then has no group.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        drop(this.held.take());
        // SAFETY: `this` is not dropped and not used again, so this takes it once. It was not pinned, since it was
        // moved here (C1; guarded by `what_is_taken_out_is_dropped_once`).
        unsafe { ManuallyDrop::take(&mut this.inner) }
    }

    /// Returns the group in which this is polled, if any.
    pub fn group(&self) -> Option<Group<'static>> {
        self.current.group()
    }

    /// Runs `work` on the inner value, in the group.
    #[inline]
    pub(super) fn within<R>(self: Pin<&mut Self>, work: impl FnOnce(Pin<&mut T>) -> R) -> R {
        // SAFETY: C1: only the group is changed here (guarded by `a_pinned_task_stays_where_it_is`).
        let this = unsafe { self.get_unchecked_mut() };
        let _polled = Polled::new(&mut this.current);
        // SAFETY: C1, as above.
        work(unsafe { Pin::new_unchecked(&mut *this.inner) })
    }
}

/// While this lives, the task's group is current.
struct Polled<'p> {
    current: &'p mut Current,
    before: Current,
}

impl Polled<'_> {
    #[inline]
    fn new(current: &mut Current) -> Polled<'_> {
        Polled { before: whose::replace(joined(*current)), current }
    }
}

impl Drop for Polled<'_> {
    #[inline]
    fn drop(&mut self) {
        let was = whose::replace(self.before);
        // Keeps the slot that the allocator found for the group, for the next poll. Writes it only if it is new:
        // storing a part stalls the next load of the whole.
        let slot = |current: &Current| current.slot.map(|slot| &raw const *slot);
        if slot(&was) != slot(self.current) && was == *self.current {
            self.current.slot = was.slot;
        }
    }
}

impl<T> Drop for ChargedTo<T> {
    fn drop(&mut self) {
        if whose::is_granting() {
            self.current.scope = self.current.scope.granting();
        }
        let _polled = Polled::new(&mut self.current);
        // SAFETY: it is dropped once, here, in its place (C1), and not touched afterwards: `into_inner` drops no
        // `ChargedTo` (guarded by `what_is_taken_out_is_dropped_once`).
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

    fn root() -> Group<'static> {
        Ledger::builder().capacity(2).anonymous().unwrap().into_static().root()
    }

    #[test]
    fn a_poll_and_a_drop_that_panic_leave_the_executor_its_own() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                assert!(group().is_none(), "the drop fails in its group");
            }
        }
        let task = &root();
        let kept = Panics;
        let mut future = Box::pin(
            async move {
                let _kept = &kept;
                std::future::pending::<()>().await;
            }
            .charged_to(task),
        );
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(future)));
        assert!(unwound.is_err() && group().is_none());
        let mut future = pin!(poll_fn(|_| -> Poll<()> { panic!("in the task") }).charged_to(*task));
        let polled = std::panic::AssertUnwindSafe(|| future.as_mut().poll(&mut context));
        assert!(std::panic::catch_unwind(polled).is_err() && group().is_none());
    }

    #[test]
    fn a_task_that_keeps_a_guard_between_polls_harms_nobody_else() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
        let [task, other] = ["task", "other"].map(|name| ledger.root().create(name).unwrap());
        let mut kept = None;
        let mut future = pin!(
            poll_fn(move |_| match kept.take() {
                None => {
                    kept = Some(other.enter());
                    Poll::Pending
                }
                Some(guard) => {
                    assert_eq!(group(), Some(task), "not the guard's any more");
                    drop(guard);
                    Poll::Ready(group())
                }
            })
            .charged_to(task)
        );
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert_eq!(group(), None);
        assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(Some(task)));
        assert_eq!(group(), None);
    }

    #[test]
    fn what_is_taken_out_is_dropped_once() {
        let kept = std::rc::Rc::new(());
        let mut charged = kept.clone().charged_to(Current::NOBODY);
        assert!(std::rc::Rc::ptr_eq(charged.get_mut(), &kept));
        assert!(std::rc::Rc::ptr_eq(charged.get_ref(), &kept) && charged.group().is_none());
        let inner = charged.into_inner();
        assert_eq!(std::rc::Rc::strong_count(&kept), 2);
        drop(inner);
        assert_eq!(std::rc::Rc::strong_count(&kept), 1);
        drop(kept.clone().charged_to(Current::NOBODY));
        assert_eq!(std::rc::Rc::strong_count(&kept), 1);
    }

    #[test]
    fn a_pinned_task_stays_where_it_is() {
        struct At(Option<*const At>, std::marker::PhantomPinned);
        impl Future for At {
            type Output = ();
            fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
                let here = &raw const *self;
                // SAFETY: it is not moved.
                let at = unsafe { self.as_mut().get_unchecked_mut() };
                assert_eq!(*at.0.get_or_insert(here), here);
                Poll::Pending
            }
        }
        impl Drop for At {
            fn drop(&mut self) {
                assert_eq!(self.0, Some(&raw const *self));
            }
        }
        fn unpin<T: Unpin>(_: &T) {}
        let mut future = pin!(At(None, std::marker::PhantomPinned).charged_to(root()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert!(future.as_mut().get_pin_mut().poll(&mut context).is_pending());
        assert!(future.as_mut().poll(&mut context).is_pending());
        unpin(&std::future::ready(()).charged_to_current());
    }

    #[test]
    fn a_task_that_outlives_its_group_is_refused_and_never_charged_to_another() {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap().into_static();
        let query = ledger.root().create("query").unwrap();
        let tasks = [(); 2]
            .map(|()| poll_fn(|_| Poll::Ready(super::super::try_charge(8))).charged_to(query));
        let mut context = Context::from_waker(Waker::noop());
        let mut refused = tasks.into_iter().map(|task| match pin!(task).poll(&mut context) {
            Poll::Ready(charge) => charge.unwrap_err(),
            Poll::Pending => unreachable!("it is ready at once"),
        });
        let held = query.try_charge(5).unwrap();
        query.destroy().unwrap();
        let first = refused.next().unwrap();
        assert_eq!((first.reason, &*first.group), (crate::Reason::Gone, "(destroyed)"));
        assert_eq!(ledger.root().precise(), 5, "what it held stays with the ancestors");
        drop(held);
        // All rows are in use again; another group has the row of `query`.
        let next = ["1", "2", "3"].map(|name| ledger.root().create(name).unwrap());
        assert!(next.iter().any(|group| group.id().index() == query.id().index()));
        assert_eq!(refused.next().unwrap().reason, crate::Reason::Gone);
        assert_eq!(ledger.root().precise(), 0);
    }
}

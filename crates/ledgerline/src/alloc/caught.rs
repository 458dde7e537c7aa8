//! Tasks and streams that return a refusal as their result.

use super::limit::{begin, refusal_of};
use crate::current::Current;
use crate::current::future::{ChargeTo, ChargedTo};
use crate::current::refused::told;
use crate::error::Refused;
use crate::group::Group;
use crate::scope::{Held, Policy};
use crate::whose::granting;
#[cfg(feature = "futures")]
use futures_core::stream::{FusedStream, Stream};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

impl Group<'static> {
    /// Like [`catch`](Self::catch), for a task. This is the thread's current group whenever the task is polled, and
    /// when it is dropped. The first [`Refused`] of an allocation in the task is its result. A refused task is
    /// dropped at the end of the poll, or before its next poll if the refusal was in a part that runs elsewhere.
    ///
    /// ```
    /// use ledgerline::{Alloc, Ledger, Limit};
    ///
    /// #[global_allocator]
    /// static ALLOC: Alloc = Alloc::system();
    ///
    /// async fn rows() -> usize {
    ///     let mut rows = Vec::new();
    ///     for _ in 0..1000 {
    ///         rows.push(vec![0u8; 4096]);
    ///         std::future::ready(()).await;
    ///         ledgerline::alloc::checkpoint();
    ///     }
    ///     rows.len()
    /// }
    ///
    /// let ledger = Ledger::new()?.into_static();
    /// let query = ledger.root().create("q42")?;
    /// query.set_max(Limit::units(1 << 20))?;
    /// let task = query.catch_future(rows());
    /// # let mut task = std::pin::pin!(task);
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let std::task::Poll::Ready(result) = task.as_mut().poll(&mut context) else { panic!() };
    /// # use std::future::Future;
    /// assert_eq!(result.unwrap_err().group, "/q42");
    /// assert_eq!(query.precise(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn catch_future<F: Future>(self, task: F) -> Catching<F> {
        self.catch_polled(super::limit::CATCH, task)
    }

    /// Like [`catch_future`](Self::catch_future), but allows `allowance` bytes over the limit at full speed.
    pub fn catch_future_within<F: Future>(self, allowance: u64, task: F) -> Catching<F> {
        self.catch_polled(super::limit::CATCH.within(allowance), task)
    }

    /// Like [`catch_future`](Self::catch_future), with a policy at the limit.
    pub fn catch_future_with<F: Future>(self, policy: Policy, task: F) -> Catching<F> {
        self.catch_polled(policy, task)
    }

    /// Like [`catch_future`](Self::catch_future), for a stream (feature `futures`). Its items are wrapped in `Ok`,
    /// and a refusal is its last item. Use it to make a streamed body a part of its request.
    #[cfg(feature = "futures")]
    pub fn catch_stream<S: Stream>(self, stream: S) -> Catching<S> {
        self.catch_polled(super::limit::CATCH, stream)
    }

    /// Like [`catch_stream`](Self::catch_stream), but allows `allowance` bytes over the limit at full speed.
    #[cfg(feature = "futures")]
    pub fn catch_stream_within<S: Stream>(self, allowance: u64, stream: S) -> Catching<S> {
        self.catch_polled(super::limit::CATCH.within(allowance), stream)
    }

    fn catch_polled<T>(self, policy: Policy, inner: T) -> Catching<T> {
        let scope = begin(self, policy);
        let mut current = Current::from(self);
        if let Some(scope) = &scope {
            current = current.within(scope.id());
        }
        Catching { group: self, scope, inner: Some(inner.charged_to(current)) }
    }
}

/// A task or a stream that a refusal ends: the value of [`Group::catch_future`] and [`Group::catch_stream`].
///
/// Invariant C2: the inner value is pinned when this is. It is dropped in its place.
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct Catching<T> {
    group: Group<'static>,
    /// `None` if there were too many scopes: then nothing is caught.
    scope: Option<Held>,
    /// `None` once it has ended.
    inner: Option<ChargedTo<T>>,
}

impl<T> Catching<T> {
    /// Returns the task or stream inside, or `None` once it has ended.
    pub fn get_ref(&self) -> Option<&T> {
        self.inner.as_ref().map(ChargedTo::get_ref)
    }

    /// Polls the inner task or stream; a refusal ends it.
    ///
    /// # Panics
    /// If the inner task or stream panics and was not refused.
    fn poll_inside<P>(
        self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut ChargedTo<T>>) -> Poll<P>,
    ) -> Poll<Result<P, Refused>> {
        let (group, scope) = (self.group, self.scope.clone());
        // SAFETY: C2: `inner` is not moved out, and set to `None` in its place alone (guarded by
        // `tests/alloc/alloc_tasks.rs`).
        let mut inner = unsafe { self.map_unchecked_mut(|this| &mut this.inner) };
        // A part of the work that runs elsewhere may have been refused.
        let mut refused = scope.as_ref().and_then(told);
        let mut polled = Poll::Pending;
        if refused.is_none() {
            let inside = inner.as_mut().as_pin_mut().expect("what has ended is not polled again");
            match catch_unwind(AssertUnwindSafe(|| poll(inside))) {
                Ok(done) => polled = done,
                Err(payload) => refused = Some(refusal_of(payload, scope.as_ref())),
            }
            refused = refused.or_else(|| scope.as_ref().and_then(told));
        }
        let Some(refused) = refused else { return polled.map(Ok) };
        // The group may be full, and the destructors may allocate.
        granting(|| {
            group.scope(|| drop(polled));
            inner.set(None);
        });
        Poll::Ready(Err(refused))
    }

    /// Drops the inner task or stream in its place.
    fn end(self: Pin<&mut Self>) {
        // SAFETY: C2, as above.
        granting(|| unsafe { self.map_unchecked_mut(|this| &mut this.inner) }.set(None));
    }
}

impl<F: Future> Future for Catching<F> {
    type Output = Result<F::Output, Refused>;

    /// # Panics
    /// If the task panics and was not refused, and if it has ended already.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.inner.is_some(), "a task that has ended is not polled again");
        let polled = self.as_mut().poll_inside(|task| task.poll(context));
        if polled.is_ready() {
            self.end();
        }
        polled
    }
}

#[cfg(feature = "futures")]
impl<S: Stream> Stream for Catching<S> {
    type Item = Result<S::Item, Refused>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.inner.is_none() {
            return Poll::Ready(None);
        }
        match self.as_mut().poll_inside(|stream| stream.poll_next(context)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Some(item))) => Poll::Ready(Some(Ok(item))),
            Poll::Ready(Ok(None)) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Ready(Err(refused)) => Poll::Ready(Some(Err(refused))),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.inner.as_ref().map_or((0, Some(0)), Stream::size_hint);
        // A refusal may end the stream early, and is an item.
        (least.min(1), most.and_then(|most| most.checked_add(1)))
    }
}

#[cfg(feature = "futures")]
impl<S: Stream> FusedStream for Catching<S> {
    fn is_terminated(&self) -> bool {
        self.inner.is_none()
    }
}

//! Tasks of which a refusal is the result.

use crate::current::future::{ChargeTo, ChargedTo};
use crate::error::Refused;
use crate::group::Group;
use crate::whose::granting;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

impl Group<'static> {
    /// As [`catch`](Self::catch) for a task: whenever it is polled, and when it is dropped, this is the thread's current
    /// group, and the first [`Refused`] of an allocation in it is its result. A task that was refused is dropped at once.
    ///
    /// Each poll ends like a `catch`: without the feature `unwind` a refusal within the overdraft is raised at the next
    /// [`checkpoint`](super::checkpoint) or at the end of the poll. So a task that awaits now and then overdraws once, by
    /// at most the overdraft.
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
        Catching { group: self, task: Some(task.charged_to(self)) }
    }
}

/// What [`Group::catch_future`] returns.
///
/// Invariant C2: the task is pinned when this is. It is dropped in its place.
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct Catching<F> {
    group: Group<'static>,
    /// `None` once it has ended.
    task: Option<ChargedTo<F>>,
}

impl<F: Future> Future for Catching<F> {
    type Output = Result<F::Output, Refused>;

    /// # Panics
    /// If the task panics, and if it has ended already.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let group = self.group;
        // SAFETY: C2: `task` is not moved out, and set to `None` in its place alone (guarded by
        // `tests/alloc/alloc_tasks.rs`).
        let mut task = unsafe { self.map_unchecked_mut(|this| &mut this.task) };
        let polled = task.as_mut().as_pin_mut().expect("a task that has ended is not polled again");
        let result = match group.catch(|| polled.poll(context)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(refused) => Err(refused),
        };
        // Its group is full, perhaps, and its destructors may allocate.
        granting(|| task.set(None));
        Poll::Ready(result)
    }
}

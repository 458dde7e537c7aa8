//! Spawns tasks of tokio that inherit the current group (feature `tokio`).
//!
//! A task that is spawned by tokio's own functions begins without a current group. These functions give it the group
//! that is current where they are called. It is current whenever the task is polled, on any worker, and when the task
//! is dropped. For other functions that take a task, like those of a runtime's handle or a `LocalSet`, pass
//! `task.charged_to_current()`, or `task.charged_to(group)` for some other group ([`ChargeTo`]).
//!
//! Inside of a [`catch`](crate::Group::catch_future) a spawned task is a part of that work. A refusal ends all its
//! parts, each at its next poll or `checkpoint`. The handle of a part then returns a panic whose payload is the
//! [`Refused`](crate::Refused). Code that unwraps that result is ended by the refusal as well, and may print a
//! panic's message first. `std::panic::resume_unwind(error.into_panic())` passes the refusal on without a message.
//!
//! ```
//! use ledgerline::{Ledger, current};
//!
//! let ledger = Ledger::new()?.into_static();
//! let query = ledger.root().create("q42")?;
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! runtime.block_on(async {
//!     let task = query.scope(|| current::tokio::spawn(async { current::group() }));
//!     assert_eq!(task.await.unwrap(), Some(query));
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::future::ChargeTo;
use super::inherit_once;
use super::refused::checkpoint;
use std::future::{Future, poll_fn};
use std::pin::pin;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Like [`tokio::spawn`], but the task inherits the current group.
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(part(task).charged_to_current())
}

/// Like [`tokio::task::spawn_local`], but the task inherits the current group.
///
/// # Panics
/// Outside of a `LocalSet`.
#[track_caller]
pub fn spawn_local<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(part(task).charged_to_current())
}

/// Like [`tokio::task::spawn_blocking`], but the work inherits the current group.
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn_blocking<F, R>(work: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    tokio::task::spawn_blocking(inherit_once(|| run(work)))
}

/// Ends a task with a panic once its work was refused. Tokio keeps the panic for the handle.
async fn part<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    poll_fn(|context| {
        checkpoint();
        let polled = task.as_mut().poll(context);
        checkpoint();
        polled
    })
    .await
}

fn run<R>(work: impl FnOnce() -> R) -> R {
    checkpoint();
    let result = work();
    checkpoint();
    result
}

/// Extends [`JoinSet`] with tasks that inherit the current group.
pub trait JoinSetExt<T>: sealed::Sealed {
    /// Like [`JoinSet::spawn`], but the task inherits the current group.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    fn spawn_inheriting<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send;

    /// Like [`JoinSet::spawn_local`], but the task inherits the current group.
    ///
    /// # Panics
    /// Outside of a `LocalSet`.
    #[track_caller]
    fn spawn_local_inheriting<F: Future<Output = T> + 'static>(&mut self, task: F) -> AbortHandle;

    /// Like [`JoinSet::spawn_blocking`], but the work inherits the current group.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    fn spawn_blocking_inheriting<F>(&mut self, work: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send;
}

impl<T: 'static> JoinSetExt<T> for JoinSet<T> {
    fn spawn_inheriting<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.spawn(part(task).charged_to_current())
    }

    fn spawn_local_inheriting<F: Future<Output = T> + 'static>(&mut self, task: F) -> AbortHandle {
        self.spawn_local(part(task).charged_to_current())
    }

    fn spawn_blocking_inheriting<F>(&mut self, work: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.spawn_blocking(inherit_once(|| run(work)))
    }
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for tokio::task::JoinSet<T> {}
}

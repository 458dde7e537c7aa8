//! Closures that carry along the group that was current where they were made, to any thread.

use super::get;
use super::refused::{checkpoint, held};
use std::thread::{self, JoinHandle};

/// Makes a closure that runs `work` in the group that is current here, on any thread: for `std::thread::scope`,
/// `std::thread::Builder`, thread pools and callbacks.
///
/// The closure takes no argument. For closures that take one and run often, use [`inherit`]; for all others, `let
/// here = current::get();` outside and `here.scope(|| …)` within.
///
/// ```
/// use ledgerline::{Ledger, current};
///
/// let ledger = Ledger::new()?.into_static();
/// let query = ledger.root().create("q42")?;
/// let numbers = [1, 2, 3];
/// query.scope(|| {
///     std::thread::scope(|scope| {
///         scope.spawn(current::inherit_once(|| {
///             assert_eq!(current::group(), Some(query));
///             numbers.len()
///         }));
///     });
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn inherit_once<R, F: FnOnce() -> R>(work: F) -> impl FnOnce() -> R + use<R, F> {
    let (here, held) = (get(), held());
    move || {
        let _held = held;
        here.scope(work)
    }
}

/// Like [`inherit_once`], for closures that take an argument and may run often and on several threads at a time:
/// those of an iterator, sequential or of `rayon`. The current group is switched at each call, which costs less than
/// a nanosecond.
///
/// ```
/// use ledgerline::{Ledger, current};
///
/// let ledger = Ledger::new()?.into_static();
/// let query = ledger.root().create("q42")?;
/// let square = query.scope(|| {
///     current::inherit(|number: u64| {
///         assert_eq!(current::group(), Some(query));
///         number * number
///     })
/// });
/// assert_eq!((1..4).map(square).sum::<u64>(), 14);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn inherit<A, R, F: Fn(A) -> R>(work: F) -> impl Fn(A) -> R + use<A, R, F> {
    let (here, held) = (get(), held());
    move |argument| {
        let _held = &held;
        here.scope(|| work(argument))
    }
}

/// Like [`std::thread::spawn`], but the thread runs in the group that is current here, as a part of the same work.
/// Inside a [`catch`](crate::Group::catch), a limit that refuses the thread's allocations ends the thread and the
/// catch, and `join` returns the [`Refused`](crate::Refused) as the panic's payload. For a thread with a name or a
/// stack size, use `std::thread::Builder` and [`inherit_once`].
///
/// # Panics
/// If the system cannot make a thread, like `std::thread::spawn`.
pub fn spawn<T, F>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    thread::spawn(inherit_once(move || {
        checkpoint();
        let result = work();
        checkpoint();
        result
    }))
}

#[cfg(test)]
mod tests {
    use super::super::group;
    use super::*;
    use crate::Ledger;

    #[test]
    fn a_closure_runs_in_the_group_of_where_it_was_made_and_the_thread_keeps_its_own() {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
        let [maker, runner] = ["maker", "runner"].map(|name| ledger.root().create(name).unwrap());
        let (once, often, nobodys) = (
            maker.scope(|| inherit_once(group)),
            maker.scope(|| inherit(|()| group())),
            inherit(|()| group()),
        );
        runner.scope(|| {
            assert_eq!(once(), Some(maker));
            assert_eq!((often(()), often(())), (Some(maker), Some(maker)));
            assert_eq!(nobodys(()), None, "nobody is inherited, too");
            assert_eq!(group(), Some(runner));
        });
        assert_eq!(maker.scope(|| spawn(group)).join().unwrap(), Some(maker));
        let scoped = maker.scope(|| thread::scope(|scope| scope.spawn(inherit_once(group)).join()));
        assert_eq!(scoped.unwrap(), Some(maker));
        let panicked = maker.scope(|| inherit_once(|| panic!("in the thread")));
        runner.scope(|| {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicked)).is_err());
            assert_eq!(group(), Some(runner));
        });
    }
}

//! A token tells work to stop. The work polls it, awaits it, or registers a callback.

use crate::gate::lock::{self, Gated};
use crate::size;
use crate::whose;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

/// The reason why a group was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Killed {
    /// The path of the victim.
    pub group: String,
    /// The units that it held.
    pub usage: u64,
    /// The path of the full group.
    pub full: String,
    /// The units that another charge requested there.
    pub requested: u64,
}

impl Killed {
    /// Creates a reason for a program that cancels a group itself ([`CancelToken::cancel`]): `group` held `usage`
    /// units, and `full` had no room for `requested` more.
    pub fn new(
        group: impl Into<String>,
        usage: u64,
        full: impl Into<String>,
        requested: u64,
    ) -> Killed {
        Killed { group: group.into(), usage, full: full.into(), requested }
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} was cancelled with {} in use: {} is full, and {} more were requested there",
            self.group,
            size::format(self.usage),
            self.full,
            size::format(self.requested)
        )
    }
}

impl std::error::Error for Killed {}

/// Tells work to stop, once. Clones are the same token.
///
/// ```
/// use ledgerline::{CancelToken, Killed};
///
/// let token = CancelToken::new();
/// let work = token.clone();
/// assert!(!work.is_cancelled()); // an atomic load: fit for an inner loop
/// # let why = Killed::new("/q1", 7, "/", 1);
/// token.cancel(why);
/// assert!(work.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct CancelToken {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    killed: OnceLock<Killed>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    wakers: BTreeMap<u64, Waker>,
    calls: Vec<Call>,
    next: u64,
}

type Call = Box<dyn FnOnce(&Killed) + Send>;

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("killed", &self.shared.killed.get()).finish()
    }
}

impl Shared {
    /// Locks inside the gate, so that no fork finds it locked. No foreign code runs meanwhile.
    fn waiting(&self) -> Gated<'_, Waiting> {
        lock::gated(&self.waiting)
    }
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Cancels the work. Returns `false` if it was cancelled before. Callbacks run in this call, in the order of
    /// their registration. If one panics, the others still run.
    pub fn cancel(&self, why: Killed) -> bool {
        // Later waiters see the token set, since they look under the lock. No fork finds it half set.
        let mut waiting = self.shared.waiting();
        if self.shared.killed.set(why).is_err() {
            return false;
        }
        let Waiting { wakers, calls, .. } = std::mem::take(&mut *waiting);
        drop(waiting);
        let why = self.shared.killed.get().expect("set above");
        for call in calls {
            let _ = catch_unwind(AssertUnwindSafe(|| call(why)));
        }
        for waker in wakers.into_values() {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        true
    }

    /// Returns whether the work should stop. One load.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.shared.killed.get().is_some()
    }

    /// Returns why the work should stop, if it should.
    pub fn killed(&self) -> Option<&Killed> {
        self.shared.killed.get()
    }

    /// Returns `Err` once the work should stop, for `?` in a loop.
    ///
    /// # Errors
    /// The reason why the work should stop.
    pub fn check(&self) -> Result<(), Killed> {
        self.killed().map_or(Ok(()), |killed| Err(killed.clone()))
    }

    /// Calls back when the work is cancelled, in the thread that cancels it. Calls at once if it was
    /// cancelled before.
    pub fn on_cancel(&self, call: impl FnOnce(&Killed) + Send + 'static) {
        let mut waiting = self.shared.waiting();
        match self.killed() {
            None => waiting.calls.push(Box::new(call)),
            Some(killed) => {
                drop(waiting);
                call(killed);
            }
        }
    }

    /// Waits until the work is cancelled.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { token: self.clone(), place: None }
    }
}

/// The future of [`CancelToken::cancelled`], ready when the token is cancelled.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Cancelled {
    token: CancelToken,
    place: Option<u64>,
}

impl Future for Cancelled {
    type Output = Killed;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Killed> {
        let token = self.token.clone();
        let waker = context.waker().clone();
        let mut waiting = token.shared.waiting();
        if let Some(killed) = token.killed() {
            return Poll::Ready(killed.clone());
        }
        let place = *self.place.get_or_insert(waiting.next);
        waiting.next = waiting.next.max(place + 1);
        // Not accounted, so that no limit unwinds out of a half-made change.
        let before = whose::nobody(|| waiting.wakers.insert(place, waker));
        // The previous one is dropped after the lock is released.
        drop(waiting);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            // Dropped after the lock is released.
            let _waker = self.token.shared.waiting().wakers.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::task::Wake;

    fn why() -> Killed {
        Killed { group: "/a".into(), usage: 3 << 20, full: "/".into(), requested: 4096 }
    }

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_token_is_cancelled_once_and_tells_everybody() {
        let token = CancelToken::new();
        let called = Arc::new(AtomicU32::new(0));
        token.on_cancel(|_| panic!("one of the callbacks"));
        let count = called.clone();
        token.on_cancel(move |killed| {
            assert_eq!(*killed, why());
            count.fetch_add(1, SeqCst);
        });
        let woken = Arc::new(Count(AtomicU32::new(0)));
        let waker: Waker = woken.clone().into();
        let mut context = Context::from_waker(&waker);
        let (mut first, mut second) = (Box::pin(token.cancelled()), Box::pin(token.cancelled()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert_eq!(token.check(), Ok(()));
        assert!(token.cancel(why()));
        assert!(!token.cancel(Killed { usage: 0, ..why() }), "once");
        assert_eq!((called.load(SeqCst), woken.0.load(SeqCst)), (1, 1));
        assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(why()));
        assert_eq!(token.check(), Err(why()));
        let count = called.clone();
        token.on_cancel(move |_| {
            count.fetch_add(1, SeqCst);
        });
        assert_eq!(called.load(SeqCst), 2, "late callers are called at once");
    }

    #[test]
    fn a_reason_is_a_sentence() {
        assert_eq!(
            why().to_string(),
            "/a was cancelled with 3.0M in use: / is full, and 4.0K more were requested there"
        );
    }
}

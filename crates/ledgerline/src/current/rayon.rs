//! Jobs of rayon that inherit the current group (feature `rayon`).
//!
//! A worker that waits for a part of its job runs other jobs meanwhile, on top of its stack. A job without a group of
//! its own is then charged to the worker's current job. These functions give each closure the group that is current
//! where they are called. A worker that runs it continues in its own group afterwards.
//!
//! **Parallel iterators** spawn their jobs by themselves. There are two ways:
//!
//! * Each closure inherits, by [`current::inherit`](super::inherit), for less than a nanosecond an item:
//!   `par_iter().for_each(inherit(|row| …))`. For a closure with two arguments, use `let here = current::get();`
//!   outside, and `here.scope(|| …)` within. Allocations of the iterator itself between closures, like the parts of a
//!   `collect` of unknown length, are charged to the worker's current job.
//! * A pool has one group for good, which includes all allocations of its workers. Use this for few and large
//!   tenants:
//!
//! ```
//! use ledgerline::{Ledger, current};
//! use rayon::prelude::*;
//!
//! let ledger = Ledger::new()?.into_static();
//! let tenant = ledger.root().create("acme")?;
//! let pool = rayon::ThreadPoolBuilder::new()
//!     .num_threads(2)
//!     .start_handler(move |_| {
//!         current::swap(tenant.into());
//!     })
//!     .build()?;
//! pool.install(|| (0..100).into_par_iter().for_each(|_| assert_eq!(current::group(), Some(tenant))));
//!
//! // Any pool, and the group of each query:
//! let query = tenant.create("q42")?;
//! query.scope(|| {
//!     (0..100).into_par_iter().for_each(current::inherit(|_| assert_eq!(current::group(), Some(query))));
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::refused::{checkpoint, contained, held};
use super::{get, inherit_once};
use rayon_core::{Scope, ThreadPool};

/// Runs a part of some work, unless that work was refused.
fn begin<R>(part: impl FnOnce() -> R) -> R {
    checkpoint();
    part()
}

/// Like [`rayon::join`](rayon_core::join), but both closures run in the current group, as parts of the same work.
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    rayon_core::join(inherit_once(|| begin(a)), inherit_once(|| begin(b)))
}

/// Like [`rayon::spawn`](rayon_core::spawn), but the job inherits the current group. A refusal ends the job and the
/// [`catch`](crate::Group::catch) that it is a part of. It does not reach the pool's panic handler.
pub fn spawn(work: impl FnOnce() + Send + 'static) {
    rayon_core::spawn(inherit_once(|| contained(work)));
}

/// Like [`rayon::scope`](rayon_core::scope), but `work` runs in the current group. The jobs that it spawns inherit if
/// they are spawned by [`ScopeExt::spawn_inheriting`].
///
/// ```
/// use ledgerline::{Ledger, current};
/// use ledgerline::current::rayon::{ScopeExt, scope};
///
/// let ledger = Ledger::new()?.into_static();
/// let query = ledger.root().create("q42")?;
/// query.scope(|| {
///     scope(|s| {
///         s.spawn_inheriting(|s| {
///             assert_eq!(current::group(), Some(query));
///             s.spawn_inheriting(|_| assert_eq!(current::group(), Some(query)));
///         });
///     });
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn scope<'scope, R: Send>(work: impl FnOnce(&Scope<'scope>) -> R + Send) -> R {
    let here = get();
    rayon_core::scope(move |scope| here.scope(|| work(scope)))
}

/// Extends [`Scope`] with jobs that inherit the current group.
pub trait ScopeExt<'scope>: sealed::Sealed {
    /// Like [`Scope::spawn`], but the job inherits the current group.
    fn spawn_inheriting(&self, work: impl FnOnce(&Scope<'scope>) + Send + 'scope);
}

impl<'scope> ScopeExt<'scope> for Scope<'scope> {
    fn spawn_inheriting(&self, work: impl FnOnce(&Scope<'scope>) + Send + 'scope) {
        let (here, held) = (get(), held());
        self.spawn(move |scope| {
            let _held = held;
            here.scope(|| work(scope));
        });
    }
}

/// Extends [`ThreadPool`] with work that inherits the current group.
pub trait ThreadPoolExt: sealed::Sealed {
    /// Like [`ThreadPool::install`], but `work` runs in the current group. Jobs that it spawns inherit only by these
    /// functions, or by [`current::inherit`](super::inherit).
    fn install_inheriting<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R;

    /// Like [`ThreadPool::spawn`], but the job inherits the current group.
    fn spawn_inheriting(&self, work: impl FnOnce() + Send + 'static);
}

impl ThreadPoolExt for ThreadPool {
    fn install_inheriting<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.install(inherit_once(work))
    }

    fn spawn_inheriting(&self, work: impl FnOnce() + Send + 'static) {
        self.spawn(inherit_once(|| contained(work)));
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for rayon_core::Scope<'_> {}
    impl Sealed for rayon_core::ThreadPool {}
}

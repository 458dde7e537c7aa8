//! The current group of each thread. The global allocator ([`Alloc`](crate::Alloc)) charges it, and code that was not
//! given a group can ask for it.
//!
//! A thread has one current group, or none. A switch flushes nothing: units lie in the cells of the CPUs. A thread's
//! thread cache changes to another group only after a hundred or so allocations in that group.
//!
//! | to                                        | call                                                        |
//! |-------------------------------------------|-------------------------------------------------------------|
//! | have a group for a stretch of code        | [`Group::scope`], [`Group::enter`]                          |
//! | have one for a task, a stream or a sink   | [`charged_to`](future::ChargeTo::charged_to)                |
//! | hand it to another thread                 | [`spawn`], [`inherit_once`], [`inherit`]; [`get`] and [`Current::scope`] |
//! | charge it explicitly                      | [`try_charge`], [`charge`]                                  |
//! | hand it to tasks and jobs (with features) | `current::tokio`, `current::rayon`                          |
//! | make it follow spans (with a feature)     | `current::tracing`                                          |
//! | switch stacks                             | [`swap`]                                                    |
//! | exempt allocations from accounting        | [`unattributed`]                                            |
//!
//! A thread, a task or a job inherits nothing by itself: it begins without a current group, unless one of these calls
//! gives it one. The destructors of a thread's thread-locals run without one, too.
//!
//! # Tasks that outlive their group
//!
//! A destroyed group stays current wherever it was: tasks and threads go on, and [`group`] still returns it. An
//! explicit charge by such a task is refused as [`Reason::Gone`](crate::Reason::Gone), so that it ends. Its existing
//! charges stay with the group's ancestors until they are returned ([`Ledger::leaks`] lists them). Another group that
//! has the row by then is never charged. A charge belongs to the group that was current when it was made, regardless
//! of the thread that returns it: a guard or a block that outlives its task, its thread or its scope is returned to
//! that group.
//!
//! Only groups of a ledger that lives for good can be current (`Group<'static>`): blocks that are charged to a group
//! may be freed at any time, on any thread, so no scope could keep the ledger long enough. Use
//! [`Ledger::into_static`] or a `static LazyLock<Ledger>`.
//!
//! ```
//! use ledgerline::{Ledger, current};
//!
//! let ledger = Ledger::new()?.into_static();
//! let query = ledger.root().create("q42")?;
//! assert_eq!(current::group(), None);
//! query.scope(|| {
//!     assert_eq!(current::group(), Some(query));
//!     current::unattributed(|| assert_eq!(current::group(), None));
//! });
//! assert_eq!(current::group(), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod future;
mod inherit;
#[cfg(feature = "rayon")]
pub mod rayon;
pub(crate) mod refused;
pub(crate) mod slots;
#[cfg(feature = "futures")]
mod stream;
#[cfg(feature = "tokio")]
pub mod tokio;
#[cfg(feature = "tracing")]
pub mod tracing;

use crate::charge::guard::Charge;
use crate::current::slots::Slot;
use crate::error::Refused;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::scope::ScopeId;
use crate::table::handle::Packed;
use crate::whose;
pub(crate) use crate::whose::peek;
pub use crate::whose::{Current, Entered, get, swap};
pub use inherit::{inherit, inherit_once, spawn};
use std::fmt;

impl Current {
    /// Returns the group, if any.
    #[inline]
    pub fn group(self) -> Option<Group<'static>> {
        self.group.map(Group::unpack)
    }
}

impl PartialEq for Current {
    fn eq(&self, other: &Current) -> bool {
        self.group == other.group
    }
}

impl Eq for Current {}

impl fmt::Debug for Current {
    /// Formats as `Current(/acme/q42)` or `Current(nobody)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group() {
            Some(group) => write!(f, "Current({})", group.path()),
            None => f.write_str("Current(nobody)"),
        }
    }
}

impl From<Group<'static>> for Current {
    #[inline]
    fn from(group: Group<'static>) -> Current {
        Current { group: Some(group.pack()), slot: None, scope: ScopeId::UNSAID }
    }
}

impl From<&Group<'static>> for Current {
    #[inline]
    fn from(group: &Group<'static>) -> Current {
        Current::from(*group)
    }
}

impl From<Option<Group<'static>>> for Current {
    #[inline]
    fn from(group: Option<Group<'static>>) -> Current {
        group.map_or(Current::NOBODY, Current::from)
    }
}

/// Returns the calling thread's current group. Costs a load; async-signal-safe.
#[inline]
pub fn group() -> Option<Group<'static>> {
    peek().group()
}

/// Notes the allocator's slot of a group if that group is the thread's current one. Returns whether it is.
pub(crate) fn note_slot(group: Packed, slot: &'static Slot) -> bool {
    let current = peek();
    let is_current = current.group == Some(group);
    if is_current {
        whose::swap_group(Current { slot: Some(slot), ..current });
    }
    is_current
}

/// Runs `work` without a current group. For data that outlives the task that happens to make it, like a cache that
/// charges explicitly, a connection pool or a symbol table.
#[inline]
pub fn unattributed<R>(work: impl FnOnce() -> R) -> R {
    Current::NOBODY.scope(work)
}

/// Fills the tables that std makes at their first use and keeps for good, so that no query is charged for them: its
/// table of symbols, tens of megabytes in a large program, and the buffer of standard output. Call it once at start,
/// if queries print backtraces of errors. Backtraces of panics are not accounted anyway. A later backtrace through
/// other code may still add some hundred KiB. Takes as long as one backtrace.
///
/// ```
/// ledgerline::warm_up();
/// ```
pub fn warm_up() {
    unattributed(|| {
        let words = std::backtrace::Backtrace::force_capture().to_string();
        // A closed standard output is not an error here.
        let _ = std::io::Write::flush(&mut std::io::stdout());
        drop(words);
    });
}

/// Charges the current group by [`Group::try_charge`]. Returns `None` if there is no current group, and so no limit.
///
/// ```
/// use ledgerline::{Ledger, Reason, current};
///
/// fn sort(rows: u64) -> Result<(), ledgerline::Refused> {
///     let _buffer = current::try_charge(64 * rows)?; // returned at the end
///     Ok(())
/// }
///
/// let ledger = Ledger::new()?.into_static();
/// let query = ledger.root().create("q42")?;
/// query.set_max("1M".parse()?)?;
/// assert!(query.scope(|| sort(1000)).is_ok());
/// assert!(query.scope(|| sort(1_000_000)).is_err());
/// assert!(sort(1_000_000).is_ok()); // nobody's
///
/// query.destroy()?;
/// assert_eq!(query.scope(|| sort(1000)).unwrap_err().reason, Reason::Gone);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The same errors. For a destroyed group the reason is [`Reason::Gone`](crate::Reason::Gone).
#[inline]
#[track_caller]
pub fn try_charge(units: u64) -> Result<Option<Charge<'static>>, Refused> {
    let Some(group) = group() else { return Ok(None) };
    group.try_charge(units).map(Some)
}

/// Charges the current group by [`Group::charge`], even over its limits. Returns `None` if there is no current group.
///
/// # Errors
/// The same errors: for a destroyed group, and beyond 2^62 units.
#[inline]
#[track_caller]
pub fn charge(units: u64) -> Result<Option<Charge<'static>>, Refused> {
    let Some(group) = group() else { return Ok(None) };
    group.charge(units).map(Some)
}

impl Ledger {
    /// Keeps the ledger for good, so that its groups are `Group<'static>` and can be current. Its memory is freed
    /// when the process ends.
    pub fn into_static(self) -> &'static Ledger {
        Box::leak(Box::new(self))
    }
}

impl Group<'static> {
    /// Makes this the thread's current group until the guard drops, which restores the previous one.
    ///
    /// Drop the guards of one thread in the reverse order of their creation, as locals are. [`scope`](Self::scope)
    /// enforces this. In any other order each guard still restores the group that was current when it was made, so
    /// the last to drop decides, and may leave the group of an earlier guard. A forgotten guard leaves its group
    /// current.
    ///
    /// The guard must not live across an `await`: another task may be polled on the thread then, and would be charged
    /// to this group. Use [`charged_to`](future::ChargeTo::charged_to) instead. Since the guard is not `Send`, most
    /// executors refuse such a task. An executor that runs tasks on a single thread does not. On it, at least the
    /// tasks that are `charged_to` groups always restore the group that they found.
    ///
    /// ```compile_fail,E0277
    /// # use ledgerline::Ledger;
    /// # fn send<T: Send>(_: T) {}
    /// # let query = Ledger::new().unwrap().into_static().root();
    /// send(async move {
    ///     let _entered = query.enter();
    ///     std::future::ready(()).await;
    /// });
    /// ```
    #[inline]
    pub fn enter(self) -> Entered {
        Entered::new(self.into())
    }

    /// Runs `work` with this as the thread's current group. Restores the previous one even if `work` unwinds.
    #[inline]
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        Current::from(self).scope(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn groups() -> [Group<'static>; 2] {
        let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
        ["a", "b"].map(|name| ledger.root().create(name).unwrap())
    }

    #[test]
    fn a_scope_ends_where_it_began_also_when_it_unwinds() {
        let [a, b] = groups();
        let _a = a.enter();
        let unwound = std::panic::catch_unwind(|| {
            b.scope(|| {
                assert_eq!(group(), Some(b));
                std::panic::resume_unwind(Box::new(()));
            })
        });
        assert!(unwound.is_err());
        assert_eq!(group(), Some(a));
        assert_eq!(unattributed(group), None);
        assert_eq!(
            std::thread::spawn(group).join().unwrap(),
            None,
            "a thread inherits nothing by itself"
        );
    }

    #[test]
    fn of_guards_in_a_wrong_order_the_last_to_drop_decides() {
        let [a, b] = groups();
        let (outer, inner) = (a.enter(), b.enter());
        drop(outer);
        assert_eq!(group(), None);
        drop(inner);
        assert_eq!(group(), Some(a));
        swap(Current::NOBODY);
        std::mem::forget(b.enter());
        assert_eq!(group(), Some(b));
        swap(Current::NOBODY);
    }

    #[test]
    fn there_is_a_current_group_until_the_last_destructor_of_a_thread() {
        struct AtExit(Group<'static>);
        impl Drop for AtExit {
            fn drop(&mut self) {
                assert_eq!(group(), None);
                assert_eq!(self.0.scope(group), Some(self.0));
                self.0.scope(|| drop(try_charge(1).unwrap().expect("a group is current")));
                SEEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        static SEEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        thread_local!(static KEPT: Cell<Option<AtExit>> = const { Cell::new(None) });
        let [a, _] = groups();
        std::thread::spawn(move || KEPT.set(Some(AtExit(a)))).join().unwrap();
        assert_eq!(SEEN.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(a.precise(), 0);
    }

    #[test]
    fn an_explicit_charge_goes_to_the_current_group_or_to_nobody() {
        let [a, b] = groups();
        assert!(try_charge(5).unwrap().is_none() && charge(5).unwrap().is_none());
        a.set_max(crate::Limit::units(10)).unwrap();
        let held = a.scope(|| try_charge(7)).unwrap();
        assert_eq!(a.scope(|| try_charge(7)).unwrap_err().group, "/a");
        let over = a.scope(|| charge(7)).unwrap();
        assert_eq!((a.precise(), b.precise()), (14, 0));
        b.scope(|| drop((held, over)));
        assert_eq!((a.precise(), b.precise()), (0, 0), "returned to whom it was charged");
    }

    #[test]
    fn what_is_swapped_out_is_what_was_there() {
        let [a, b] = groups();
        assert_eq!(swap(a.into()), Current::NOBODY);
        assert_eq!(swap(b.into()), a.into());
        assert_eq!(format!("{:?}", get()), "Current(/b)");
        assert_eq!(swap(Current::NOBODY).group(), Some(b));
        assert_eq!(format!("{:?}", get()), "Current(nobody)");
    }
}

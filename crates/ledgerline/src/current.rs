//! The current group of each thread: what the global allocator ([`Alloc`](crate::Alloc)) charges, and what code
//! that was handed no group may ask for.
//!
//! A thread has one current group, or none. [`Group::enter`] and [`Group::scope`] change it for a stretch of code,
//! [`ChargeTo::charged_to`](future::ChargeTo::charged_to) for each poll of a task, and [`swap`] for runtimes that
//! switch stacks by themselves. Nothing is flushed at a switch, since a thread holds no units: they lie in the cells
//! of the CPUs.
//!
//! Only groups of a ledger that lives for good can be current (`Group<'static>`): blocks that are charged to a group
//! may be freed at any time, on any thread, so no scope could keep the ledger for long enough. [`Ledger::into_static`] makes
//! such a ledger, and so does a `static LazyLock<Ledger>`.
//!
//! ```
//! use ledgerline::{Ledger, current};
//!
//! let ledger = Ledger::new()?.into_static();
//! let query = ledger.root().create("q42")?;
//! assert_eq!(current::group(), None);
//! query.scope(|| {
//!     assert_eq!(current::group(), Some(query));
//!     current::uncharged(|| assert_eq!(current::group(), None));
//! });
//! assert_eq!(current::group(), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod future;

use crate::group::Group;
use crate::ledger::Ledger;
use crate::slots::Slot;
use crate::table::handle::Packed;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// What a thread, a task or a fiber has as its current group: a group or nobody. A word and a number, to be kept by
/// whoever switches ([`swap`]).
#[derive(Clone, Copy)]
pub struct Current {
    group: Option<Packed>,
    /// The allocator's slot of the group, once it is known, and where the fast half of a charge works.
    slot: Option<&'static Slot>,
}

thread_local! {
    // Constant and without a destructor: it is there before `main`, and until the thread's last instruction.
    static CURRENT: Cell<Current> = const { Cell::new(Current::NOBODY) };
}

impl Current {
    /// No group: what is allocated is charged to nobody.
    pub const NOBODY: Current = Current { group: None, slot: None };

    #[inline(always)]
    pub(crate) fn packed(self) -> Option<Packed> {
        self.group
    }

    /// See the field.
    #[inline(always)]
    pub(crate) fn slot(self) -> Option<&'static Slot> {
        self.slot
    }

    /// The group; `None` for nobody.
    #[inline]
    pub fn group(self) -> Option<Group<'static>> {
        self.group.map(Group::unpack)
    }

    /// Runs `work` with this as the thread's current group, also when it unwinds.
    #[inline]
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(self);
        work()
    }
}

impl PartialEq for Current {
    fn eq(&self, other: &Current) -> bool {
        self.group == other.group
    }
}

impl Eq for Current {}

impl fmt::Debug for Current {
    /// `Current(/acme/q42)`, `Current(nobody)`.
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
        Current { group: Some(group.pack()), slot: None }
    }
}

impl From<Option<Group<'static>>> for Current {
    #[inline]
    fn from(group: Option<Group<'static>>) -> Current {
        group.map_or(Current::NOBODY, Current::from)
    }
}

/// The calling thread's current group. Costs a load; async-signal-safe.
#[inline]
pub fn group() -> Option<Group<'static>> {
    get().group()
}

/// What the calling thread has as its current group, to be kept or handed to another thread.
#[inline]
pub fn get() -> Current {
    CURRENT.get()
}

/// Notes the allocator's slot of a group, if that is the thread's current one.
pub(crate) fn note_slot(group: Packed, slot: &'static Slot) {
    if get().group == Some(group) {
        CURRENT.set(Current { group: Some(group), slot: Some(slot) });
    }
}

/// Exchanges the calling thread's current group, and returns the one before. For runtimes that switch stacks by
/// themselves: they swap when they resume a fiber, and swap back, and keep what comes out, when it yields.
/// (Everything else is better off with [`Group::scope`].) Costs a few plain instructions; async-signal-safe.
#[inline]
pub fn swap(next: Current) -> Current {
    CURRENT.replace(next)
}

/// Runs `work` with nobody as the current group: for what outlives the task that happens to make it, like a cache
/// that charges explicitly.
#[inline]
pub fn uncharged<R>(work: impl FnOnce() -> R) -> R {
    Current::NOBODY.scope(work)
}

impl Ledger {
    /// Keeps the ledger for good, so that its groups are `Group<'static>` and can be current. Its memory goes with
    /// the process.
    pub fn into_static(self) -> &'static Ledger {
        Box::leak(Box::new(self))
    }
}

impl Group<'static> {
    /// Makes this the thread's current group until the guard drops; then it is again the one before.
    ///
    /// Guards of one thread are to be dropped in the order opposite to that in which they were made. ([`scope`](Self::scope)
    /// cannot do otherwise.) The guard must not live across an `await`: another task may be polled on the thread
    /// then. [`charged_to`](future::ChargeTo::charged_to) is for that; the guard is not `Send`, so that most
    /// executors refuse such a task.
    #[inline]
    pub fn enter(self) -> Entered {
        Entered::new(self.into())
    }

    /// Runs `work` with this as the thread's current group, also when it unwinds.
    #[inline]
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        Current::from(self).scope(work)
    }
}

/// What [`Group::enter`] returns: when it drops, the thread's current group is again the one before.
#[must_use = "a guard that is dropped at once ends at once"]
#[derive(Debug)]
pub struct Entered {
    before: Current,
    /// It belongs to the thread that entered.
    thread: PhantomData<*const ()>,
}

impl Entered {
    #[inline]
    pub(crate) fn new(current: Current) -> Entered {
        Entered { before: swap(current), thread: PhantomData }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        swap(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(uncharged(group), None);
        assert_eq!(
            std::thread::spawn(group).join().unwrap(),
            None,
            "a thread inherits nothing by itself"
        );
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

//! Keeps the group that the calling thread's allocations are charged to, and the scope that they belong to, in three words.
//! `current` documents their use.
//!
//! They lie below all code that charges: internal allocations of the ledger are [exempt](nobody) from charging.

use crate::percpu::word;
use crate::scope::ScopeId;
use crate::table::handle::Packed;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// The current group of a thread, a task or a fiber, if any, and the [`catch`](crate::Group::catch) that it runs in. It has
/// three words, to be kept by code that switches tasks or stacks ([`swap`]).
///
/// A value made from a [`Group`](crate::Group) names no catch: work that is entered with it stays in the catch around it. A
/// value from [`get`] names the catch that was current there, or that there was none.
#[derive(Clone, Copy)]
pub struct Current {
    pub(crate) group: Option<Packed>,
    /// The allocator's slot of the group, once it is known, if the fast half of a charge works on this machine.
    pub(crate) slot: Option<&'static Slot>,
    pub(crate) scope: ScopeId,
}

impl Current {
    /// No group: allocations are not charged.
    pub const NOBODY: Current = Current { group: None, slot: None, scope: ScopeId::UNSAID };

    /// Runs `work` with this as the thread's current group, also when it unwinds.
    #[inline]
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(self);
        work()
    }

    /// Returns the same group in a scope.
    #[inline]
    pub(crate) fn within(self, scope: ScopeId) -> Current {
        Current { scope, ..self }
    }

    /// Returns the same value, but with the scope `NONE` if it has none.
    #[inline(always)]
    fn told(self) -> Current {
        let scope = if self.scope.is_unsaid() { ScopeId::NONE } else { self.scope };
        Current { scope, ..self }
    }
}

/// The place of one number by which the allocator's blocks name their owner. `current/slots.rs` documents its readers, its
/// writers and their order.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct Slot {
    /// The group; zero before there is one, or busy. It is stored last.
    pub(crate) group: AtomicU64,
    /// Its handle's parts (R2).
    pub(crate) cell: AtomicPtr<word::Cell>,
    pub(crate) generation_bits: AtomicU64,
    pub(crate) number: AtomicU64,
}

thread_local! {
    // Constants without destructors: they exist before `main`, and until the thread's last instruction.
    static CURRENT: Words = const { Words::new(Current::NOBODY) };
}

/// A [`Current`] whose words are read and written one by one. A load of two words at once, right after a store of each, would
/// wait for both: two nanoseconds a poll.
struct Words {
    group: Cell<Option<Packed>>,
    slot: Cell<Option<&'static Slot>>,
    scope: Cell<ScopeId>,
}

impl Words {
    const fn new(current: Current) -> Words {
        let Current { group, slot, scope } = current;
        Words { group: Cell::new(group), slot: Cell::new(slot), scope: Cell::new(scope) }
    }

    #[inline(always)]
    fn get(&self) -> Current {
        Current { group: self.group.get(), slot: self.slot.get(), scope: self.scope.get() }
    }

    #[inline(always)]
    fn set(&self, current: Current) {
        self.group.set(current.group);
        self.slot.set(current.slot);
        self.scope.set(current.scope);
    }

    #[inline(always)]
    fn replace(&self, next: Current) -> Current {
        let before = self.get();
        self.set(next);
        before
    }
}

/// Returns the calling thread's current group and its catch, to be kept or handed to another thread. A signal handler may find
/// the words halfway exchanged. It should call [`group`](crate::current::group), which reads one word.
#[inline(always)]
pub fn get() -> Current {
    CURRENT.with(Words::get).told()
}

/// Like [`get`], for callers that look at a part of it.
#[inline(always)]
pub(crate) fn peek() -> Current {
    CURRENT.with(Words::get)
}

/// Returns the scope of the calling thread's work.
#[inline(always)]
pub(crate) fn scope() -> ScopeId {
    CURRENT.with(|words| words.scope.get())
}

/// Exchanges the calling thread's current group, and returns the previous one. For runtimes that switch stacks by themselves:
/// they swap when they resume a fiber, and swap back when it yields, and keep the value that the second swap returns. All other
/// code is better off with [`Group::scope`](crate::Group::scope). Costs a few plain instructions. It is async-signal-safe for a
/// handler that swaps back before it returns.
///
/// A fiber that continues on another thread has the hazard of every thread-local there: a function that read one before the
/// switch may keep its address.
///
/// ```
/// use ledgerline::current::{self, Current};
///
/// /// What a scheduler keeps of a fiber that does not run.
/// struct Fiber {
///     current: Current,
/// }
///
/// fn resume(fiber: &mut Fiber, run_until_it_yields: impl FnOnce()) {
///     let scheduler = current::swap(fiber.current);
///     run_until_it_yields();
///     fiber.current = current::swap(scheduler);
/// }
/// # let ledger = ledgerline::Ledger::new()?.into_static();
/// # let query = ledger.root().create("q42")?;
/// # let mut fiber = Fiber { current: query.into() };
/// # resume(&mut fiber, || assert_eq!(current::group(), Some(query)));
/// # assert_eq!(current::group(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline(always)]
pub fn swap(next: Current) -> Current {
    CURRENT.with(|words| words.replace(next)).told()
}

/// Like [`swap`], for callers that put the returned value back.
#[inline(always)]
pub(crate) fn replace(next: Current) -> Current {
    CURRENT.with(|words| words.replace(next))
}

/// Like [`swap`], but the thread stays in its scope.
#[inline(always)]
pub(crate) fn swap_group(next: Current) {
    CURRENT.with(|words| words.set(next.within(scope())));
}

/// The guard that [`Group::enter`](crate::Group::enter) returns. When it drops, the previous group is current again.
#[must_use = "a guard that is dropped at once ends at once"]
#[derive(Debug)]
pub struct Entered {
    before: Current,
    /// It belongs to the thread that entered.
    thread: PhantomData<*const ()>,
}

impl Entered {
    /// Enters. If `current` names no scope, the thread stays in the scope around it.
    #[inline]
    pub(crate) fn new(current: Current) -> Entered {
        let before = peek();
        let scope = if current.scope.is_unsaid() { before.scope } else { current.scope };
        CURRENT.with(|words| words.set(current.within(scope)));
        Entered { before, thread: PhantomData }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        swap(self.before);
    }
}

/// Returns whether the thread is in [`granting`].
pub(crate) fn is_granting() -> bool {
    scope().is_granting()
}

/// Runs `work`, whose allocations are granted over any limit, because it ends refused work.
pub(crate) fn granting<R>(work: impl FnOnce() -> R) -> R {
    let current = peek();
    current.within(current.scope.granting()).scope(work)
}

/// Runs `work` without a current group and without a limit: for the ledger's own needs. Describing a refusal must not itself be
/// refused by the very group that is full.
pub(crate) fn nobody<R>(work: impl FnOnce() -> R) -> R {
    Current::NOBODY.within(scope().granting()).scope(work)
}

//! Whom the calling thread's allocations are charged to, in two words. What they mean, `current` says.
//!
//! They lie below all that charges, so that the ledger can say of its own needs that they are [nobody's](nobody).

use crate::percpu::word;
use crate::table::handle::Packed;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// What a thread, a task or a fiber has as its current group: a group or nobody. A word and a number, to be kept by
/// whoever switches ([`swap`]).
#[derive(Clone, Copy)]
pub struct Current {
    pub(crate) group: Option<Packed>,
    /// The allocator's slot of the group, once it is known, and where the fast half of a charge works.
    pub(crate) slot: Option<&'static Slot>,
}

impl Current {
    /// No group: what is allocated is charged to nobody.
    pub const NOBODY: Current = Current { group: None, slot: None };

    /// Runs `work` with this as the thread's current group, also when it unwinds.
    #[inline]
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(self);
        work()
    }
}

/// The place of one number by which the allocator's blocks name their owner. (Who writes and reads it, and in which
/// order, is all in `current/slots.rs`.)
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
    // Constants without destructors: they are there before `main`, and until the thread's last instruction.
    static CURRENT: Cell<Current> = const { Cell::new(Current::NOBODY) };
    /// Whether what a limit refuses is granted all the same.
    static GRANTING: Cell<bool> = const { Cell::new(false) };
}

/// What the calling thread has as its current group, to be kept or handed to another thread: two words. (A signal
/// handler may find them halfway exchanged. It asks [`group`](crate::current::group), which is one.)
#[inline(always)]
pub fn get() -> Current {
    CURRENT.get()
}

/// Exchanges the calling thread's current group, and returns the one before. For runtimes that switch stacks by
/// themselves: they swap when they resume a fiber, and swap back, and keep what comes out, when it yields.
/// (Everything else is better off with [`Group::scope`](crate::Group::scope).) Costs a few plain instructions. It is
/// async-signal-safe for a handler that swaps back before it returns.
///
/// A fiber that goes on on another thread has the hazard of every thread-local there: a function that read one before
/// the switch may keep its address.
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
    CURRENT.replace(next)
}

/// What [`Group::enter`](crate::Group::enter) returns: when it drops, the thread's current group is again the one before.
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

/// Whether the thread is in [`granting`].
pub(crate) fn is_granting() -> bool {
    GRANTING.get()
}

/// Runs `work`, whose allocations are granted over any limit: it ends what was refused.
pub(crate) fn granting<R>(work: impl FnOnce() -> R) -> R {
    /// Ends it, also when `work` unwinds.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            GRANTING.set(self.0);
        }
    }
    let _before = Before(GRANTING.replace(true));
    work()
}

/// Runs `work` with nobody current and no limit in its way: what the ledger needs for itself. A refusal that is put into
/// words must not be refused the words, by the very group that is full.
pub(crate) fn nobody<R>(work: impl FnOnce() -> R) -> R {
    Current::NOBODY.scope(|| granting(work))
}

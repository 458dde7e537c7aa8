//! Whom the calling thread's allocations are charged to, in two words. What they mean, `current` says.
//!
//! They lie below all that charges, so that the ledger can say of its own needs that they are [nobody's](nobody).

use crate::percpu::word;
use crate::table::handle::Packed;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// What a thread, a task or a fiber has as its current group: a group or nobody. A word and a number, to be kept by
/// whoever switches ([`swap`](crate::current::swap)).
#[derive(Clone, Copy)]
pub struct Current {
    pub(crate) group: Option<Packed>,
    /// The allocator's slot of the group, once it is known, and where the fast half of a charge works.
    pub(crate) slot: Option<&'static Slot>,
}

impl Current {
    /// No group: what is allocated is charged to nobody.
    pub const NOBODY: Current = Current { group: None, slot: None };
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

#[inline(always)]
pub(crate) fn get() -> Current {
    CURRENT.get()
}

#[inline(always)]
pub(crate) fn replace(next: Current) -> Current {
    CURRENT.replace(next)
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
    /// As above.
    struct Before(Current);
    impl Drop for Before {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _before = Before(CURRENT.replace(Current::NOBODY));
    granting(work)
}

//! Whom the calling thread's allocations are charged to, in two words. What they mean, `current` says.
//!
//! They lie below all that charges, so that the ledger can say of its own needs that they are [nobody's](nobody).

use crate::table::handle::Packed;
use std::cell::Cell;
use std::ptr::NonNull;

/// What is kept of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Whose {
    /// The current group.
    pub group: Option<Packed>,
    /// The allocator's slot of the group (`current/slots.rs`), if it is known.
    pub slot: Option<NonNull<()>>,
}

impl Whose {
    const NOBODY: Whose = Whose { group: None, slot: None };
}

thread_local! {
    // Constants without destructors: they are there before `main`, and until the thread's last instruction.
    static CURRENT: Cell<Whose> = const { Cell::new(Whose::NOBODY) };
    /// Whether what a limit refuses is granted all the same.
    static GRANTING: Cell<bool> = const { Cell::new(false) };
}

#[inline(always)]
pub(crate) fn get() -> Whose {
    CURRENT.get()
}

#[inline(always)]
pub(crate) fn replace(next: Whose) -> Whose {
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
    struct Before(Whose);
    impl Drop for Before {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _before = Before(CURRENT.replace(Whose::NOBODY));
    granting(work)
}

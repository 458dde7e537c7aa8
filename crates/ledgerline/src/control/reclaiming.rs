//! Tells whether the calling thread reclaims, by a list of frames on its stack. So any number of threads
//! may reclaim at a time, and nothing is allocated.
//!
//! A thread that reclaims in a ledger runs that ledger's reclaimers. What they charge there reclaims
//! nothing and does not wait, since it could wait for itself. In another ledger it may do both.

use crate::ledger::Ledger;
use crate::table::Table;
use std::cell::Cell;
use std::iter::successors;
use std::ptr;

thread_local! {
    // A plain word with nothing to drop exists from the thread's first instruction to its last. So it can
    // be read at any time, in a signal handler too.
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// One reclaim that this thread has begun and not ended. R4: a frame in the list lives on this thread's
/// stack, in a call of [`inside`] that has not returned.
struct Frame {
    table: *const Table,
    outer: *const Frame,
}

impl Drop for Frame {
    /// Takes it, the innermost one, out of the list, whether the call returns or unwinds.
    fn drop(&mut self) {
        INNERMOST.set(self.outer);
    }
}

/// Calls `act` as a thread that reclaims in a ledger.
pub(crate) fn inside<T>(ledger: &Ledger, act: impl FnOnce() -> T) -> T {
    let frame = Frame { table: ledger.table(), outer: INNERMOST.get() };
    INNERMOST.set(&raw const frame);
    act()
}

/// Whether this thread reclaims in a ledger.
pub(crate) fn is_inside(ledger: &Ledger) -> bool {
    // SAFETY: R4; guarded by the test below.
    let frame = |frame: *const Frame| unsafe { frame.as_ref() };
    let mut frames = successors(frame(INNERMOST.get()), |inner| frame(inner.outer));
    frames.any(|frame| ptr::eq(frame.table, ledger.table()))
}

/// Whether this thread reclaims in any ledger.
pub(crate) fn is_inside_any() -> bool {
    !INNERMOST.get().is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_thread_is_inside_of_those_ledgers_that_it_has_not_left() {
        let [a, b] = [0; 2].map(|_| Ledger::builder().capacity(2).anonymous().unwrap());
        let both = || (is_inside(&a), is_inside(&b));
        assert_eq!(both(), (false, false));
        inside(&a, || {
            assert_eq!(both(), (true, false));
            let left = catch_unwind(AssertUnwindSafe(|| {
                inside(&b, || {
                    assert_eq!(both(), (true, true));
                    inside(&a, || assert_eq!(both(), (true, true)));
                    assert_eq!(both(), (true, true));
                    panic!("out of it");
                });
            }));
            assert!(left.is_err());
            assert_eq!(both(), (true, false));
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(both(), (false, false))).join().unwrap();
            });
        });
        assert_eq!(both(), (false, false));
    }
}

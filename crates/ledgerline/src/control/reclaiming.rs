//! Determines from the scopes of work whether it runs in a reclaimer.
//!
//! A charge of a reclaimer to its own ledger does not reclaim or wait, since it could wait for itself. A charge to
//! another ledger may do both. This also holds for the parts that a reclaimer hands to other threads. It does not
//! hold for an unrelated job that its thread runs while it waits for a part.

use crate::ledger::Ledger;
use crate::scope::{self, Held};
use crate::whose;

/// Calls `act` as work that reclaims in a ledger; `None` if there are too many scopes.
pub(crate) fn inside<T>(ledger: &Ledger, act: impl FnOnce() -> T) -> Option<T> {
    let outer = whose::scope();
    let scope = Held::begin_reclaim(outer, ledger.table())?;
    let id = if outer.is_granting() { scope.id().granting() } else { scope.id() };
    Some(whose::peek().within(id).scope(act))
}

/// Returns whether the calling thread's work reclaims in a ledger.
pub(crate) fn is_inside(ledger: &Ledger) -> bool {
    scope::reclaims(whose::scope(), Some(ledger.table()))
}

/// Returns whether the calling thread's work reclaims in any ledger.
pub(crate) fn is_inside_any() -> bool {
    scope::reclaims(whose::scope(), None)
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

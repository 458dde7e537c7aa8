//! The book's own time. It never goes back, so leases that have ended stay ended, and a message that comes later is known as
//! late.

use serde::{Deserialize, Serialize};

use super::Terms;

/// The time by which leases end.
///
/// It follows the store's clock while that goes forward. If the clock goes back by at most a lease and its grace, the time stands
/// still until the clock catches up, and leases end late by as much. If the clock goes back by more, the time continues from
/// where it stood and stays ahead of the clock, so leases end on time.
///
/// Small steps must not move the time ahead: the members of an etcd cluster report the time in turns, each slightly different,
/// and the time would run too fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Time {
    /// The latest time so far.
    latest: u64,
    /// How far the time is ahead of the store's clock.
    ahead: u64,
}

impl Time {
    /// Returns the time for a store's clock of `clock`.
    pub fn at(self, clock: u64, terms: Terms) -> Self {
        let shown = clock + self.ahead;
        if shown >= self.latest {
            Self { latest: shown, ..self }
        } else if self.latest - shown <= terms.ttl + terms.grace {
            self
        } else {
            Self { ahead: self.latest - clock, ..self }
        }
    }

    pub fn now(self) -> u64 {
        self.latest
    }
}

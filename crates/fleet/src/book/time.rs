//! The book's own time. It never goes back, so what has ended stays ended, and a message that comes after that is known as late.

use serde::{Deserialize, Serialize};

use super::Terms;

/// The time by which leases end.
///
/// It is the store's clock while that goes on. Where the clock goes back by at most a lease and its grace, the time stands still
/// until the clock is there again: leases end late by as much. Where the clock goes back by more, the time goes on from where it
/// stood, ahead of the clock from then on: leases end in time. (Members of an etcd tell the time in turns, each a little
/// different. If each step back put the time ahead, it would run too fast.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Time {
    /// The latest time there was.
    latest: u64,
    /// By how much the time is ahead of the store's clock.
    ahead: u64,
}

impl Time {
    /// The time while the store's clock shows `clock`.
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

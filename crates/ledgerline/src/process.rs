//! Processes that share one ledger: each has rows of its own, and reaches the common ancestors
//! through their totals alone.
//!
//! Compact CPU ids and the remote fence are private to a process, so a cell has one writing
//! process: the `owner` of its row. When that process is gone, whoever notices settles its rows.

use crate::error::CreateError;
use crate::group::Group;
use crate::ledger::{Ledger, Row, state};
use crate::sync::{AtomicU32, Ordering};

/// The number under which this process charges ledgers that it shares; 0 before it attaches.
///
/// Beside the ledgers and not in them, so that a `Ledger` is plain read-only data to its users and
/// the compiler may keep its fields in registers across charges.
static ATTACHED: AtomicU32 = AtomicU32::new(0);

pub(crate) fn attached() -> u32 {
    ATTACHED.load(Ordering::Relaxed)
}

impl Ledger {
    /// Makes the calling process a writer of this ledger: creates a group for it below the root and
    /// lets this value charge that group and what is created below it. Rows of an earlier program
    /// in the same process (before an `exec`) are settled first. Allocates nothing on the heap.
    ///
    /// A forked child calls it for itself before it charges anything; until then it must not use
    /// the groups that it inherited.
    ///
    /// # Errors
    /// As [`Group::create`].
    pub fn attach_process(&self, name: &str, pid: u32) -> Result<Group<'_>, CreateError> {
        self.settle(&|owner| owner != pid);
        ATTACHED.store(pid, Ordering::Relaxed);
        self.root().create_owned(name, pid)
    }

    /// Settles the rows of processes that ended: their units go back to the ancestors, and they
    /// stay in snapshots as [`Exited`](crate::GroupState::Exited) with what they held. Returns how
    /// many units that were.
    ///
    /// Any process that has the ledger open may do this at any time; each row is settled once. A
    /// process that was killed in the middle of a fetch leaves its ancestors too full by that
    /// fetch (at most a batch and the request, a thread).
    pub fn settle_dead(&self, alive: &dyn Fn(u32) -> bool) -> u64 {
        self.settle(alive)
    }

    fn settle(&self, keep: &dyn Fn(u32) -> bool) -> u64 {
        // Rows of one process come in runs, so the last answer is usually the next one.
        let mut last = (0, true);
        let mut kept = |owner: u32| {
            if owner != last.0 {
                last = (owner, keep(owner));
            }
            last.1
        };
        let mut released = 0;
        for index in 1..self.high_water() {
            let row = self.row(index);
            let owner = row.owner.load(Ordering::Relaxed);
            if owner != 0 && row.state.load(Ordering::Acquire) == state::LIVE && !kept(owner) {
                released += self.settle_row(index, row, owner);
            }
        }
        released
    }

    /// Settles the topmost row of a dead process (the others are below it, and go with it).
    fn settle_row(&self, index: u32, row: &Row, owner: u32) -> u64 {
        let parent = row.parent.load(Ordering::Relaxed).min(self.capacity() - 1);
        let is_top = self.row(parent).owner.load(Ordering::Relaxed) != owner;
        let idle = self.idle(index).0;
        let held = row.counter.usage().saturating_sub(idle);
        // One process settles a row: the one that changes its state.
        let mine = row
            .state
            .compare_exchange(state::LIVE, state::EXITED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if !mine {
            return 0;
        }
        row.at_exit.store(held, Ordering::Relaxed);
        if !is_top {
            return 0;
        }
        let prepaid = row.counter.track.prepaid.load(Ordering::Relaxed);
        let (usage, reserved) = row.counter.take_all();
        let Some(path) = crate::path::RowPath::new(self, index) else { return 0 };
        for counter in &path.counters()[1..] {
            if counter.remove(usage, reserved).is_err() {
                self.count_underflow();
            }
            counter.disallow(prepaid);
        }
        usage
    }
}

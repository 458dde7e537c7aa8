//! Processes share one ledger: each has rows of its own, and reaches the common ancestors through their
//! totals alone.
//!
//! Compact CPU ids and the remote fence are private to a process, so a cell has one writing process: the
//! `owner` of its row. When that process is gone, any process that notices settles its rows.

use crate::error::CreateError;
use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::settle;
use crate::table::attached;
use crate::tree;

impl Ledger {
    /// Makes the calling process a writer of this ledger. Creates a group for it below the root, and lets
    /// this value charge that group and the groups created below it. Rows of an earlier program in the same
    /// process (before an `exec`) are settled first. Allocates nothing on the heap.
    ///
    /// A forked child calls it for itself before it charges anything; until then it must not use
    /// the groups that it inherited.
    ///
    /// # Errors
    /// As [`Group::create`].
    pub fn attach_process(&self, name: &str, pid: u32) -> Result<Group<'_>, CreateError> {
        let before = attached::process();
        if before != 0 && before != pid {
            // This is a forked child: the threads that held the lock or passed the gate are the parent's.
            lock::forget_others();
            if let Some(audit) = self.audit() {
                audit.forget();
            }
        }
        settle::all_but(self.table(), &|owner| owner != pid);
        attached::attach(pid);
        tree::create(self.root(), name, pid)
    }

    /// Settles the rows of processes that ended: their units go back to the ancestors, and they
    /// stay in snapshots as [`Exited`](crate::GroupState::Exited) with what they held. Returns how
    /// many units that were.
    ///
    /// Any process that has the ledger open may do this at any time; each row is settled once. A
    /// process that was killed in the middle of a fetch leaves its ancestors too full by that
    /// fetch (at most a batch and the request, a thread).
    pub fn settle_dead(&self, alive: &dyn Fn(u32) -> bool) -> u64 {
        settle::all_but(self.table(), alive)
    }
}

//! Processes share one ledger: each has its own rows, and reaches the common ancestors only through their totals.
//!
//! Compact CPU ids and the remote fence are private to a process, so only one process writes a cell: the `owner` of its row.
//! When that process is gone, any process that notices settles its rows.

use crate::error::CreateError;
use crate::gate::lock;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::stock::settle;
use crate::sync::Ordering;
use crate::table::attached;
use crate::tree::{self, Taken};

impl Ledger {
    /// Makes the calling process a writer of this ledger. Creates a group for it below the root, and lets this value charge
    /// that group and the groups created below it. Rows of an earlier program in the same process, before an `exec`, are
    /// settled first. Allocates nothing on the heap.
    ///
    /// A forked child calls it for itself before it charges anything; until then it must not use the groups that it
    /// inherited.
    ///
    /// Processes may share a name: in other PID namespaces they may share a number, too.
    ///
    /// # Errors
    /// Same as [`Group::create`].
    pub fn attach_process(&self, name: &str, pid: u32) -> Result<Group<'_>, CreateError> {
        let before = attached::process();
        if before != 0 && before != pid {
            // This is a forked child: the threads that held the lock or passed the gate belong to the parent.
            lock::forget_others();
            if let Some(audit) = self.audit() {
                audit.forget();
            }
        }
        settle::earlier(self.table(), pid);
        attached::attach(pid);
        tree::create(self.root(), name, pid, Taken::Allowed)
    }

    /// Creates a group below the root for another process that does not attach. Such a process cannot be charged, but is
    /// listed in the account. It is [settled](Self::settle_dead) when that process ends.
    ///
    /// # Errors
    /// Same as [`Group::create`].
    pub fn create_for_process(&self, name: &str, pid: u32) -> Result<Group<'_>, CreateError> {
        tree::create(self.root(), name, pid, Taken::Allowed)
    }

    /// Returns how many processes failed to map the ledger because they had too little address space.
    pub fn turned_away(&self) -> u64 {
        self.table().header().turned_away.load(Ordering::Relaxed)
    }

    /// Settles the rows of processes that ended, unless another process is doing so: their units are returned to the
    /// ancestors, and they stay in snapshots as [`Exited`](crate::GroupState::Exited) with the units that they held. Returns
    /// the number of these units.
    ///
    /// Any process that has the ledger open may do this at any time; each row is settled once. A process that was killed in
    /// the middle of a fetch leaves its ancestors too full by that fetch: for each thread, at most a batch and the request.
    pub fn settle_dead(&self, alive: &dyn Fn(u32) -> bool) -> u64 {
        settle::all_but(self.table(), alive)
    }

    /// Returns the groups of processes that ended and were [settled](Self::settle_dead), the topmost one of each. Costs a
    /// pass over the rows in use.
    pub fn ended(&self) -> impl Iterator<Item = Group<'_>> {
        settle::ended(self.table()).map(|row| self.group(self.table().id(row)))
    }

    /// Folds processes that [`ended`](Self::ended) into a group with the same parent, so that a ledger has room for any
    /// number of processes, one after the other. The group gets their counts, the sum of the units that they held at their
    /// ends, and their highest peak; their rows are free for new groups. Returns the handles of the folded groups, which no
    /// longer name a group. A process stays if a part of it is not settled yet, and all stay if another process is settling.
    ///
    /// Costs a pass over the rows in use, and memory for the list. A reader that looks at both groups meanwhile may find a
    /// count in both or in neither; units are never in either. At most one process folds or settles at a time.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// # let path = std::env::temp_dir().join(format!("ledger-fold-{}", std::process::id()));
    /// # let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// # std::fs::remove_file(&path)?;
    /// let ledger = Ledger::builder().create_in(&file)?;
    /// let jobs = ledger.root().create("jobs")?;
    ///
    /// // In a process of its own, which ends without returning what it holds:
    /// let job = ledger.attach_process("job", 4711)?;
    /// job.try_charge_units(1000).map_err(|refusal| format!("{refusal:?}"))?;
    ///
    /// // In any process, later:
    /// ledger.settle_dead(&|process| process != 4711);
    /// let ended: Vec<_> = ledger.ended().collect();
    /// assert_eq!(ledger.fold_ended(&ended, jobs), [job]);
    /// assert_eq!((job.exists(), ledger.root().precise()), (false, 0));
    /// assert_eq!(ledger.snapshot().groups[1].at_exit, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fold_ended<'l>(&'l self, ended: &[Group<'l>], into: Group<'_>) -> Vec<Group<'l>> {
        if !into.exists() {
            return Vec::new();
        }
        let row = |group: Group<'_>| group.id().index();
        let is_there = |group: &Group<'_>| {
            row(*group) < self.capacity() && self.table().id(row(*group)) == group.id()
        };
        let ended: Vec<Group<'l>> = ended.iter().copied().filter(is_there).collect();
        let rows: Vec<u32> = ended.iter().copied().map(row).collect();
        let folded = settle::fold_into(self.table(), &rows, row(into));
        ended.into_iter().filter(|&group| folded.contains(&row(group))).collect()
    }

    /// Charges a group even if a limit forbids it, as long as the ledger then holds no more than `most` units. So a refused
    /// program can still get the memory to report the refusal, out of a reserve: `most` is the root's max and the reserve
    /// together. Returns `false`, and charges nothing, if there is no such room, or if another process settles, or charges
    /// in this way, for too long. `alive` is as in [`settle_dead`](Self::settle_dead).
    ///
    /// The ledger never holds more than `most`: charges that the root's max allows end below it, and of the others only one
    /// is made at a time. Costs a lock that processes share, and a walk.
    pub fn charge_reserve(
        &self,
        group: Group<'_>,
        units: u64,
        most: u64,
        alive: &dyn Fn(u32) -> bool,
    ) -> bool {
        let max = self.root().max().get().unwrap_or(u64::MAX);
        // Otherwise this charge and one that the max allowed a moment ago could exceed `most`.
        if most.saturating_sub(max) < units {
            return false;
        }
        settle::alone(self.table(), alive, || {
            // Includes the units that walks have reserved but not taken yet: the max allowed them, without another check.
            let held = self.table().row(0).counter.reserved();
            held.saturating_add(units) <= most && group.charge_units(units).is_ok()
        })
    }

    /// Forbids system calls in charging, uncharging, creating groups, [`attach_process`](Self::attach_process) and the waits
    /// in these, in this process and in those that it forks. This is for an allocator whose process was put under a seccomp
    /// filter that may forbid any of them. `false` takes it back.
    ///
    /// This has two disadvantages. Stock that lies idle in other CPUs' cells cannot be drained before a refusal, so up to the
    /// sum of their caps may be missing below a limit. And a thread that waits for another's step spins, a fifth of a second
    /// at most.
    ///
    /// Waits for room, reclaimers, readers and watchers still make their system calls, though readers leave units in the
    /// cells that they would otherwise have to drain. Async-signal-safe.
    pub fn forbid_system_calls(forbidden: bool) {
        crate::sync::forbid_calls(forbidden);
    }
}

#[cfg(test)]
mod tests {
    use crate::counter::walk::{self, AtLimit};
    use crate::table::path::RowPath;
    use crate::{Ledger, Limit};

    #[test]
    fn a_reserve_is_not_granted_beside_a_charge_that_a_walk_has_reserved() {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        ledger.root().set_max(Limit::units(100)).unwrap();
        let group = ledger.root().create("g").unwrap();
        let reserve = |units| ledger.charge_reserve(group, units, 110, &|_| true);
        // Another process is about to take all that the max allows.
        let path = RowPath::new(ledger.table(), group.id().index()).unwrap();
        walk::reserve(path.counters(), 100, AtLimit::Refuse, 1).unwrap();
        assert!(reserve(10));
        assert!(!reserve(1), "it could not be held beside the other's");
        walk::commit(path.counters(), 100, AtLimit::Refuse);
        assert_eq!(ledger.root().approximate().value, 110);
        group.uncharge_units(110);
        assert!(reserve(10));
        group.uncharge_units(10);
    }
}

//! Destroys groups, one or many at a time.
//!
//! ```text
//! retire each row: it takes no child and no charge, and none of its cells is opened
//! close all their cells and thread caches, with one fence; if fences are forbidden, the rows become live again
//! collect their statistics
//! settle each: the units still charged are its leftover; a row that holds nothing is freed
//! notify the requests that wait to charge them
//! ```

use crate::control::wait_queue;
use crate::error::DestroyError;
use crate::gate::lock;
use crate::group::Group;
use crate::report::estimate::Estimate;
use crate::report::settled::Settled;
use crate::stock::drain;
use crate::sync::Ordering;
use crate::table::id::GroupId;
use crate::table::row::state;
use crate::table::{allocate, collect, counts, names};
use crate::whose;
use std::cmp::Reverse;

/// How often [`Group::destroy_tree`] looks again for groups that other threads created meanwhile.
const ROUNDS: usize = 16;

/// How many groups one fence serves. Their rows are kept on the stack, and other threads wait for the stock lock
/// meanwhile.
const TOGETHER: usize = 32;

impl<'l> Group<'l> {
    /// Destroys the group. Idle stock returns to its ancestors. Units that are still charged are reported, and stay counted
    /// in the ancestors until they are returned. The row is kept until then, so that a late uncharge finds its owner. Costs
    /// O(depth), and one remote fence if the group was charged on another CPU.
    ///
    /// # Errors
    /// See [`DestroyError`]; after an error the group continues as before.
    pub fn destroy(self) -> Result<Settled<'l>, DestroyError> {
        // Allocations made here are exempt from charging, since the current group may be full.
        whose::nobody(|| self.destroy_now())
    }

    fn destroy_now(self) -> Result<Settled<'l>, DestroyError> {
        together::<1>(&[self]).next().expect("one is told of each group")
    }

    /// Destroys this group and all groups below it, the deepest first. Returns what was found in each, this group's result
    /// last. Groups that other threads create below it meanwhile are destroyed, too.
    ///
    /// Costs 0.1 to 0.4 µs a group on a Zen 5, more if it was charged. If there are groups below, it also costs a pass over
    /// the rows in use, and a remote fence for each 32 groups of a depth if any of them was charged on another CPU.
    ///
    /// ```
    /// let ledger = ledgerline::Ledger::new()?;
    /// let tenant = ledger.root().create("acme")?;
    /// tenant.create("q1")?.create("sort")?;
    /// let settled = tenant.destroy_tree()?;
    /// assert_eq!(settled.len(), 3);
    /// assert!(settled.iter().all(|group| group.leftover == 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`DestroyError`]. The groups that were destroyed by then stay destroyed. If other threads create groups faster
    /// than this destroys them, it gives up with [`HasChildren`](DestroyError::HasChildren).
    pub fn destroy_tree(self) -> Result<Vec<Settled<'l>>, DestroyError> {
        whose::nobody(|| self.destroy_all())
    }

    /// Destroys groups, and returns what was found in each, in their order. Takes a remote fence for each 32 groups;
    /// [`destroy`](Self::destroy) takes one for each group that was charged on another CPU, which costs some microseconds,
    /// and an interrupt there.
    ///
    /// ```
    /// # use ledgerline::Group;
    /// let ledger = ledgerline::Ledger::new()?;
    /// let query = ledger.root().create("q42")?;
    /// let [scan, sort] = [query.create("scan")?, query.create("sort")?];
    /// let _held = sort.try_charge(100)?;
    /// let found = Group::destroy_each(&[scan, sort]);
    /// assert_eq!(found[1].as_ref().map(|sort| sort.leftover), Ok(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`DestroyError`], for each of them. A group with an error continues as before. A group whose children are among
    /// the others may get [`HasChildren`](DestroyError::HasChildren): use [`destroy_tree`](Self::destroy_tree) for such
    /// groups.
    pub fn destroy_each(groups: &[Group<'l>]) -> Vec<Result<Settled<'l>, DestroyError>> {
        let of_one_ledger = groups.chunk_by(|one, next| std::ptr::eq(one.ledger(), next.ledger()));
        let parts = of_one_ledger.flat_map(|groups| groups.chunks(TOGETHER));
        whose::nobody(|| parts.flat_map(together::<TOGETHER>).collect())
    }

    fn destroy_all(self) -> Result<Vec<Settled<'l>>, DestroyError> {
        if self.id() == GroupId::ROOT {
            return Err(DestroyError::Root);
        }
        let mut settled = Vec::new();
        let mut round = 0;
        loop {
            // The first try looks at no other row, since most groups have none below.
            match self.destroy_now() {
                Ok(one) => {
                    settled.push(one);
                    return Ok(settled);
                }
                Err(DestroyError::HasChildren { .. }) if round < ROUNDS => round += 1,
                Err(error) => return Err(error),
            }
            let mut below = self.below();
            below.sort_by_key(|&(depth, _)| Reverse(depth));
            for of_one_depth in below.chunk_by(|(one, _), (other, _)| one == other) {
                let groups: Vec<_> = of_one_depth.iter().map(|&(_, group)| group).collect();
                for found in Group::destroy_each(&groups) {
                    match found {
                        Ok(one) => settled.push(one),
                        // Another thread destroyed it, or created a group below it: the next round finds out.
                        Err(DestroyError::Gone | DestroyError::HasChildren { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
}

/// Destroys at most `N` groups of one ledger, none of which lies below another. Returns their results in order. Uses no
/// heap.
fn together<'l, const N: usize>(
    groups: &[Group<'l>],
) -> impl Iterator<Item = Result<Settled<'l>, DestroyError>> + use<'l, N> {
    let mut found = [const { None }; N];
    let mut waited_for = [false; N];
    let Some(&first) = groups.first() else { return found.into_iter().flatten() };
    let (pass, table) = (lock::pass(), first.table());
    // The retired rows, and the index in `groups` that each of them belongs to.
    let (mut rows, mut which, mut count) = ([0; N], [0; N], 0);
    for (at, &group) in groups.iter().enumerate() {
        match retire(group) {
            Ok(()) => {
                (rows[count], which[count]) = (group.id().index(), at);
                count += 1;
            }
            Err(error) => found[at] = Some(Err(error)),
        }
    }
    if count == 0 {
        return found.into_iter().flatten();
    }
    let mut idle = [0; N];
    drain::close_cells(table, &rows[..count], &mut |at, units| match units {
        Some(units) => idle[at] = units,
        None => {
            restore(groups[which[at]]);
            found[which[at]] = Some(Err(DestroyError::Busy));
        }
    });
    let closed = |at: &usize| found[which[*at]].is_none();
    collect::close(table, (0..count).filter(closed).map(|at| rows[at]));
    for at in 0..count {
        let (group, found) = (groups[which[at]], &mut found[which[at]]);
        if found.is_none() {
            let (settled, awaited) = settle(group, idle[at]);
            *found = Some(Ok(settled));
            waited_for[which[at]] = awaited;
        }
    }
    // Requests that wait to charge these groups wait in vain. The idle units notified their own waiters when they were
    // returned. This is outside the gate, since wakers are foreign code.
    drop(pass);
    for (group, _) in groups.iter().zip(waited_for).filter(|(_, waited_for)| *waited_for) {
        wait_queue::tell_of_end(group.ledger(), group.id());
    }
    found.into_iter().flatten()
}

/// Retires a group's row: from now on none of its cells is opened, no walk starts in it, and no other thread destroys it.
fn retire(group: Group<'_>) -> Result<(), DestroyError> {
    if group.id() == GroupId::ROOT {
        return Err(DestroyError::Root);
    }
    let row = group.row();
    if !group.exists() {
        return Err(DestroyError::Gone);
    }
    // The number of children as of that moment: a second look may find none, since the last may have ended meanwhile.
    if let Err(children) = row.refuse_children(group.id().generation()) {
        return match children {
            0 => Err(DestroyError::Gone),
            // The children belong to another group.
            _ if !group.exists() => Err(DestroyError::Gone),
            children => Err(DestroyError::HasChildren { children }),
        };
    }
    // From now on no other thread destroys the row. It may have been destroyed before, and even reused.
    if !group.exists() {
        row.accept_children();
        return Err(DestroyError::Gone);
    }
    // SeqCst, partner of the fence in `Open::announce`: a request that begins to wait either sees this, or is seen when the
    // group is settled.
    row.state.store(state::RETIRED, Ordering::SeqCst);
    row.counter.close();
    Ok(())
}

/// Undoes [`retire`].
fn restore(group: Group<'_>) {
    let row = group.row();
    row.counter.open();
    row.state.store(state::LIVE, Ordering::Release);
    row.accept_children();
}

/// Returns what was found in a group whose cells are closed, and whether a request waits for room in it. Releases its row.
fn settle(group: Group<'_>, idle: u64) -> (Settled<'_>, bool) {
    let (table, row) = (group.table(), group.row());
    let counter = &row.counter;
    let (charges, uncharges) = counts::of_row(table, group.id().index());
    let settled = Settled {
        group,
        leftover: counter.usage(),
        idle,
        peak: Estimate::between(counter.peak()),
        charges,
        uncharges,
    };
    let waited_for = table.heads.open.any_after_store();
    names::forget(table, group.id().index());
    let parent = row.parent.load(Ordering::Relaxed).min(table.capacity() - 1);
    if counter.let_go() {
        allocate::recycle(table, group.id().index());
    }
    // This comes last: until here the parent, which inherits the counts, cannot be destroyed.
    table.row(parent).remove_child();
    (settled, waited_for)
}

#[cfg(all(rseq, test))]
mod tests {
    use crate::Ledger;
    use crate::percpu::inject;
    use crate::percpu::membarrier::FENCES;

    /// Charges groups on each CPU that this thread may run on. Returns the number of these CPUs.
    fn charge_everywhere(groups: &[crate::Group<'_>], n: u64) -> usize {
        let cpus = inject::allowed();
        for &cpu in &cpus {
            assert!(inject::pin(0, &[cpu]));
            groups.iter().for_each(|group| group.try_charge_units(n).unwrap());
        }
        cpus.len()
    }

    #[test]
    fn one_fence_serves_all_groups_of_a_tree() {
        if crate::percpu::grounds().mode != crate::percpu::Mode::Rseq {
            eprintln!("skipped: without restartable sequences cells are taken in another way");
            return;
        }
        let ledger = Ledger::builder().capacity(64).anonymous().unwrap();
        let tenant = ledger.root().create("tenant").unwrap();
        let groups: Vec<_> = (0..30).map(|n| tenant.create(&n.to_string()).unwrap()).collect();
        let cpus = charge_everywhere(&groups, 1000);
        let before = FENCES.get();
        let settled = tenant.destroy_tree().unwrap();
        let fences = FENCES.get() - before;
        // With a single CPU there are no other CPUs' cells. A section that stored over a frozen word costs one more fence.
        assert!(fences <= 2 && (cpus == 1) == (fences == 0), "{fences} fences on {cpus} CPUs");
        assert_eq!(settled.len(), 31);
        let held = 1000 * cpus as u64;
        assert!(settled[..30].iter().all(|group| group.leftover == held), "{settled:?}");
        assert_eq!(ledger.root().precise(), 30 * held, "no idle unit is left behind");
    }
}

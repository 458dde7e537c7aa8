//! Processes that share one ledger: each has rows of its own, and reaches the common ancestors
//! through their totals alone.
//!
//! Compact CPU ids and the remote fence are private to a process, so a cell has one writing
//! process: the `owner` of its row. When that process is gone, whoever notices settles its rows.

use crate::error::CreateError;
use crate::group::Group;
use crate::ledger::Ledger;
use crate::percpu::word;
use crate::sync::{AtomicU32, Ordering};
use crate::table::path::RowPath;
use crate::table::row::{Row, state};

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
        let before = ATTACHED.load(Ordering::Relaxed);
        if before != 0 && before != pid {
            // A forked child: whoever held the lock or passed the gate is a thread of the parent's.
            crate::gate::lock::forget_others();
            if let Some(audit) = self.audit() {
                audit.forget();
            }
        }
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
        // First all that the dead held, by group; their cells are untouched until that is known.
        for index in 1..self.high_water() {
            let row = self.row(index);
            let owner = row.owner.load(Ordering::Relaxed);
            let state = row.state.load(Ordering::Acquire);
            // Of destroyed groups, only one right below the others' rows: it may be all that is left.
            let settled = match state {
                state::LIVE => false,
                state::RETIRED => !self.is_top(row, owner),
                _ => true,
            };
            if owner != 0 && !settled && !kept(owner) {
                let held = row.counter.usage().saturating_sub(self.idle(index).0);
                row.at_exit.store(held, Ordering::Relaxed);
                let _ = row.state.compare_exchange(
                    state,
                    state::EXITED,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
        }
        // Then it is taken out, by swaps: each unit once, if several processes settle at a time
        // (or one was killed while it did).
        (1..self.high_water()).map(|index| self.settle_row(index)).sum()
    }

    /// Whether a row is the topmost of its process.
    fn is_top(&self, row: &Row, owner: u32) -> bool {
        let parent = row.parent.load(Ordering::Relaxed).min(self.capacity() - 1);
        self.row(parent).owner.load(Ordering::Relaxed) != owner
    }

    /// Empties a row of a dead process; what it returned to rows of others. (The topmost row has it
    /// all; those below it go with it.)
    fn settle_row(&self, index: u32) -> u64 {
        let row = self.row(index);
        if row.state.load(Ordering::Acquire) != state::EXITED {
            return 0;
        }
        for column in row.noted_columns(self.columns().count()) {
            let cell = self.columns().cell(column, index);
            // Nobody writes it any more; what lies in it is in the row's usage, or is no more.
            let word = cell
                .word
                .swap(word::empty(self.cell_generation(row)) | word::FROZEN, Ordering::AcqRel);
            cell.cap.store(0, Ordering::Relaxed);
            self.unstock(column, index);
            if word::generation(word) == self.cell_generation(row) {
                self.add_counts(column, index, word);
            }
        }
        if let Some(path) = RowPath::new(self, index) {
            self.collect_row(&path);
        }
        let prepaid = row.counter.track.prepaid.take_all();
        let in_hand = row.counter.track.in_hand.take_all();
        let usage = row.counter.take_all();
        // Whoever settles at the same time has found nothing left either; the next need not look.
        row.state.store(state::SETTLED, Ordering::Release);
        if !self.is_top(row, row.owner.load(Ordering::Relaxed)) {
            return 0;
        }
        let Some(path) = RowPath::new(self, index) else { return 0 };
        if usage | prepaid | in_hand != 0 {
            for (counter, &row) in path.counters().iter().zip(path.rows()).skip(1) {
                let removed = counter.remove(usage);
                counter.disallow(prepaid);
                counter.track.in_hand.take(in_hand);
                match removed {
                    Ok(true) => self.recycle(row),
                    Ok(false) => {}
                    Err(_) => self.count_underflow(),
                }
            }
        }
        self.tell_waiters(path.rows());
        usage
    }
}

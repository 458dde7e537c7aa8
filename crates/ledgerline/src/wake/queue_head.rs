//! The head of a wait queue. A thread that returns units looks at it to find the first waiter to notify.
//!
//! ```text
//! the first waiter of a queue                   a thread that returned units (signal-safe)
//!   open the head of the row (once a queue):      fence
//!     head.group = group; queues += 1             queues == 0: done
//!     fence                                       each row on the way whose head is open:
//!   key = the head's count                          count += 1; fence
//!   there is room: done                             a thread sleeps: wake it
//!   a thread: sleep on the key                      a future left its alarm: ring that
//!   a future: leave the alarm; fence
//!     the count is past the key: look again
//! ```
//!
//! The fences of an opening and of a return are each other's partner. Either the thread that returned units
//! finds the head open, or the first waiter looks after the units were returned (model:
//! `of_units_that_come_back_and_a_wait_one_sees_the_other`).
//!
//! Each row has a head, so a return looks at as many heads as its path has levels, however many queues
//! there are. A row may be reused for another group while waiters of its last group are still there. So a
//! head names the group, and opening it for another group notifies those waiters.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::wake::eventcount::Eventcount;
#[cfg(not(loom))]
use crate::{region::Region, wake::rung};
#[cfg(not(loom))]
use std::io;

/// See the module's documentation. All zeros are a head that is not open.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct QueueHead {
    /// The group at whose limit the queue waits (0: none). Written under the queues' lock.
    group: AtomicU64,
    /// The first waiter of the queue waits on this.
    pub(crate) eventcount: Eventcount,
    /// The first waiter's alarm, if it is a future (0: none). Written under the queues' lock.
    alarm: AtomicU32,
}

impl QueueHead {
    /// Returns the raw id of the group whose queue has this head; 0 if there is none.
    pub(crate) fn group(&self) -> u64 {
        self.group.load(Ordering::Relaxed)
    }

    /// Opens the head for a group. Zero closes it.
    pub(crate) fn serve(&self, group: u64) {
        self.alarm.store(0, Ordering::Relaxed);
        self.group.store(group, Ordering::Relaxed);
    }

    /// Makes the next notices ring an alarm. The caller checks afterwards whether its key is past.
    pub(crate) fn leave_alarm(&self, number: u32) {
        self.alarm.store(number, Ordering::Relaxed);
    }

    /// Notifies the first waiter of the queue, which looks again. Async-signal-safe if `ring` is.
    pub(crate) fn notify(&self, ring: impl FnOnce(u32)) {
        // The notice has a fence before this load: a waiter whose alarm is not seen here sees the count.
        self.eventcount.notify();
        let alarm = self.alarm.load(Ordering::Relaxed);
        if alarm != 0 {
            ring(alarm);
        }
    }
}

/// The number of open queues. A return reads it before it looks at any head.
#[derive(Debug, Default)]
pub(crate) struct Open(AtomicU32);

impl Open {
    /// Announces a head that was opened. A waiter that looks for room afterwards misses no units.
    pub(crate) fn announce(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        // Partner of the fence in `any_after_return`.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn retire(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Forgets all queues: the process is a forked child, and has no waiters.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns whether any queue is open, without any ordering: for a caller that has returned no units.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns whether any queue is open, after a SeqCst store of something that waiters look at. That
    /// store and this load replace the fence of [`any_after_return`](Self::any_after_return). Partner of
    /// the fence in `announce`.
    #[cfg(not(loom))]
    pub(crate) fn any_after_store(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Returns whether any queue is open, after units were returned.
    #[inline]
    pub(crate) fn any_after_return(&self) -> bool {
        // Partner of the fence in `announce`.
        fence(Ordering::SeqCst);
        self.any()
    }
}

/// The head of each row's queue. It lies in private memory, even if the ledger is a file: each process has
/// its own waiters.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct QueueHeads {
    pub(crate) open: Open,
    heads: Region,
}

#[cfg(not(loom))]
impl QueueHeads {
    /// Makes the heads for this many rows. Allocates only address space.
    pub(crate) fn new(rows: usize) -> io::Result<QueueHeads> {
        let heads = Region::anonymous(rows * size_of::<QueueHead>())?;
        Ok(QueueHeads { open: Open::default(), heads })
    }

    /// Returns the memory of the heads.
    pub(crate) fn region(&self) -> &Region {
        &self.heads
    }

    pub(crate) fn of(&self, row: u32) -> &QueueHead {
        // SAFETY: `at` checks the bounds. The region is mapped as long as this value (R1) and is accessed
        // only as queue heads. These consist of atomics, and all zeros are a valid one. Guarded by
        // `ten_thousand_groups_have_waiting_tasks_and_all_are_served`.
        unsafe { &*self.heads.at(row as usize * size_of::<QueueHead>()) }
    }

    /// Notifies the first waiter at each of these rows that there may be room. Async-signal-safe. Costs a
    /// fence and a load while no thread waits, and otherwise a look at each row.
    #[inline]
    pub(crate) fn tell(&self, rows: &[u32]) {
        if self.open.any_after_return() {
            self.tell_open(rows);
        }
    }

    #[cold]
    fn tell_open(&self, rows: &[u32]) {
        for &row in rows {
            let head = self.of(row);
            if head.group() != 0 {
                head.notify(rung::ring);
            }
        }
    }
}

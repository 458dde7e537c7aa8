//! Before Linux 6.2: each task keeps what it counted, and gives it to the shared counter after 64 events.

use crate::timing::padded::Padded;
use std::sync::atomic::{AtomicI64, Ordering};

/// Events that a task may keep to itself (`TASK_RSS_EVENTS_THRESH`).
const EVENTS: u32 = 64;

/// The shared counter of an address space.
#[derive(Debug, Default)]
pub(crate) struct PerTask {
    total: Padded<AtomicI64>,
}

/// What a task keeps.
#[derive(Debug, Default)]
pub(crate) struct Task {
    pages: i64,
    events: u32,
}

impl PerTask {
    /// Most pages that a sleeping task keeps to itself: 65 events, and the page of the fault that gave
    /// the last ones away.
    pub(crate) const EVENTS_KEPT: i64 = EVENTS as i64 + 2;

    /// Counts; how many writes of a shared line that took.
    #[inline(always)]
    pub(crate) fn add(&self, task: &mut Task, pages: i64) -> u64 {
        // At the start of a fault, before its page is counted; compared, then raised.
        let full = task.events > EVENTS;
        task.events += 1;
        if full {
            self.total.fetch_add(task.pages, Ordering::Relaxed);
            *task = Task::default();
        }
        task.pages += pages;
        u64::from(full)
    }

    /// What /proc showed.
    pub(crate) fn read(&self) -> i64 {
        self.total.load(Ordering::Relaxed).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_with_few_events_is_not_seen_at_all() {
        let counter = PerTask::default();
        let mut task = Task::default();
        let writes: u64 = (0..65).map(|_| counter.add(&mut task, 1)).sum();
        assert_eq!((writes, counter.read()), (0, 0));
        assert_eq!((counter.add(&mut task, 1), counter.read()), (1, 65));
        let writes: u64 = (0..65).map(|_| counter.add(&mut task, 1)).sum();
        assert_eq!((writes, counter.read()), (0, 65));
        assert_eq!((task.pages, counter.add(&mut task, 1)), (PerTask::EVENTS_KEPT, 1), "attained");
    }
}

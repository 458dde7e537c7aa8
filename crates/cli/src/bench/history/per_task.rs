//! Before Linux 6.2: each task keeps what it counted, and gives it to the shared counter after 64 events.

use super::super::padded::Padded;
use std::sync::atomic::{AtomicI64, Ordering};

/// Events that a task may keep to itself (`TASK_RSS_EVENTS_THRESH`).
const EVENTS: u32 = 64;

/// The shared counter of an address space.
#[derive(Debug, Default)]
pub(in super::super) struct PerTask {
    total: Padded<AtomicI64>,
}

/// What a task keeps.
#[derive(Debug, Default)]
pub(in super::super) struct Task {
    pages: i64,
    events: u32,
}

impl PerTask {
    /// Most events that a sleeping task keeps to itself.
    pub(in super::super) const EVENTS_KEPT: i64 = EVENTS as i64 + 1;

    /// Counts; how many writes of a shared line that took.
    #[inline(always)]
    pub(in super::super) fn add(&self, task: &mut Task, pages: i64) -> u64 {
        task.pages += pages;
        task.events += 1;
        // The kernel compares before it counts the event.
        if task.events <= EVENTS + 1 {
            return 0;
        }
        self.total.fetch_add(task.pages, Ordering::Relaxed);
        *task = Task::default();
        1
    }

    /// What /proc showed.
    pub(in super::super) fn read(&self) -> i64 {
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
        assert_eq!((counter.add(&mut task, 1), counter.read()), (1, 66));
        assert_eq!((task.pages, task.events), (0, 0));
    }
}

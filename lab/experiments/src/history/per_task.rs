//! Before Linux 6.2: each task keeps its counts, and gives them to the shared counters after 64 events.

use ledgerline_bench::measure::padded::Padded;
use std::sync::atomic::{AtomicI64, Ordering};

/// Events that a task may keep to itself (`TASK_RSS_EVENTS_THRESH`).
const EVENTS: u32 = 64;
/// Kinds of pages: of files, anonymous, swapped out, shared.
const KINDS: usize = 4;
/// The kind that [`PerTask::add`] counts.
const ANON: usize = 1;

/// The shared counters of an address space.
#[derive(Debug, Default)]
pub struct PerTask {
    totals: Padded<[AtomicI64; KINDS]>,
}

/// The counts that a task keeps.
#[derive(Debug, Default)]
pub struct Task {
    events: u32,
    pages: [i32; KINDS],
}

impl PerTask {
    /// Most pages that a sleeping task keeps to itself: 65 events, and the page of the fault that gave the last ones
    /// away.
    pub const EVENTS_KEPT: i64 = EVENTS as i64 + 2;

    /// Counts a fault with an anonymous page, and returns the number of writes of shared lines.
    #[inline(always)]
    pub fn add(&self, task: &mut Task, pages: i32) -> u64 {
        // At the start of a fault, before its page is counted.
        let writes = self.fault(task);
        PerTask::count(task, ANON, pages);
        writes
    }

    /// Begins a fault, at which the task may give its counts away. Returns the number of writes of shared lines.
    #[inline(always)]
    pub fn fault(&self, task: &mut Task) -> u64 {
        // The kernel compares first and increments then.
        let full = task.events > EVENTS;
        task.events += 1;
        if full { self.give(task) } else { 0 }
    }

    /// Counts pages of the task's own address space.
    #[inline(always)]
    pub fn count(task: &mut Task, kind: usize, pages: i32) {
        task.pages[kind] += pages;
    }

    /// Gives all counts of the task away, and returns the number of writes of shared lines. A task also does this when
    /// it ends, starts another program, or unmaps pages.
    #[inline(always)]
    pub fn give(&self, task: &mut Task) -> u64 {
        let mut writes = 0;
        for (total, pages) in self.totals.iter().zip(&mut task.pages) {
            if *pages != 0 {
                total.fetch_add((*pages).into(), Ordering::Relaxed);
                *pages = 0;
                writes += 1;
            }
        }
        task.events = 0;
        writes
    }

    /// Counts pages directly in the shared counter: many at a time, or by another task than their owner.
    #[inline(always)]
    pub fn count_shared(&self, kind: usize, pages: i64) {
        self.totals[kind].fetch_add(pages, Ordering::Relaxed);
    }

    /// Returns the value of some kinds in /proc. Each is clamped, as there.
    pub fn read_kinds(&self, kinds: &[usize]) -> i64 {
        kinds.iter().map(|&kind| self.totals[kind].load(Ordering::Relaxed).max(0)).sum()
    }

    /// Returns the value in /proc.
    pub fn read(&self) -> i64 {
        self.read_kinds(&[ANON])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_task_with_few_events_is_not_seen_at_all() {
        let counter = PerTask::default();
        let mut task = Task::default();
        let writes: u64 = (0..65).map(|_| counter.add(&mut task, 1)).sum();
        assert_eq!((writes, counter.read()), (0, 0));
        assert_eq!((counter.add(&mut task, 1), counter.read()), (1, 65));
        let writes: u64 = (0..65).map(|_| counter.add(&mut task, 1)).sum();
        assert_eq!((writes, counter.read()), (0, 65));
        assert_eq!(i64::from(task.pages[ANON]), PerTask::EVENTS_KEPT);
        assert_eq!(counter.add(&mut task, 1), 1, "attained");
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn what_is_counted_is_shown_or_kept(
            steps in proptest::collection::vec((0..3usize, 0..4usize, -3..9i32, 0..5u8), 1..500),
        ) {
            let counter = PerTask::default();
            let mut tasks: [Task; 3] = Default::default();
            let mut counted = [0; KINDS];
            for (task, kind, pages, what) in steps {
                let task = &mut tasks[task];
                match what {
                    0 => counter.count_shared(kind, pages.into()),
                    1 => { counter.give(task); }
                    _ => {
                        counter.fault(task);
                        PerTask::count(task, kind, pages);
                    }
                }
                if what != 1 {
                    counted[kind] += i64::from(pages);
                }
                for (kind, counted) in counted.iter().enumerate() {
                    let kept: i64 = tasks.iter().map(|task| i64::from(task.pages[kind])).sum();
                    let total = counter.totals[kind].load(Ordering::Relaxed);
                    prop_assert_eq!(total + kept, *counted);
                }
            }
        }
    }
}

//! Measures the cost of an update in each design, with a trace's own pattern of CPUs, address spaces and tasks. Each
//! thread repeats the steps of one CPU in the last pass.

use super::replay::{ByBatch, Ours, follow_by_cpu, follow_by_task};
use super::script::{Script, Step};
use super::variants::{Session, Timed};
use crate::history::{PerCpuCache, PerTask, Task};
use ledgerline_bench::measure::harness::{Body, Case};
use ledgerline_bench::measure::padded::Padded;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

/// Most steps of a CPU that are repeated: as many as fit a second cache.
const MOST: usize = 1 << 15;

/// The cost of an update in each design.
pub(super) struct Costs {
    pub(super) by_task: Timed,
    pub(super) by_cpu: Timed,
    pub(super) by_batch: Timed,
    pub(super) ours: Timed,
}

/// Measures all designs; `None` if the script has no updates.
///
/// # Errors
/// A line for the user: there is not enough memory for all address spaces.
pub(super) fn measure(script: &Script, session: &Session<'_>) -> Result<Option<Costs>, String> {
    let lists = lists(script);
    if !lists.iter().flatten().any(|step| matches!(step, Step::Update { .. })) {
        return Ok(None);
    }
    let spaces: Vec<PerTask> = (0..script.spaces).map(|_| PerTask::default()).collect();
    let cache = PerCpuCache::new(session.cpus.len(), script.spaces as usize);
    let batch = ByBatch::new(script);
    let table = Ours::table(script)?;
    let ours = Ours::new(&table, script)?;
    let case = |name, body| Case { name, granule: 1, body };
    let cases = [
        case(
            "per task",
            round(&lists, |_, tasks, step| {
                black_box(follow_by_task(&spaces, tasks, step));
            }),
        ),
        case(
            "per-CPU cache",
            round(&lists, |cpu, _, step| {
                black_box(follow_by_cpu(&cache, cpu, step));
            }),
        ),
        case(
            "per-CPU batches",
            round(&lists, |cpu, _, step| {
                black_box(batch.follow_alone(cpu, step));
            }),
        ),
        case("ours", round(&lists, |_, _, step| ours.count(step))),
    ];
    let [by_task, by_cpu, by_batch, ours] =
        session.time(&cases).try_into().expect("a figure a case");
    Ok(Some(Costs { by_task, by_cpu, by_batch, ours }))
}

/// Returns the steps of each CPU in the last pass. Tasks are numbered anew on each CPU, because threads that run
/// independently cannot share a task's counts. A task that moved between CPUs keeps counts on each.
fn lists(script: &Script) -> Vec<Vec<Step>> {
    let last = script.passes.checked_sub(1);
    let mut lists = vec![Vec::new(); script.cpus as usize];
    let placed = script.steps.iter().filter(|placed| placed.pass == last && last.is_some());
    for placed in placed {
        let list = &mut lists[placed.cpu as usize];
        if list.len() < MOST {
            list.push(placed.step);
        }
    }
    // If a CPU did nothing, its thread repeats the steps of the busiest CPU.
    let busiest = lists.iter().max_by_key(|list| list.len()).cloned().unwrap_or_default();
    for list in &mut lists {
        if !list.iter().any(|step| matches!(step, Step::Update { .. })) {
            list.clone_from(&busiest);
        }
        renumber(list);
    }
    lists
}

/// Renumbers the tasks of a list from zero.
fn renumber(list: &mut [Step]) {
    let mut numbers = HashMap::new();
    for step in list {
        if let Step::Fault { task, .. } | Step::Update { task, .. } | Step::Leave { task, .. } =
            step
        {
            let next = numbers.len() as u32;
            *task = *numbers.entry(*task).or_insert(next);
        }
    }
}

/// The position of a thread in its list, and the counts of its tasks.
#[derive(Default)]
struct Place {
    at: usize,
    tasks: Vec<Task>,
}

/// Returns a body that repeats a CPU's list until it has done `n` updates.
fn round<'a>(
    lists: &'a [Vec<Step>],
    follow: impl Fn(usize, &mut [Task], Step) + Sync + 'a,
) -> Body<'a> {
    // Padded, because each thread writes its own place all the time.
    let places: Vec<Padded<Mutex<Place>>> = lists
        .iter()
        .map(|list| Place { at: 0, tasks: list.iter().map(|_| Task::default()).collect() })
        .map(|place| Padded(Mutex::new(place)))
        .collect();
    Box::new(move |thread, n| {
        // Never contended, and locked once a chunk.
        let mut place = places[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let Place { at, tasks } = &mut *place;
        let list = &lists[thread][..];
        let (mut next, mut left) = (*at, n);
        while left > 0 {
            let step = list[next];
            follow(thread, tasks, step);
            left -= u64::from(matches!(step, Step::Update { .. }));
            next += 1;
            if next == list.len() {
                next = 0;
            }
        }
        *at = next;
    })
}

#[cfg(test)]
mod tests {
    use super::super::script::tests::event;
    use super::super::trace::{Trace, What};
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn script() -> Script {
        let faults = (0..30).map(|time| event(time, 0, 7 + (time % 3) as u32, What::Fault));
        let passes = vec![0..10, 10..30];
        let trace = Trace { events: faults.collect(), passes, ..Trace::default() };
        Script::of(&trace, &[0, 1])
    }

    #[test]
    fn every_thread_goes_round_the_last_pass() {
        let lists = lists(&script());
        assert_eq!(lists[0], lists[1], "the second CPU did nothing");
        let count = |wanted: fn(&Step) -> bool| lists[0].iter().filter(|step| wanted(step)).count();
        assert_eq!(count(|step| matches!(step, Step::Update { .. })), 20);
        assert_eq!(count(|step| matches!(step, Step::Fault { task: 0, .. })), 7);
        let updates = AtomicU64::new(0);
        let body = round(&lists, |_, _, step| {
            updates.fetch_add(matches!(step, Step::Update { .. }).into(), Ordering::Relaxed);
        });
        for (thread, updates) in [(0, 33), (1, 7), (0, 1)] {
            body(thread, updates);
        }
        assert_eq!(updates.load(Ordering::Relaxed), 41);
    }

    #[test]
    fn ours_counts_what_the_threads_did() {
        let script = script();
        let lists = lists(&script);
        let table = Ours::table(&script).unwrap();
        let ours = Ours::new(&table, &script).unwrap();
        let body = round(&lists, |_, _, step| ours.count(step));
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let body = &body;
                scope.spawn(move || body(thread, 20_000));
            }
        });
        drop(body);
        assert_eq!(table.owners().map(|(_, pages)| pages.resident()).sum::<i64>(), 40_000);
    }

    #[test]
    fn a_trace_without_updates_has_no_cost() {
        let session = Session { cpus: &[0], quick: true, progress: &|_| () };
        let empty = Script { cpus: 1, passes: 1, ..Script::default() };
        assert!(measure(&empty, &session).unwrap().is_none());
    }
}

//! Replays a script in each design. The result is how often the design writes a line that other CPUs write, and the
//! error of the value that it shows.

use super::script::{Script, Step, Way};
use crate::history::{PerCpuBatch, PerCpuCache, PerTask, Task};
use ledgerline::stat::rss::{Kind, SharedOwner, Table};
use std::collections::HashSet;

/// The kinds of pages that are resident.
const RESIDENT: [usize; 3] = [0, 1, 3];

/// The outcome of a design in a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) updates: u64,
    /// Steps that wrote a shared line, however often.
    pub(super) misses: u64,
    /// The updates that the document counts, and how many of them missed: those that a fault makes, also in a program
    /// that is being started.
    pub(super) fast: u64,
    pub(super) fast_missed: u64,
    /// Readings: one of the address space after each update.
    readings: u64,
    /// The largest error of a reading and the sum of errors, in pages.
    pub(super) worst: u64,
    sum: u64,
}

impl Outcome {
    /// Returns the updates without a shared write, in per cent.
    pub(super) fn hit_rate(&self) -> f64 {
        100.0 * (1.0 - self.misses as f64 / self.updates.max(1) as f64).max(0.0)
    }

    /// Returns the mean error of a reading, in pages.
    pub(super) fn mean(&self) -> f64 {
        self.sum as f64 / self.readings.max(1) as f64
    }
}

/// A design of counting resident pages.
pub(super) trait Design {
    /// Follows a step. Returns `true` if that wrote a shared line.
    fn follow(&mut self, cpu: usize, step: Step) -> bool;
    /// Returns the value that a reader of the address space finds.
    fn shown(&self, space: usize) -> i64;
}

/// Returns an outcome for each pass.
pub(super) fn replay(script: &Script, mut design: impl Design) -> Vec<Outcome> {
    let mut truth = vec![0i64; script.spaces as usize];
    let mut outcomes = vec![Outcome::default(); script.passes as usize];
    for placed in &script.steps {
        let missed = design.follow(placed.cpu as usize, placed.step);
        let update = match placed.step {
            Step::Update { space, kind, pages, .. } => {
                let space = space as usize;
                if RESIDENT.contains(&usize::from(kind)) {
                    truth[space] += i64::from(pages);
                }
                Some(space)
            }
            _ => None,
        };
        let Some(outcome) = placed.pass.and_then(|pass| outcomes.get_mut(pass as usize)) else {
            continue;
        };
        outcome.misses += u64::from(missed);
        if let Some(space) = update {
            outcome.updates += 1;
            let fast = by_a_fault(placed.step, &script.forked);
            outcome.fast += u64::from(fast);
            outcome.fast_missed += u64::from(fast && missed);
            if placed.read {
                let error = design.shown(space).abs_diff(truth[space]);
                outcome.readings += 1;
                outcome.worst = outcome.worst.max(error);
                outcome.sum += error;
            }
        }
    }
    outcomes
}

/// Returns whether an update belongs to a fault: a fault of the task itself, or one of another task on a single page,
/// which is how arguments are put into a program that is being started.
fn by_a_fault(step: Step, forked: &[bool]) -> bool {
    match step {
        Step::Update { way: Way::Fast, .. } => true,
        Step::Update { way: Way::Foreign, space, pages, .. } => {
            pages == 1 && !forked[space as usize]
        }
        _ => false,
    }
}

/// The design to Linux 6.1.
pub(super) struct ByTask {
    spaces: Vec<PerTask>,
    tasks: Vec<Task>,
}

impl ByTask {
    pub(super) fn new(script: &Script) -> ByTask {
        ByTask {
            spaces: (0..script.spaces).map(|_| PerTask::default()).collect(),
            tasks: (0..script.tasks).map(|_| Task::default()).collect(),
        }
    }
}

impl Design for ByTask {
    fn follow(&mut self, _: usize, step: Step) -> bool {
        follow_by_task(&self.spaces, &mut self.tasks, step) > 0
    }

    fn shown(&self, space: usize) -> i64 {
        self.spaces[space].read_kinds(&RESIDENT)
    }
}

/// Does a task's step, and returns the number of writes of shared words.
#[inline(always)]
pub(super) fn follow_by_task(spaces: &[PerTask], tasks: &mut [Task], step: Step) -> u64 {
    match step {
        Step::Run { .. } => 0,
        Step::Fault { space, task } => spaces[space as usize].fault(&mut tasks[task as usize]),
        Step::Leave { space, task } => spaces[space as usize].give(&mut tasks[task as usize]),
        Step::Update { space, task, kind, way, pages } => {
            let (space, task) = (&spaces[space as usize], &mut tasks[task as usize]);
            if way == Way::Fast {
                PerTask::count(task, kind.into(), pages);
                return 0;
            }
            let given = if way == Way::Range { space.give(task) } else { 0 };
            space.count_shared(kind.into(), pages.into());
            given + 1
        }
    }
}

/// The design proposed in 2022. It is taken to catch every update of the address space that its CPU runs.
pub(super) struct ByCpu(PerCpuCache);

impl ByCpu {
    pub(super) fn new(script: &Script) -> ByCpu {
        ByCpu(PerCpuCache::new(script.cpus as usize, script.spaces as usize))
    }
}

impl Design for ByCpu {
    fn follow(&mut self, cpu: usize, step: Step) -> bool {
        follow_by_cpu(&self.0, cpu, step) > 0
    }

    fn shown(&self, space: usize) -> i64 {
        self.0.read(space, &RESIDENT)
    }
}

/// Does a CPU's step, and returns the number of writes of shared words.
#[inline(always)]
pub(super) fn follow_by_cpu(cache: &PerCpuCache, cpu: usize, step: Step) -> u64 {
    match step {
        Step::Run { space } => cache.run(cpu, space as usize),
        Step::Update { space, kind, pages, .. } => {
            u64::from(!cache.add(cpu, space as usize, kind.into(), pages.into()))
        }
        Step::Fault { .. } | Step::Leave { .. } => 0,
    }
}

/// The design from Linux 6.2: a counter for each address space and kind.
pub(super) struct ByBatch(Vec<[PerCpuBatch; 4]>);

impl ByBatch {
    pub(super) fn new(script: &Script) -> ByBatch {
        let cpus = script.cpus as usize;
        let counters = |_| std::array::from_fn(|_| PerCpuBatch::new(cpus));
        ByBatch((0..script.spaces).map(counters).collect())
    }

    /// Does the step of a CPU that belongs to one thread, and returns the number of writes of shared words.
    #[inline(always)]
    pub(super) fn follow_alone(&self, cpu: usize, step: Step) -> u64 {
        match step {
            Step::Update { space, kind, pages, .. } => {
                self.0[space as usize][usize::from(kind)].add_alone_on(cpu, pages)
            }
            _ => 0,
        }
    }
}

impl Design for ByBatch {
    fn follow(&mut self, cpu: usize, step: Step) -> bool {
        self.follow_alone(cpu, step) > 0
    }

    fn shown(&self, space: usize) -> i64 {
        RESIDENT.iter().map(|&kind| self.0[space][kind].read()).sum()
    }
}

/// Ours: the library's own table. It counts on the CPU that runs the replay, whichever the script names. The shown
/// value does not depend on that. A CPU's first update of an address space puts it into the mask.
pub(super) struct Ours<'t> {
    owners: Vec<SharedOwner<'t>>,
    seen: HashSet<(u32, usize)>,
}

impl<'t> Ours<'t> {
    pub(super) fn new(table: &'t Table, script: &Script) -> Result<Ours<'t>, String> {
        let owners = (0..script.spaces)
            .map(|_| Ok(table.register().map_err(|error| error.to_string())?.share()))
            .collect::<Result<_, String>>()?;
        Ok(Ours { owners, seen: HashSet::new() })
    }

    /// Returns a table with room for all address spaces.
    pub(super) fn table(script: &Script) -> Result<Table, String> {
        Table::new(script.spaces.max(1)).map_err(|error| format!("no table of owners: {error}"))
    }

    /// Counts on the running CPU.
    #[inline(always)]
    pub(super) fn count(&self, step: Step) {
        if let Step::Update { space, kind, pages, .. } = step {
            self.owners[space as usize].add(Kind::ALL[usize::from(kind)], pages.into());
        }
    }
}

impl Design for Ours<'_> {
    fn follow(&mut self, cpu: usize, step: Step) -> bool {
        self.count(step);
        match step {
            Step::Update { space, .. } => self.seen.insert((space, cpu)),
            _ => false,
        }
    }

    fn shown(&self, space: usize) -> i64 {
        self.owners[space].read().resident()
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::tests::{event, pages};
    use super::super::trace::{Event, Trace, What};
    use super::*;

    fn script(events: Vec<Event>, exact: bool) -> Script {
        let passes = std::iter::once(0..u64::MAX).collect();
        Script::of(&Trace { events, exact, passes, ..Trace::default() }, &[0, 1])
    }

    /// Returns misses and worst error of each design.
    fn outcomes(script: &Script) -> [(u64, u64); 4] {
        let table = Ours::table(script).unwrap();
        let all = [
            replay(script, ByTask::new(script)),
            replay(script, ByCpu::new(script)),
            replay(script, ByBatch::new(script)),
            replay(script, Ours::new(&table, script).unwrap()),
        ];
        all.map(|passes| (passes[0].misses, passes[0].worst))
    }

    #[test]
    fn one_that_faults_alone_is_cached_by_its_cpu_and_given_after_64_events() {
        let events = (1..=660).map(|time| event(time, 0, 7, What::Fault)).collect();
        let script = script(events, false);
        // By task, every 66th fault finds more than 64 events and gives the counts away, from the second time on 66
        // pages. By batch, every 32nd page completes one. In ours, a CPU's first update writes.
        assert_eq!(outcomes(&script), [(10, 66), (0, 0), (20, 31), (1, 0)]);
        let updates = replay(&script, ByCpu::new(&script))[0].updates;
        assert_eq!(updates, 660);
    }

    #[test]
    fn two_that_take_turns_on_a_cpu_flush_its_cache_each_time() {
        let events =
            (0..100).map(|time| event(time, 0, 7 + (time % 2) as u32, What::Fault)).collect();
        // 50 pages each. By task, that is below 64 events. By CPU, every turn but the first flushes. By batch, each
        // completes one of 32.
        assert_eq!(outcomes(&script(events, false)), [(0, 50), (99, 0), (2, 31), (2, 0)]);
    }

    #[test]
    fn one_that_moves_between_cpus_is_exact_where_caches_are_added_up() {
        let events = (0..100).map(|time| event(time, (time % 2) as u32, 7, What::Fault)).collect();
        // Each CPU keeps up to 31; both go to the total at the 63rd and 64th page.
        assert_eq!(outcomes(&script(events, false)), [(1, 65), (0, 0), (2, 62), (2, 0)]);
    }

    #[test]
    fn what_others_do_to_an_address_space_is_a_miss_of_the_old_ones() {
        let events = vec![
            event(0, 0, 3, pages(500, false, 0)),
            event(1, 0, 7, pages(500, true, 10)),
            event(2, 0, 7, pages(600, false, 3)),
            event(3, 0, 7, pages(500, true, 5)),
            event(4, 0, 7, What::Exec),
            event(5, 0, 7, pages(500, false, 0)),
        ];
        // By task: the first update (of no pages), the three of the new one, the five that are taken at once with the
        // kept counts, and the end. By CPU: the first, and the three of the new one. By batch: all stay below 32.
        assert_eq!(outcomes(&script(events, true)), [(4, 10), (2, 0), (0, 10), (2, 0)]);
    }

    #[test]
    fn the_document_counts_what_faults_do_and_the_arguments_of_programs() {
        let events = vec![
            event(0, 0, 3, pages(500, false, 1)),
            event(1, 0, 3, pages(600, false, 1)),
            event(2, 0, 3, pages(600, false, 40)),
            event(3, 0, 7, pages(500, true, 2)),
            event(4, 0, 7, pages(500, true, 3)),
        ];
        let script = script(events, true);
        assert_eq!(script.forked, [false, true]);
        let outcome = replay(&script, ByCpu::new(&script))[0];
        // An argument and two faults. The fork's two updates are misses of another kind.
        assert_eq!((outcome.fast, outcome.fast_missed, outcome.misses), (3, 1, 3));
    }

    #[test]
    fn what_is_torn_down_is_not_read() {
        let events = vec![
            event(0, 0, 3, pages(500, false, 0)),
            event(1, 0, 7, pages(500, true, 100)),
            event(2, 0, 7, pages(500, false, 40)),
            event(3, 0, 7, pages(500, false, 0)),
        ];
        let script = script(events, true);
        let batch = replay(&script, ByBatch::new(&script))[0];
        assert_eq!((batch.readings, batch.worst, batch.updates, batch.misses), (2, 0, 4, 3));
        assert_eq!(replay(&script, ByTask::new(&script))[0].mean(), 50.0);
    }
}

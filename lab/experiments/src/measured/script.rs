//! A trace as steps for the designs of counting: which address space runs on which CPU, faults, and changes of counts.
//!
//! Address spaces and tasks get small numbers. A number is used once, even if the kernel reuses an address or a
//! thread's number.
//!
//! The count of an address space that existed before the recording is not known. So the first change of a count is
//! taken for one page.
//!
//! With faults alone, each is taken as one anonymous page of its process, which is then as large as the pages that it
//! has faulted in.

use super::trace::{Event, Trace, What};
use std::collections::HashMap;

/// The kind of page that a fault is taken for.
const ANON: u8 = 1;

/// The way in which an update reaches a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the task whose address space it is, like in a fault.
    Fast,
    /// By that task, for the pages of a whole range at once: `munmap` and the like.
    Range,
    /// By another task: a program that is being started, a fork, the end of an address space.
    Foreign,
}

/// A step on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The CPU switches to an address space.
    Run { space: u32 },
    /// A task's fault begins.
    Fault { space: u32, task: u32 },
    /// A count changes by a number of pages.
    Update { space: u32, task: u32, kind: u8, way: Way, pages: i32 },
    /// The task ends, or leaves the address space.
    Leave { space: u32, task: u32 },
}

/// A step with its CPU, as an index, and its pass, if it is in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) cpu: u32,
    pub(super) pass: Option<u32>,
    /// Whether a reader may read the address space then. It is not read while it is torn down.
    pub(super) read: bool,
    pub(super) step: Step,
}

/// All steps in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) steps: Vec<Placed>,
    pub(super) spaces: u32,
    /// By address space: `true` if a fork made it, `false` if the start of a program did.
    pub(super) forked: Vec<bool>,
    pub(super) tasks: u32,
    pub(super) cpus: u32,
    pub(super) passes: u32,
}

impl Script {
    /// Makes a script from a trace of these CPUs.
    pub(super) fn of(trace: &Trace, cpus: &[usize]) -> Script {
        let mut writer = Writer { runs: vec![None; cpus.len()], ..Writer::default() };
        for event in &trace.events {
            // Skips CPUs that were hot-plugged during the recording.
            let Some(cpu) = cpus.iter().position(|&cpu| cpu == event.cpu as usize) else {
                continue;
            };
            let pass = trace.passes.iter().position(|pass| pass.contains(&event.time));
            writer.at = (cpu as u32, pass.map(|pass| pass as u32));
            writer.event(event, trace.exact);
        }
        writer.script.cpus = cpus.len() as u32;
        writer.script.passes = trace.passes.len() as u32;
        writer.script
    }

    /// Returns the number of updates in passes.
    pub(super) fn updates(&self) -> usize {
        let update =
            |placed: &&Placed| placed.pass.is_some() && matches!(placed.step, Step::Update { .. });
        self.steps.iter().filter(update).count()
    }
}

/// The state of the conversion.
#[derive(Default)]
struct Writer {
    script: Script,
    at: (u32, Option<u32>),
    /// Address spaces by the kernel's name, or by the process with faults alone.
    spaces: HashMap<u32, u32>,
    counts: Vec<Space>,
    /// The address space that a process runs in.
    processes: HashMap<u32, u32>,
    /// By thread: the task, and the space for which it keeps pages.
    tasks: HashMap<u32, (u32, Option<u32>)>,
    /// The address space that each CPU runs.
    runs: Vec<Option<u32>>,
}

/// The state of an address space.
#[derive(Default)]
struct Space {
    /// Pages by kind; `None` if not known yet.
    counts: [Option<i64>; 4],
    /// Whether it is being torn down.
    ending: bool,
}

impl Writer {
    fn event(&mut self, event: &Event, exact: bool) {
        match event.what {
            What::On => {
                if let Some(&space) = self.processes.get(&event.pid) {
                    self.run(space);
                }
            }
            What::Fault => {
                if !exact {
                    let space = self.space(event.pid, false);
                    self.processes.insert(event.pid, space);
                    self.run(space);
                }
                if let Some(&space) = self.processes.get(&event.pid) {
                    let task = self.task(event.tid).0;
                    self.write(space, Step::Fault { space, task });
                }
                if !exact {
                    let space = self.space(event.pid, false);
                    let pages =
                        self.counts[space as usize].counts[usize::from(ANON)].unwrap_or(0) + 1;
                    self.change(event, space, ANON, true, pages);
                }
            }
            What::Pages { space, kind, own, pages } => {
                // A task that makes an address space does not run in it yet.
                let space = self.space(space, !own);
                if own {
                    self.processes.insert(event.pid, space);
                    self.run(space);
                }
                self.change(event, space, kind, own, pages);
            }
            What::Exec => {
                self.leave(event.tid);
                self.processes.remove(&event.pid);
                if !exact {
                    self.spaces.remove(&event.pid);
                }
            }
            What::Exit => {
                self.leave(event.tid);
                self.tasks.remove(&event.tid);
                if event.tid == event.pid {
                    self.end(event.pid);
                }
            }
        }
    }

    /// Ends a process. If no other process runs in its address space, the space's name may be reused.
    fn end(&mut self, process: u32) {
        if let Some(space) = self.processes.remove(&process)
            && !self.processes.values().any(|other| *other == space)
        {
            self.forget(space);
        }
    }

    fn forget(&mut self, space: u32) {
        self.spaces.retain(|_, known| *known != space);
    }

    fn change(&mut self, event: &Event, space: u32, kind: u8, own: bool, pages: i64) {
        let known = &mut self.counts[space as usize];
        let change = known.counts[usize::from(kind)].map_or(1, |before| pages - before);
        known.counts[usize::from(kind)] = Some(pages);
        // Another task puts single anonymous pages, the arguments, into a program that is being started.
        self.script.forked[space as usize] |= !own && (change > 1 || change == 1 && kind != ANON);
        let was_ending = known.ending;
        known.ending = !own && (change < 0 || known.ending);
        let ended = known.ending && known.counts.iter().all(|pages| pages.unwrap_or(0) == 0);
        if known.ending && !was_ending {
            // Tasks that kept pages of it have given them away before.
            let keepers: Vec<u32> = self
                .tasks
                .iter()
                .filter(|(_, (_, kept))| *kept == Some(space))
                .map(|(&thread, _)| thread)
                .collect();
            keepers.into_iter().for_each(|thread| self.leave(thread));
        }
        let way = match (own, change) {
            (false, _) => Way::Foreign,
            // A page that is replaced is removed by itself, in a fault.
            (true, -1..) => Way::Fast,
            (true, _) => Way::Range,
        };
        let (task, kept) = self.task(event.tid);
        if own && kept != Some(space) {
            self.leave(event.tid);
            self.tasks.insert(event.tid, (task, Some(space)));
        }
        let pages = i32::try_from(change).unwrap_or(if change < 0 { i32::MIN } else { i32::MAX });
        self.write(space, Step::Update { space, task, kind, way, pages });
        if ended {
            self.forget(space);
        }
    }

    fn run(&mut self, space: u32) {
        let runs = &mut self.runs[self.at.0 as usize];
        if *runs != Some(space) {
            *runs = Some(space);
            self.write(space, Step::Run { space });
        }
    }

    fn leave(&mut self, thread: u32) {
        if let Some((task, kept)) = self.tasks.get_mut(&thread)
            && let Some(space) = kept.take()
        {
            let task = *task;
            self.write(space, Step::Leave { space, task });
        }
    }

    fn write(&mut self, space: u32, step: Step) {
        let (cpu, pass) = self.at;
        let read = !self.counts[space as usize].ending;
        self.script.steps.push(Placed { cpu, pass, read, step });
    }

    /// Returns the number of an address space. If it is new, its counts are zero if `fresh`, and unknown otherwise.
    fn space(&mut self, name: u32, fresh: bool) -> u32 {
        *self.spaces.entry(name).or_insert_with(|| {
            self.counts.push(Space { counts: [fresh.then_some(0); 4], ending: false });
            self.script.forked.push(false);
            self.script.spaces += 1;
            self.script.spaces - 1
        })
    }

    fn task(&mut self, thread: u32) -> (u32, Option<u32>) {
        *self.tasks.entry(thread).or_insert_with(|| {
            self.script.tasks += 1;
            (self.script.tasks - 1, None)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns an event of thread `tid` of the process with the same number.
    pub(crate) fn event(time: u64, cpu: u32, tid: u32, what: What) -> Event {
        Event { time, cpu, pid: tid, tid, what }
    }

    pub(crate) fn pages(space: u32, own: bool, pages: i64) -> What {
        What::Pages { space, kind: ANON, own, pages }
    }

    fn steps(events: Vec<Event>, exact: bool) -> Vec<Step> {
        let trace = Trace { events, exact, ..Trace::default() };
        Script::of(&trace, &[0, 1]).steps.iter().map(|placed| placed.step).collect()
    }

    fn update(space: u32, task: u32, way: Way, pages: i32) -> Step {
        Step::Update { space, task, kind: ANON, way, pages }
    }

    #[test]
    fn changes_are_differences_of_what_the_kernel_says() {
        let events = vec![
            // This space is older than the recording: the origin of its 1000 pages is not known.
            event(1, 0, 7, pages(500, true, 1001)),
            event(2, 0, 7, What::Fault),
            event(3, 0, 7, pages(500, true, 1004)),
            event(4, 1, 8, pages(501, true, 1)),
            event(5, 0, 7, pages(500, true, 1003)),
            event(6, 0, 7, pages(500, true, 1001)),
        ];
        let expected = [
            Step::Run { space: 0 },
            update(0, 0, Way::Fast, 1),
            Step::Fault { space: 0, task: 0 },
            update(0, 0, Way::Fast, 3),
            Step::Run { space: 1 },
            update(1, 1, Way::Fast, 1),
            update(0, 0, Way::Fast, -1),
            update(0, 0, Way::Range, -2),
        ];
        assert_eq!(steps(events, true), expected);
    }

    #[test]
    fn a_program_that_starts_another_leaves_its_address_space() {
        let events = vec![
            event(0, 0, 3, pages(500, false, 1)),
            event(1, 0, 7, pages(500, true, 3)),
            event(2, 0, 7, pages(600, false, 1)),
            event(3, 0, 7, What::Exec),
            event(4, 0, 7, pages(500, false, 0)),
            event(5, 0, 7, pages(600, true, 2)),
            event(6, 0, 7, What::Exit),
            // The address is used again for another address space.
            event(7, 0, 8, pages(500, true, 1)),
        ];
        let expected = [
            update(0, 0, Way::Foreign, 1),
            Step::Run { space: 0 },
            update(0, 1, Way::Fast, 2),
            update(1, 1, Way::Foreign, 1),
            Step::Leave { space: 0, task: 1 },
            update(0, 1, Way::Foreign, -3),
            Step::Run { space: 1 },
            update(1, 1, Way::Fast, 1),
            Step::Leave { space: 1, task: 1 },
            Step::Run { space: 2 },
            update(2, 2, Way::Fast, 1),
        ];
        assert_eq!(steps(events, true), expected);
    }

    #[test]
    fn an_address_space_ends_with_the_last_process_that_runs_in_it() {
        // A child shares its parent's space until the child ends, then the parent does. Linux reports no change.
        let events = vec![
            event(1, 0, 7, pages(500, true, 1)),
            event(2, 1, 8, pages(500, true, 2)),
            event(3, 1, 8, What::Exit),
            event(4, 0, 7, pages(500, true, 3)),
            event(5, 0, 7, What::Exit),
            event(6, 0, 9, pages(500, false, 1)),
        ];
        let spaces: Vec<u32> = steps(events, true)
            .iter()
            .filter_map(|step| match step {
                Step::Update { space, pages: 1, .. } => Some(*space),
                _ => None,
            })
            .collect();
        assert_eq!(spaces, [0, 0, 0, 1]);
    }

    #[test]
    fn with_faults_alone_each_is_a_page() {
        let events = vec![
            event(1, 0, 7, What::Fault),
            event(2, 0, 8, What::On),
            event(3, 0, 8, What::Fault),
            event(4, 0, 7, What::On),
            event(5, 0, 7, What::Exec),
            event(6, 0, 7, What::Fault),
        ];
        let expected = [
            Step::Run { space: 0 },
            Step::Fault { space: 0, task: 0 },
            update(0, 0, Way::Fast, 1),
            Step::Run { space: 1 },
            Step::Fault { space: 1, task: 1 },
            update(1, 1, Way::Fast, 1),
            Step::Run { space: 0 },
            Step::Leave { space: 0, task: 0 },
            Step::Run { space: 2 },
            Step::Fault { space: 2, task: 0 },
            update(2, 0, Way::Fast, 1),
        ];
        assert_eq!(steps(events, false), expected);
    }

    #[test]
    fn what_is_between_passes_and_on_unknown_cpus_does_not_count() {
        let mut trace = Trace { exact: true, ..Trace::default() };
        trace.events = (1..=6).map(|time| event(time, 0, 7, pages(5, true, time as i64))).collect();
        trace.events.push(event(7, 9, 7, pages(5, true, 1)));
        trace.passes = vec![2..4, 5..6];
        let script = Script::of(&trace, &[0, 1]);
        let passes: Vec<_> = script.steps[1..].iter().map(|placed| placed.pass).collect();
        assert_eq!(passes, [None, Some(0), Some(0), None, Some(1), None]);
        assert_eq!((script.updates(), script.spaces, script.tasks), (3, 1, 1));
    }
}

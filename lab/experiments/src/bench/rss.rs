//! The suite `rss`: the program of "Replace per-task RSS cache with per-CPU RSS cache" (RFC, 2022), counted four ways
//! side by side.
//!
//! Many threads each touch 128 KiB and sleep. Each design counts every page, so all of them see the same faults from
//! the same CPUs. The value that a design shows is compared with the counted pages, and with the kernel's count of the
//! process.

use crate::history::{Hierarchical, PerCpuBatch, PerTask, Task};
use ledgerline::stat::rss::{Kind, SharedOwner, Table};
use ledgerline_bench::measure::harness::Body;
use ledgerline_bench::options::Options;
use ledgerline_bench::rounds::{Made, Run};
use ledgerline_bench::row::{Row, Rows, RssFigures, thousandths};
use ledgerline_bench::suite::Suite;
use memmap2::{Advice, MmapMut, MmapOptions};
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(super) static RSS: Suite = Suite { name: "rss", help: HELP, cases: &ALL, measure, remark };

const ALL: [&str; 4] = ["per_task", "per_cpu_batch", "hierarchical", "ours"];

const HELP: &str = "\
Cases (figures are nanoseconds an update, by as many threads as there are CPUs):
  per_task       before Linux 6.2: each task keeps up to 64 events to itself
  per_cpu_batch  Linux 6.2: a difference for each CPU, and a batch
  hierarchical   proposed in 2025: bits above the batch are carried into a tree
  ours           a cell for each CPU that ran the owner, added up when read

Then many threads (--sleepers) each touch 128 KiB and sleep, and every page is
counted by all four. For each: what it shows, how far that is from what was counted
and from what /proc/self/smaps_rollup says was added, what a reading costs, how much
memory it takes, and how many updates there were for each write of a shared line.

Examples:
  ledgerline bench rss
  ledgerline bench rss --sleepers 1000 --mode rseq --json";

/// Bytes that each thread touches.
const TOUCHED: usize = 128 << 10;
const PAGE: usize = 4096;
/// As small as the linked libraries allow.
const STACK: usize = 64 << 10;

/// All four designs, which count the same pages.
struct Four<'t> {
    per_task: PerTask,
    per_cpu_batch: PerCpuBatch,
    hierarchical: Hierarchical,
    ours: SharedOwner<'t>,
}

impl<'t> Four<'t> {
    fn new(table: &'t Table, cpus: usize) -> Made<Four<'t>> {
        Ok(Four {
            per_task: PerTask::default(),
            per_cpu_batch: PerCpuBatch::new(cpus),
            hierarchical: Hierarchical::new(cpus, 5),
            ours: table.register()?.share(),
        })
    }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let options = run.options;
    // The cost of an update.
    let mut rows = run.in_rounds(&options.threads, &options.cases, |turn| {
        let table = Table::new(2)?;
        let four = Four::new(&table, possible_cpus())?;
        turn.time(&ALL.map(|name| (name, name)), |_, name| Ok((1, body(name, &four))))
    })?;
    run.tell(format_args!("{} threads that touch 128 KiB and sleep", options.sleepers));
    let figures = sleep(options).map_err(|error| error.to_string())?;
    for row in &mut rows {
        row.rss = figures.iter().find(|(case, _)| *case == row.case).map(|(_, rss)| rss.clone());
    }
    Ok(rows)
}

fn body<'a>(name: &str, four: &'a Four<'_>) -> Body<'a> {
    match name {
        "per_task" => Box::new(|_, n| {
            let mut task = Task::default();
            for _ in 0..n {
                black_box(four.per_task.add(&mut task, 1));
            }
        }),
        "per_cpu_batch" => repeated(|| four.per_cpu_batch.add(1)),
        "hierarchical" => repeated(|| four.hierarchical.add(1)),
        _ => repeated(|| four.ours.add(Kind::Anon, 1)),
    }
}

fn repeated<'a, T>(count: impl Fn() -> T + Sync + 'a) -> Body<'a> {
    Box::new(move |_, n| {
        for _ in 0..n {
            count();
        }
    })
}

/// Runs the program, and returns what each design showed.
fn sleep(options: &Options) -> Made<Vec<(&'static str, RssFigures)>> {
    let threads = options.sleepers;
    let table = Table::new(2)?;
    let four = Four::new(&table, possible_cpus())?;
    let mut memory = untouched(threads * TOUCHED)?;
    let counted = AtomicU64::new(0);
    // Writes of lines that other CPUs write, by design.
    let writes: [AtomicU64; 3] = Default::default();
    let stage = Stage::default();
    let act = |mine: &mut [u8]| {
        if !stage.arrive(threads, Phase::Touch) {
            return;
        }
        let mut task = Task::default();
        let mut written = [0; 3];
        for page in mine.chunks_mut(PAGE) {
            *black_box(&mut page[0]) = 1;
            written[0] += four.per_task.add(&mut task, 1);
            written[1] += four.per_cpu_batch.add(1);
            written[2] += four.hierarchical.add(1);
            four.ours.add(Kind::Anon, 1);
        }
        counted.fetch_add((TOUCHED / PAGE) as u64, Ordering::Relaxed);
        for (all, written) in writes.iter().zip(written) {
            all.fetch_add(written, Ordering::Relaxed);
        }
        // While a task sleeps, readers miss the pages that it still keeps.
        stage.arrive(2 * threads, Phase::End);
    };
    let figures = std::thread::scope(|scope| {
        let act = &act;
        for (number, mine) in memory.chunks_mut(TOUCHED).enumerate() {
            let builder = std::thread::Builder::new().stack_size(STACK);
            if let Err(error) = builder.spawn_scoped(scope, move || act(mine)) {
                stage.enter(Phase::End);
                return Err(format!(
                    "only {number} of {threads} threads could be started ({error}): raise the \
                     limit (ulimit -u, the cgroup's pids.max, vm.max_map_count), or ask for fewer \
                     with --sleepers {}",
                    (number * 9 / 10).max(1)
                ));
            }
        }
        stage.wait_for(threads);
        let before = resident_pages();
        stage.enter(Phase::Touch);
        stage.wait_for(2 * threads);
        let truth = resident_pages().zip(before).map(|(after, before)| after - before);
        let counted = counted.load(Ordering::Relaxed) as i64;
        let per_cpu = four.ours.cpus() as u64;
        let shared = |at: usize| writes[at].load(Ordering::Relaxed);
        let figures = |shown: i64, bound: i64, read_ns, memory_bytes, misses: u64| RssFigures {
            sleepers: threads as u64,
            shown_pages: shown,
            counted_pages: counted,
            truth_pages: truth,
            error_pages: shown - counted,
            bound_pages: bound,
            read_ns: thousandths(read_ns),
            memory_bytes,
            updates_per_miss: (misses > 0).then(|| thousandths(counted as f64 / misses as f64)),
        };
        let (old, batch, tree, ours) =
            (&four.per_task, &four.per_cpu_batch, &four.hierarchical, &four.ours);
        let kept = size_of::<Task>() as u64 * threads as u64;
        let most_kept = (PerTask::EVENTS_KEPT * threads as i64).min(counted);
        let figures = vec![
            figures(old.read(), most_kept, time(|| old.read()), kept, shared(0)),
            figures(batch.read(), batch.bound(), time(|| batch.read()), batch.memory(), shared(1)),
            figures(tree.read(), tree.bound(), time(|| tree.read()), tree.memory(), shared(2)),
            // A CPU's first update puts it into the mask.
            figures(ours.read().resident(), 0, time(|| ours.read()), table.resident(), per_cpu),
        ];
        let figures = ALL.into_iter().zip(figures).collect();
        stage.enter(Phase::End);
        Ok(figures)
    })?;
    Ok(figures)
}

/// The phases of the sleepers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Wait,
    Touch,
    End,
}

/// The meeting point of all threads. It is not a barrier: if some cannot be started, the others are released.
#[derive(Debug, Default)]
struct Stage {
    phase: Mutex<(Phase, usize)>,
    /// Notifies the sleepers that the phase has changed.
    changed: Condvar,
    /// Notifies the director that enough sleepers have arrived.
    arrived: Condvar,
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, (Phase, usize)> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a sleeper and waits for a phase; `false` if it has to end instead. The sleeper that completes the
    /// number wakes the director.
    fn arrive(&self, complete: usize, wanted: Phase) -> bool {
        let mut state = self.lock();
        state.1 += 1;
        if state.1 == complete {
            self.arrived.notify_one();
        }
        while state.0 < wanted {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.0 == wanted
    }

    fn wait_for(&self, complete: usize) {
        let mut state = self.lock();
        while state.1 < complete {
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn enter(&self, phase: Phase) {
        self.lock().0 = phase;
        self.changed.notify_all();
    }
}

/// Maps memory that becomes resident page by page as it is touched.
fn untouched(size: usize) -> io::Result<MmapMut> {
    let memory = MmapOptions::new().len(size).no_reserve_swap().map_anon()?;
    // A kernel without huge pages refuses this, and does not need it.
    let _ = memory.advise(Advice::NoHugePage);
    Ok(memory)
}

/// Returns the pages of this process, by the kernel's own exact count.
fn resident_pages() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024 / PAGE as i64)
}

/// Returns the number of possible CPUs. The older designs have a word for each.
fn possible_cpus() -> usize {
    // SAFETY: sysconf takes a constant and has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1).max(1)
}

/// Returns the nanoseconds of a reading: the median of several rounds.
fn time<T>(read: impl Fn() -> T) -> f64 {
    const TIMES: u32 = 1000;
    let rounds: Vec<f64> = (0..21)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..TIMES {
                black_box(read());
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
        })
        .collect();
    ledgerline_bench::measure::stats::median(&rounds)
}

/// Describes the value that a design showed.
fn remark(row: &Row, _: Rows<'_>) -> String {
    let Some(rss) = &row.rss else { return String::new() };
    let percent = rss.error_pages as f64 / rss.counted_pages.max(1) as f64 * 100.0;
    let truth = rss.truth_pages.map_or_else(String::new, |truth| {
        format!(", {:+} of smaps_rollup's {truth}", rss.shown_pages - truth)
    });
    let misses = rss.updates_per_miss.map_or_else(
        || "no shared write at all".to_owned(),
        |updates| format!("{updates:.0} updates a shared write"),
    );
    format!(
        "shows {} of {} pages ({percent:+.1} %{truth}), read in {:.0} ns, {} B, {misses}",
        rss.shown_pages, rss.counted_pages, rss.read_ns, rss.memory_bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel counts pages of a whole process, so the test starts itself as a process of its own, without other
    /// tests.
    #[test]
    fn ours_shows_every_page_and_the_others_stay_within_their_bounds() {
        const ALONE: &str = "LEDGERLINE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let thread = std::thread::current();
            let name = thread.name().expect("the name of this test");
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let output = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let options = Options {
            threads: vec![1],
            runs: 3,
            cases: ALL.to_vec(),
            quick: true,
            cpus: vec![0],
            sleepers: 100,
        };
        let figures = sleep(&options).unwrap();
        for (case, rss) in &figures {
            assert_eq!(rss.counted_pages, 3200, "{case}");
            assert!(rss.error_pages <= 0 && -rss.error_pages <= rss.bound_pages, "{case}: {rss:?}");
            let truth = rss.truth_pages.expect("smaps_rollup can be read");
            assert!((3200..4200).contains(&truth), "{truth}");
        }
        let error = |case| figures.iter().find(|(name, _)| *name == case).unwrap().1.error_pages;
        assert_eq!(error("ours"), 0);
        assert_eq!(error("per_task"), -3200, "32 events of each thread are fewer than 64");
    }
}

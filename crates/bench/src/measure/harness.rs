//! Rounds of timed work on pinned threads. This module is independent of the timed work.
//!
//! ```text
//! calibrate every case                      the number of operations in a chunk
//! for each round (the first warms up):
//!     for each case:                        round-robin, so that the machine's drift affects all alike
//!         transfer                          with several threads: the present cost of moving a line
//!         barrier; all threads run chunks until one has done its share
//!         transfer
//! ```
//!
//! Each thread is timed from the common start to the end of the chunk in which the first thread finished. So all
//! threads compete all the time, and none runs on alone. The time for which the kernel ran other programs on the
//! thread's CPU is reported and not counted.

use super::barrier::Barrier;
use super::machine::{self, Waits};
use super::padded::Padded;
use super::size::Size;
use super::stats::median;
use super::transfer::Line;
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The least part of a round that a calibrating call takes.
const CALIBRATION: f64 = 1.0 / 32.0;
/// The number of calls that must be long enough before the calibration is accepted.
const CALIBRATION_TRIES: usize = 5;
/// The most operations of a chunk: a body that does nothing would never fill a round.
const CHUNK_MOST: u64 = 1 << 32;

/// A body of work: called with `(t, n)`, it does `n` operations as thread number `t`.
pub type Body<'a> = Box<dyn Fn(usize, u64) + Sync + 'a>;

/// A piece of work to time.
pub struct Case<'a> {
    /// The name in the report.
    pub name: &'static str,
    /// Operations are requested in multiples of this.
    pub granule: u64,
    /// The timed work.
    pub body: Body<'a>,
}

/// The way to time the cases.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of threads that run a case together.
    pub threads: usize,
    /// The number of rounds that count.
    pub runs: usize,
    /// The approximate time of a case in a round.
    pub round: Duration,
    /// Thread `i` runs on the `i`-th of these CPUs. If there are more threads than CPUs, the list starts over.
    pub cpus: Vec<usize>,
}

/// Nanoseconds that a line took from the first CPU to the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// The median of all games, before and after the rounds.
    pub median: f64,
    /// The median of the games before a round.
    pub before: f64,
    /// The median of the games after a round.
    pub after: f64,
}

/// The progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The case that is being timed.
    pub case: &'static str,
    /// 0 while calibrating and warming up.
    pub round: usize,
    /// The number of rounds that count, of each case.
    pub rounds: usize,
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.round {
            0 => write!(f, "warming up: {}", self.case),
            round => write!(f, "round {round} of {}: {}", self.rounds, self.case),
        }
    }
}

/// The results of a case, round by round.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// The case.
    pub name: &'static str,
    /// Nanoseconds per operation: for each thread, one value per round.
    pub threads: Vec<Vec<f64>>,
    /// For each round, the largest part of it for which any thread had to wait for its CPU.
    pub disturbed: Vec<f64>,
    /// Present if at least two threads ran on at least two CPUs.
    pub transfer: Option<Transfer>,
    /// The part of the time for which the threads waited while other programs had their CPUs. It is not in `threads`,
    /// unless there were more threads than CPUs.
    pub waited: f64,
}

impl Rounds {
    /// Makes the rounds of a case that was timed on one thread outside of this harness: nanoseconds per operation of
    /// each round.
    pub fn of_one(name: &'static str, rounds: Vec<f64>) -> Rounds {
        let disturbed = vec![0.0; rounds.len()];
        Rounds { name, threads: vec![rounds], disturbed, transfer: None, waited: 0.0 }
    }
}

/// Times all cases. Round `i` of one case comes right after round `i` of the previous case.
///
/// # Panics
/// If a body panics, or a thread cannot be started.
pub fn rounds(cases: &[Case<'_>], plan: &Plan, progress: &(dyn Fn(Step) + Sync)) -> Vec<Rounds> {
    let stage = Stage {
        cases,
        plan,
        progress,
        barrier: Barrier::new(plan.threads),
        ended: Padded::default(),
        agreed: Padded::default(),
        line: Line::default(),
    };
    let logs: Vec<Vec<Log>> = thread::scope(|scope| {
        let stage = &stage;
        let threads: Vec<_> =
            (0..plan.threads).map(|number| scope.spawn(move || stage.act(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
            .collect()
    });
    let of_case = |at: usize, name| {
        let waited: f64 = logs.iter().flat_map(|log| &log[at].waited).sum();
        let Log { before, after, .. } = &logs[0][at];
        Rounds {
            name,
            threads: logs.iter().map(|log| log[at].ns_per_op.clone()).collect(),
            disturbed: (0..plan.runs)
                .map(|run| logs.iter().map(|log| log[at].waited[run]).fold(0.0, f64::max))
                .collect(),
            transfer: (!before.is_empty()).then(|| Transfer {
                median: median(&[&before[..], &after[..]].concat()),
                before: median(before),
                after: median(after),
            }),
            waited: waited / (plan.threads * plan.runs) as f64,
        }
    };
    cases.iter().enumerate().map(|(at, case)| of_case(at, case.name)).collect()
}

/// The notes of a thread about a case, one value per round.
#[derive(Clone, Debug, Default)]
struct Log {
    ns_per_op: Vec<f64>,
    waited: Vec<f64>,
    before: Vec<f64>,
    after: Vec<f64>,
}

/// The result of a thread's share of a round.
#[derive(Clone, Copy, Debug)]
struct Share {
    ns_per_op: f64,
    /// The part of the time for which other programs had the CPU.
    waited: f64,
}

/// One of the threads.
#[derive(Debug)]
struct Actor {
    thread: usize,
    waits: Waits,
    /// Counts the joint steps of all threads; the same for all of them between two barriers.
    turn: u64,
}

/// The shared state of the threads.
struct Stage<'a> {
    cases: &'a [Case<'a>],
    plan: &'a Plan,
    progress: &'a (dyn Fn(Step) + Sync),
    barrier: Barrier,
    /// The number of the last turn that a thread has finished.
    ended: Padded<AtomicU64>,
    /// The first thread's time per operation, from which all derive the same chunk.
    agreed: Padded<AtomicU64>,
    line: Line,
}

impl Stage<'_> {
    /// Runs one thread. All threads pass the same barriers in the same order.
    fn act(&self, thread: usize) -> Vec<Log> {
        let _guard = self.barrier.break_on_panic();
        // A sandbox may forbid pinning; then the figures are noisier, not wrong.
        let _ = machine::pin(self.plan.cpus[thread % self.plan.cpus.len()]);
        let report = |case, round| {
            if thread == 0 {
                (self.progress)(Step { case, round, rounds: self.plan.runs });
            }
        };
        let mut actor = Actor { thread, waits: Waits::of_this_thread(), turn: 0 };
        let sizes: Vec<Size> = self
            .cases
            .iter()
            .map(|case| {
                report(case.name, 0);
                self.calibrate(case, &mut actor)
            })
            .collect();
        let mut logs = vec![Log::default(); self.cases.len()];
        for round in 0..=self.plan.runs {
            for ((case, &size), log) in self.cases.iter().zip(&sizes).zip(&mut logs) {
                report(case.name, round);
                let before = self.transfer(thread);
                let share = self.timed(case, &mut actor, size);
                let after = self.transfer(thread);
                if round > 0 {
                    log.ns_per_op.push(share.ns_per_op);
                    log.waited.push(share.waited);
                    log.before.extend(before);
                    log.after.extend(after);
                }
            }
        }
        logs
    }

    /// Runs chunks of the case until a thread has done its whole size.
    fn timed(&self, case: &Case<'_>, actor: &mut Actor, size: Size) -> Share {
        let Size { chunk, chunks } = size;
        actor.turn += 1;
        self.barrier.wait();
        // Read within the timed interval, since it takes a microsecond, so that it never exceeds the time.
        let start = Instant::now();
        let before = actor.waits.so_far();
        let mut done = 0;
        loop {
            (case.body)(actor.thread, chunk);
            done += 1;
            // Relaxed: only the end of the round depends on it; the barrier orders the rest.
            if done == chunks || self.ended.load(Ordering::Relaxed) == actor.turn {
                break;
            }
        }
        self.ended.store(actor.turn, Ordering::Relaxed);
        let waited = actor.waits.so_far().saturating_sub(before);
        let elapsed = start.elapsed();
        self.barrier.wait();
        // Threads that wait for each other's CPU are part of the measured cost.
        let counted = if self.oversubscribed() { elapsed } else { elapsed.saturating_sub(waited) };
        Share {
            ns_per_op: counted.as_nanos() as f64 / (done * chunk) as f64,
            waited: waited.as_nanos() as f64 / elapsed.as_nanos().max(1) as f64,
        }
    }

    fn oversubscribed(&self) -> bool {
        self.plan.threads > self.plan.cpus.len()
    }

    /// Determines the work that fills a round, while all threads compete like in the rounds.
    fn calibrate(&self, case: &Case<'_>, actor: &mut Actor) -> Size {
        let round = self.plan.round.as_nanos() as f64;
        let mut chunk = case.granule;
        loop {
            let mut fastest = f64::INFINITY;
            // A single slow try may mean that another program had the CPU.
            for _ in 0..CALIBRATION_TRIES {
                fastest = fastest.min(self.agreed_time(case, actor, chunk));
                if fastest * (chunk as f64) < round * CALIBRATION {
                    break;
                }
            }
            if fastest * chunk as f64 >= round * CALIBRATION {
                return Size::of(round / fastest, case.granule);
            }
            if chunk >= CHUNK_MOST {
                return Size { chunk, chunks: 1 };
            }
            chunk *= 2;
        }
    }

    /// Returns the first thread's nanoseconds per operation in one chunk, the same to all threads.
    fn agreed_time(&self, case: &Case<'_>, actor: &mut Actor, chunk: u64) -> f64 {
        let Share { ns_per_op, .. } = self.timed(case, actor, Size { chunk, chunks: 1 });
        if actor.thread == 0 {
            self.agreed.store(ns_per_op.to_bits(), Ordering::Relaxed);
        }
        // No thread stores again before all have read: `timed` starts at a barrier.
        self.barrier.wait();
        f64::from_bits(self.agreed.load(Ordering::Relaxed))
    }

    /// Returns the present cost of a transfer, on the first two threads if they have two CPUs.
    fn transfer(&self, thread: usize) -> Option<f64> {
        if self.plan.threads < 2 || self.plan.cpus.len() < 2 {
            return None;
        }
        self.barrier.wait();
        (thread < 2).then(|| self.line.play(thread == 1))
    }
}

#[cfg(test)]
mod tests;

//! Threads, each tied to a CPU, that do the same work at the same time, in blocks. A block records whether its thread
//! was disturbed.

use ledgerline_bench::measure::barrier::Barrier;
use ledgerline_bench::measure::machine::pin;
use ledgerline_bench::measure::padded::Padded;
use rustix::time::ClockId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A block counts if its thread had its CPU for this share of it.
const UNDISTURBED: f64 = 0.98;

/// The place of a thread in a team.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    /// Its index in the team, from zero.
    pub(super) index: usize,
    barrier: &'a Barrier,
    stop: &'a Padded<AtomicBool>,
}

/// A stretch of timed work, measured by one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) nanoseconds: f64,
    pub(super) operations: u64,
    /// Whether the thread had its CPU all the time.
    pub(super) undisturbed: bool,
}

impl Block {
    pub(super) fn per_operation(&self) -> f64 {
        self.nanoseconds / self.operations as f64
    }
}

/// Runs `play` on each CPU at the same time. Returns the results in the order of the CPUs.
///
/// # Errors
/// If this process may not use one of the CPUs.
pub(super) fn play<R: Send>(
    cpus: &[usize],
    play: impl Fn(&Seat<'_>) -> R + Sync,
) -> Result<Vec<R>, String> {
    let barrier = Barrier::new(cpus.len());
    let stop = Padded::default();
    thread::scope(|scope| {
        let (barrier, stop, play) = (&barrier, &stop, &play);
        let threads: Vec<_> = (cpus.iter().enumerate())
            .map(|(index, &cpu)| {
                scope.spawn(move || {
                    let _guard = barrier.break_on_panic();
                    let pinned = pin(cpu);
                    barrier.wait();
                    pinned.map_err(|error| format!("CPU {cpu} cannot be used: {error}"))?;
                    Ok(play(&Seat { index, barrier, stop }))
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // A thread that panicked has already reported it; the threads that waited for it only followed.
        results.into_iter().map(|result| result.map_err(|_| "a thread panicked")?).collect()
    })
}

impl Seat<'_> {
    /// Waits for the whole team.
    pub(super) fn meet(&self) {
        self.barrier.wait();
    }

    /// Repeats `operation`, together with the team, until the first of the team has done it `quota` times. So the
    /// whole team works all the time.
    #[inline(always)]
    pub(super) fn together(&self, quota: u64, mut operation: impl FnMut()) -> Block {
        if self.index == 0 {
            self.stop.store(false, Ordering::Relaxed);
        }
        self.meet();
        let block = timed(|| {
            let mut operations = 0;
            // Relaxed: the flag ends the loop, and nothing else depends on it.
            while !self.stop.load(Ordering::Relaxed) {
                operation();
                operations += 1;
                if operations == quota {
                    self.stop.store(true, Ordering::Relaxed);
                    break;
                }
            }
            operations
        });
        self.meet();
        block
    }

    /// Does `work` while the others of the team wait, if it is this seat's turn. `work` returns the number of its
    /// operations.
    #[inline(always)]
    pub(super) fn alone(&self, turn: usize, work: impl FnOnce() -> u64) -> Option<Block> {
        self.meet();
        let block = (self.index == turn).then(|| timed(work));
        self.meet();
        block
    }
}

/// Times work that returns the number of its operations, and checks whether the thread was disturbed.
#[inline(always)]
pub(super) fn timed(work: impl FnOnce() -> u64) -> Block {
    let before = processor_time();
    let start = Instant::now();
    let operations = work();
    let elapsed = start.elapsed();
    let used = processor_time().saturating_sub(before);
    // The thread's own time includes the two queries for it, so a share above one means nothing.
    let undisturbed = used.as_secs_f64() >= UNDISTURBED * elapsed.as_secs_f64();
    Block { nanoseconds: elapsed.as_nanos().max(1) as f64, operations, undisturbed }
}

/// Returns the CPU time of the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_bench::measure::machine::allowed_cpus;
    use std::sync::atomic::AtomicU64;

    fn some_cpus() -> Vec<usize> {
        let mut cpus = allowed_cpus().unwrap();
        cpus.truncate(2);
        cpus
    }

    #[test]
    fn a_team_stops_when_its_first_is_done_and_every_operation_is_counted() {
        let sum = AtomicU64::new(0);
        let cpus = some_cpus();
        for _ in 0..3 {
            sum.store(0, Ordering::Relaxed);
            let blocks = play(&cpus, |seat| {
                seat.together(1000, || {
                    let _ = sum.fetch_add(1, Ordering::Relaxed);
                })
            });
            let blocks = blocks.unwrap();
            let operations: Vec<u64> = blocks.iter().map(|block| block.operations).collect();
            assert_eq!(operations.iter().max(), Some(&1000), "{operations:?}");
            assert_eq!(operations.iter().sum::<u64>(), sum.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn one_works_alone_while_the_others_wait() {
        let both = |seat: &Seat<'_>| [seat.alone(0, || 7), seat.alone(1, || 8)];
        let blocks = play(&some_cpus(), both).unwrap();
        for (index, [first, second]) in blocks.iter().enumerate() {
            assert_eq!(first.map(|block| block.operations), (index == 0).then_some(7));
            assert_eq!(second.map(|block| block.operations), (index == 1).then_some(8));
        }
    }

    #[test]
    fn who_sleeps_was_disturbed() {
        let asleep = timed(|| {
            thread::sleep(Duration::from_millis(20));
            1
        });
        assert!(!asleep.undisturbed);
        assert!(asleep.per_operation() >= 20e6);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let error = play(&[8191], |_| ()).unwrap_err();
        assert!(error.starts_with("CPU 8191 cannot be used: "), "{error}");
    }
}

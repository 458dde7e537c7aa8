//! Linux 6.2: a difference for each CPU, which goes to the shared counter, behind a lock, when it reaches the batch
//! (`percpu_counter`).

use super::word::{Own, running};
use ledgerline_bench::measure::padded::Padded;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

/// One counter.
#[derive(Debug)]
pub struct PerCpuBatch {
    cpus: Vec<Padded<AtomicI32>>,
    batch: i32,
    total: Padded<AtomicI64>,
    fold: Mutex<()>,
}

impl PerCpuBatch {
    /// Makes a counter with the kernel's batch for this many CPUs.
    pub fn new(cpus: usize) -> PerCpuBatch {
        PerCpuBatch {
            cpus: (0..cpus).map(|_| Padded::default()).collect(),
            batch: i32::try_from(cpus * 2).unwrap_or(i32::MAX).max(32),
            total: Padded::default(),
            fold: Mutex::new(()),
        }
    }

    /// Counts on the running CPU, and returns the number of writes of shared lines.
    #[inline(always)]
    pub fn add(&self, pages: i32) -> u64 {
        self.add_on(running(self.cpus.len()), pages)
    }

    /// Counts on a CPU that belongs to one thread.
    #[inline(always)]
    pub fn add_alone_on(&self, cpu: usize, pages: i32) -> u64 {
        let sum = self.cpus[cpu].own_add(pages);
        if sum.abs() < self.batch {
            return 0;
        }
        self.cpus[cpu].store(0, Ordering::Relaxed);
        let _lock = self.fold.lock();
        self.total.fetch_add(sum.into(), Ordering::Relaxed);
        1
    }

    fn add_on(&self, cpu: usize, pages: i32) -> u64 {
        let mine = &self.cpus[cpu];
        let mut old = mine.load(Ordering::Relaxed);
        loop {
            let sum = old + pages;
            let full = sum.abs() >= self.batch;
            let left = if full { 0 } else { sum };
            match mine.compare_exchange_weak(old, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if full => {
                    let _lock = self.fold.lock();
                    self.total.fetch_add(sum.into(), Ordering::Relaxed);
                    return 1;
                }
                Ok(_) => return 0,
                Err(seen) => old = seen,
            }
        }
    }

    /// Returns the fast reading, which /proc used until 6.16.
    pub fn read(&self) -> i64 {
        self.total.load(Ordering::Relaxed).max(0)
    }

    /// Returns the largest error of a reading, in pages.
    pub fn bound(&self) -> i64 {
        i64::from(self.batch - 1) * self.cpus.len() as i64
    }

    /// Returns the bytes of the design: its per-CPU words, without the padding of this implementation, and the rest.
    pub fn memory(&self) -> u64 {
        (self.cpus.len() * size_of::<i32>() + size_of::<i64>() + size_of::<Mutex<()>>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_stays_below_the_batch_on_every_cpu() {
        let counter = PerCpuBatch::new(64);
        assert_eq!(counter.batch, 128);
        let mut counted = 0;
        for cpu in 0..64 {
            for _ in 0..127 + 128 {
                counter.add_on(cpu, 1);
                counted += 1;
            }
        }
        assert_eq!(counted - counter.read(), counter.bound(), "attained");
        assert_eq!(counter.add_on(0, 1), 1);
    }

    #[test]
    fn alone_on_a_cpu_it_counts_the_same() {
        let (shared, alone) = (PerCpuBatch::new(3), PerCpuBatch::new(3));
        for step in 0..10_000i32 {
            let (cpu, pages) = (step as usize % 3, step * 31 % 23 - 7);
            assert_eq!(shared.add_on(cpu, pages), alone.add_alone_on(cpu, pages));
            assert_eq!(shared.read(), alone.read());
        }
    }
}

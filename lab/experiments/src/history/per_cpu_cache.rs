//! "Replace per-task RSS cache with per-CPU RSS cache" (RFC, 2022): each CPU caches the counts of the address space
//! that it runs, and flushes them when it switches to another one. A reader adds up the caches that hold the address
//! space.

use super::word::Own;
use ledgerline_bench::measure::padded::Padded;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Kinds of pages.
const KINDS: usize = 4;

/// A CPU's cache. Only its CPU writes it.
#[derive(Debug, Default)]
struct Cache {
    /// The number of the address space plus one; zero for none.
    space: AtomicUsize,
    counts: [AtomicI64; KINDS],
}

/// The counts of several address spaces, on several CPUs.
#[derive(Debug)]
pub struct PerCpuCache {
    cpus: Vec<Padded<Cache>>,
    spaces: Vec<Padded<[AtomicI64; KINDS]>>,
}

impl PerCpuCache {
    /// Makes counters for this many CPUs and address spaces.
    pub fn new(cpus: usize, spaces: usize) -> PerCpuCache {
        PerCpuCache {
            cpus: (0..cpus).map(|_| Padded::default()).collect(),
            spaces: (0..spaces).map(|_| Padded::default()).collect(),
        }
    }

    /// Switches the CPU to an address space, and returns the number of writes of shared lines.
    #[inline(always)]
    pub fn run(&self, cpu: usize, space: usize) -> u64 {
        let cache = &self.cpus[cpu];
        let before = cache.space.load(Ordering::Relaxed);
        if before == space + 1 {
            return 0;
        }
        let mut writes = 0;
        if let Some(before) = before.checked_sub(1) {
            for (cached, count) in cache.counts.iter().zip(&self.spaces[before].0) {
                let pages = cached.load(Ordering::Relaxed);
                if pages != 0 {
                    count.fetch_add(pages, Ordering::Relaxed);
                    cached.store(0, Ordering::Relaxed);
                    writes += 1;
                }
            }
        }
        cache.space.store(space + 1, Ordering::Relaxed);
        writes
    }

    /// Counts. Returns `true` if the CPU's cache holds the address space (a hit), `false` if the shared counter was
    /// written.
    #[inline(always)]
    pub fn add(&self, cpu: usize, space: usize, kind: usize, pages: i64) -> bool {
        let cache = &self.cpus[cpu];
        let hit = cache.space.load(Ordering::Relaxed) == space + 1;
        if hit {
            cache.counts[kind].own_add(pages);
        } else {
            self.spaces[space][kind].fetch_add(pages, Ordering::Relaxed);
        }
        hit
    }

    /// Returns the pages of some kinds; exact while no thread counts.
    pub fn read(&self, space: usize, kinds: &[usize]) -> i64 {
        let sum = |counts: &[AtomicI64; KINDS]| {
            kinds.iter().map(|&kind| counts[kind].load(Ordering::Relaxed)).sum::<i64>()
        };
        let caches = self.cpus.iter().filter(|cpu| cpu.space.load(Ordering::Relaxed) == space + 1);
        sum(&self.spaces[space]) + caches.map(|cpu| sum(&cpu.counts)).sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn a_reading_is_exact_whoever_runs_where(
            steps in proptest::collection::vec((0..3usize, 0..4usize, 0..4usize, -5..6i64, any::<bool>()), 1..300),
        ) {
            let cache = PerCpuCache::new(3, 4);
            let mut counts = [[0; 4]; 4];
            let mut runs = [None; 3];
            for (cpu, space, kind, pages, turn) in steps {
                if turn {
                    cache.run(cpu, space);
                    runs[cpu] = Some(space);
                } else {
                    prop_assert_eq!(cache.add(cpu, space, kind, pages), runs[cpu] == Some(space));
                    counts[space][kind] += pages;
                }
                for (space, counts) in counts.iter().enumerate() {
                    prop_assert_eq!(cache.read(space, &[0, 1, 2, 3]), counts.iter().sum::<i64>());
                    prop_assert_eq!(cache.read(space, &[1]), counts[1]);
                }
            }
        }
    }

    #[test]
    fn a_turn_writes_what_is_cached_and_no_more() {
        let cache = PerCpuCache::new(1, 2);
        assert!(!cache.add(0, 0, 1, 1), "nobody runs yet");
        assert_eq!(cache.run(0, 0), 0);
        assert!(cache.add(0, 0, 1, 1) && cache.add(0, 0, 0, 2));
        assert_eq!((cache.run(0, 0), cache.run(0, 1), cache.run(0, 0)), (0, 2, 0));
    }
}

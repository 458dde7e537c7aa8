//! The hierarchical counter proposed for Linux in 2025: the bits of a CPU's count from the batch upwards are carried
//! into a tree, whose top is the approximate sum.

use super::word::running;
use ledgerline_bench::measure::padded::Padded;
use std::sync::atomic::{AtomicI64, Ordering};

/// Children of an inner node, at most, as a power of two.
const ARITY: u32 = 3;

/// One counter.
#[derive(Debug)]
pub struct Hierarchical {
    /// The CPUs' words, then the nodes level by level, the top last.
    levels: Vec<Vec<Padded<AtomicI64>>>,
    /// For each level, the power of two that its carries are multiples of, and the logarithm of the number of its words
    /// that share a word of the next level.
    carries: Vec<(u32, u32)>,
}

impl Hierarchical {
    /// Makes a counter for this many CPUs, with a batch of 2^`batch` pages.
    pub fn new(cpus: usize, batch: u32) -> Hierarchical {
        let words = |count: usize| (0..count).map(|_| Padded::default()).collect::<Vec<_>>();
        let mut levels = vec![words(cpus)];
        let mut carries = Vec::new();
        let (mut count, mut power) = (cpus, batch);
        loop {
            let bits = count.next_power_of_two().trailing_zeros().min(ARITY);
            carries.push((power, bits));
            count = count.div_ceil(1 << bits);
            levels.push(words(count));
            if count == 1 {
                return Hierarchical { levels, carries };
            }
            power += bits;
        }
    }

    /// Counts on the running CPU, and returns the number of writes of shared lines.
    #[inline(always)]
    pub fn add(&self, pages: i64) -> u64 {
        self.add_on(running(self.levels[0].len()), pages)
    }

    /// Counts on the CPU with this number.
    pub fn add_on(&self, cpu: usize, pages: i64) -> u64 {
        let (mut at, mut pages) = (cpu, pages);
        for (writes, (words, &(power, bits))) in self.levels.iter().zip(&self.carries).enumerate() {
            let old = words[at].fetch_add(pages, Ordering::Relaxed);
            // Only multiples are carried. The bits below stay behind, so the error has one sign.
            pages = (((old + pages) >> power) << power) - ((old >> power) << power);
            if pages == 0 {
                return writes as u64;
            }
            at >>= bits;
        }
        self.levels[self.carries.len()][at].fetch_add(pages, Ordering::Relaxed);
        self.carries.len() as u64
    }

    /// Returns the approximate sum.
    pub fn read(&self) -> i64 {
        self.levels[self.carries.len()][0].load(Ordering::Relaxed).max(0)
    }

    /// Returns the most pages that a settled tree does not show.
    pub fn bound(&self) -> i64 {
        let mut below = 1;
        let mut bound = 0;
        for (words, &(power, _)) in self.levels.iter().zip(&self.carries) {
            bound += words.len() as i64 * ((1 << power) - below);
            below = 1 << power;
        }
        bound
    }

    /// Returns the bytes of a word for each CPU and a line for each node.
    pub fn memory(&self) -> u64 {
        let nodes: usize = self.levels[1..].iter().map(Vec::len).sum();
        (self.levels[0].len() * size_of::<i64>() + nodes * 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_256_cpus_87_mib_may_not_be_shown() {
        let counter = Hierarchical::new(256, 5);
        assert_eq!(counter.levels.iter().map(Vec::len).collect::<Vec<_>>(), [256, 32, 4, 1]);
        assert_eq!((counter.bound(), (counter.bound() * 4096) >> 20), (22_272, 87));
        // Every word holds the most that it can hold without a carry.
        let mut counted = 0;
        for cpu in 0..256 {
            // 7 carries of 32 stay in each inner node, and of every 8 nodes 7 have carried 256 once.
            let node = cpu / 8;
            let carries = if node % 8 == 7 { 7 } else { 15 };
            let mine = carries / 8 + i64::from(cpu as i64 % 8 < carries % 8);
            counter.add_on(cpu, 31 + 32 * mine);
            counted += 31 + 32 * mine;
        }
        assert_eq!(counted - counter.read(), 22_272, "attained");
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        for cpus in [1, 2, 3, 8, 9, 100] {
            let counter = Hierarchical::new(cpus, 5);
            let mut counted = 0;
            for step in 0..100_000usize {
                let pages = (step * 7919 % 101) as i64 - 30;
                counter.add_on(step * 31 % cpus, pages);
                counted += pages;
            }
            let hidden = counted - counter.read();
            assert!((0..=counter.bound()).contains(&hidden), "{cpus}: {hidden}");
        }
    }
}

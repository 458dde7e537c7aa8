//! Linux 4.16: a group's statistics. Their fields are placed like in a layout of the report against e27be240df53.

use super::word::Own;
use ledgerline_bench::measure::padded::Padded;
use ledgerline_coherence::experiments::memcg_layout::Offsets;
use std::sync::atomic::{AtomicI64, Ordering};

/// Changes that a CPU keeps to itself (`MEMCG_CHARGE_BATCH`).
const BATCH: i64 = 32;
/// Words of the structure that matter.
const WORDS: usize = 256;
/// The words after `stat` of `stat[NR_FILE_MAPPED]`, the first that is written, and `events[PGFAULT]`.
const MAPPED: usize = 13;
const FAULTS: usize = 34 + 20;

/// The structure, at the start of a page, so that the mail's offsets fall on the mail's lines and pairs.
#[derive(Debug)]
#[repr(C, align(4096))]
struct Words([AtomicI64; WORDS]);

/// A CPU's own statistics.
#[derive(Debug, Default)]
struct PerCpu {
    mapped: AtomicI64,
    faults: AtomicI64,
}

/// The root group, which contains all pages.
#[derive(Debug)]
pub struct MemCgroup {
    words: Box<Words>,
    moving_account: usize,
    move_lock_task: usize,
    stat_cpu: usize,
    stat: usize,
    cpus: Vec<Padded<PerCpu>>,
}

impl MemCgroup {
    /// Makes a group for this many CPUs.
    ///
    /// # Panics
    /// If a field is not on a word or lies outside the first two kilobytes.
    pub fn new(cpus: usize, offsets: Offsets) -> MemCgroup {
        let word = |offset: u64| {
            assert!(offset.is_multiple_of(8), "{offset} is not on a word");
            usize::try_from(offset / 8).expect("a small offset")
        };
        let stat = word(offsets.stat);
        assert!(stat + FAULTS < WORDS, "the structure is larger than is modelled");
        MemCgroup {
            words: Box::new(Words(std::array::from_fn(|_| AtomicI64::new(0)))),
            moving_account: word(offsets.moving_account),
            move_lock_task: word(offsets.move_lock_task),
            stat_cpu: word(offsets.stat_cpu),
            stat,
            cpus: (0..cpus).map(|_| Padded::default()).collect(),
        }
    }

    /// Does a fault that maps a page, on `cpu`, which belongs to one thread.
    #[inline(always)]
    pub fn fault(&self, cpu: usize) {
        let mine = self.statistics_of(cpu);
        self.count(&mine.faults, self.stat + FAULTS, 1);
        self.mapped(cpu, 1);
    }

    /// Unmaps a page.
    #[inline(always)]
    pub fn unmap(&self, cpu: usize) {
        self.mapped(cpu, -1);
    }

    /// Locks the page to the group, counts it, and unlocks it. No thread is moving pages.
    #[inline(always)]
    fn mapped(&self, cpu: usize, pages: i64) {
        if self.words.0[self.moving_account].load(Ordering::Relaxed) != 0 {
            moving();
        }
        let mine = self.statistics_of(cpu);
        self.count(&mine.mapped, self.stat + MAPPED, pages);
        if self.words.0[self.move_lock_task].load(Ordering::Relaxed) != 0 {
            moving();
        }
    }

    /// Follows the pointer in the structure, which is zero here, so that the counting CPU has to wait for that word.
    #[inline(always)]
    fn statistics_of(&self, cpu: usize) -> &PerCpu {
        &self.cpus[cpu + self.words.0[self.stat_cpu].load(Ordering::Relaxed) as usize]
    }

    #[inline(always)]
    fn count(&self, own: &AtomicI64, total: usize, n: i64) {
        let sum = own.own_add(n);
        if sum.abs() > BATCH {
            self.words.0[total].fetch_add(sum, Ordering::Relaxed);
            own.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the totals: pages mapped, faults.
    #[cfg(test)]
    fn shown(&self) -> (i64, i64) {
        let word = |at: usize| self.words.0[self.stat + at].load(Ordering::Relaxed);
        (word(MAPPED), word(FAULTS))
    }

    /// Returns the totals with the counts that CPUs keep.
    #[cfg(test)]
    fn exact(&self) -> (i64, i64) {
        self.cpus.iter().fold(self.shown(), |(mapped, faults), cpu| {
            let own = |word: &AtomicI64| word.load(Ordering::Relaxed);
            (mapped + own(&cpu.mapped), faults + own(&cpu.faults))
        })
    }
}

#[cold]
#[inline(never)]
fn moving() {
    unreachable!("no code moves pages between groups here");
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_coherence::experiments::memcg_layout::VARIANTS;

    #[test]
    fn every_layout_counts_the_same_and_lags_by_a_batch_at_most() {
        for (name, offsets, ..) in VARIANTS {
            let memcg = MemCgroup::new(2, offsets);
            let mut worst = 0;
            for step in 1..=1000 {
                memcg.fault(step as usize % 2);
                if step % 3 == 0 {
                    memcg.unmap(1);
                }
                assert_eq!(memcg.exact(), (step - step / 3, step), "{name}");
                worst = worst.max(step - memcg.shown().1);
            }
            assert_eq!(worst, 2 * BATCH, "{name}: attained");
        }
    }

    #[test]
    fn the_structure_starts_a_page_so_that_lines_fall_as_in_the_mail() {
        let memcg = MemCgroup::new(1, VARIANTS[1].1);
        assert_eq!(std::ptr::from_ref(&*memcg.words).addr() % 4096, 0);
        let line = |word: usize| word * 8 / 64;
        // The bad layout: the pointer is on line 12, the first written word on line 13.
        assert_eq!((line(memcg.stat_cpu), line(memcg.stat + MAPPED)), (12, 13));
    }

    #[test]
    fn threads_lose_nothing() {
        let memcg = MemCgroup::new(3, VARIANTS[0].1);
        std::thread::scope(|scope| {
            for cpu in 0..3 {
                let memcg = &memcg;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        memcg.fault(cpu);
                        memcg.fault(cpu);
                        memcg.unmap(cpu);
                    }
                });
            }
        });
        assert_eq!(memcg.exact(), (60_000, 120_000));
    }
}

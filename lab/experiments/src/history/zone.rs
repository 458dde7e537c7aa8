//! Linux 4.13 and 4.14: a zone's NUMA counters with a difference for each CPU. The difference goes to the zone's and
//! the machine's totals when it passes a threshold ("Separate NUMA statistics from zone statistics").

use super::word::Own;
use ledgerline_bench::measure::padded::Padded;
use std::sync::atomic::{AtomicI8, AtomicI16, AtomicI64, AtomicU16, Ordering};

/// A difference of some width. One thread writes it.
pub trait Difference: Default + Send + Sync {
    /// The largest threshold.
    const MOST: u32;

    /// Counts one. If the difference passes the threshold, returns the amount that goes to the totals.
    fn count(&self, threshold: u32) -> Option<i64>;

    /// Returns the amount that is kept.
    #[cfg(test)]
    fn value(&self) -> i64;
}

/// Signed differences leave half a threshold behind on the other side (the overstep).
macro_rules! signed {
    ($atomic:ty, $value:ty, $most:expr) => {
        impl Difference for $atomic {
            const MOST: u32 = $most;

            #[inline(always)]
            fn count(&self, threshold: u32) -> Option<i64> {
                let sum = self.load(Ordering::Relaxed) + 1;
                let threshold = threshold as $value;
                if sum <= threshold {
                    self.store(sum, Ordering::Relaxed);
                    return None;
                }
                let overstep = threshold >> 1;
                self.store(-overstep, Ordering::Relaxed);
                Some(i64::from(sum) + i64::from(overstep))
            }

            #[cfg(test)]
            fn value(&self) -> i64 {
                self.load(Ordering::Relaxed).into()
            }
        }
    };
}

// The kernel's cap for bytes. The 16-bit variant of the mail's first version went to 30 000.
signed!(AtomicI8, i8, 125);
signed!(AtomicI16, i16, 32_765);

/// The unsigned difference of the series' end starts again at zero.
impl Difference for AtomicU16 {
    const MOST: u32 = 65_533;

    #[inline(always)]
    fn count(&self, threshold: u32) -> Option<i64> {
        let sum = self.load(Ordering::Relaxed) + 1;
        if u32::from(sum) <= threshold {
            self.store(sum, Ordering::Relaxed);
            return None;
        }
        self.store(0, Ordering::Relaxed);
        Some(sum.into())
    }

    #[cfg(test)]
    fn value(&self) -> i64 {
        self.load(Ordering::Relaxed).into()
    }
}

/// The part that a zone's CPUs share: the free pages, which every allocation reads, beside the counters.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Shared {
    free: AtomicI64,
    _others: [u64; 1],
    hit: AtomicI64,
    _between: [u64; 3],
    local: AtomicI64,
}

/// The part that the machine's zones share.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct All {
    hit: AtomicI64,
    _between: [u64; 3],
    local: AtomicI64,
}

/// A CPU's own part: its list of pages, and on the next line the differences.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct PerCpu<D> {
    pages: AtomicI64,
    _line: [u64; 7],
    hit: D,
    local: D,
}

/// A zone that all CPUs allocate from.
#[derive(Debug)]
pub struct Zone<D> {
    cpus: Vec<PerCpu<D>>,
    threshold: u32,
    shared: Shared,
    all: All,
}

/// Pages that the watermark check wants to remain.
const LOW: i64 = 1000;

impl<D: Difference> Zone<D> {
    /// Makes a zone for this many CPUs, with a threshold that fits the width.
    pub fn new(cpus: usize, threshold: u32) -> Zone<D> {
        assert!(threshold <= D::MOST, "a threshold of {threshold} does not fit the difference");
        let zone = Zone {
            cpus: std::iter::repeat_with(PerCpu::default).take(cpus).collect(),
            threshold,
            shared: Shared::default(),
            all: All::default(),
        };
        zone.shared.free.store(1 << 20, Ordering::Relaxed);
        zone
    }

    /// Does the work of an allocation and its freeing except for finding a page, on `cpu`, which belongs to one thread.
    #[inline(always)]
    pub fn allocate_and_free(&self, cpu: usize) -> bool {
        let mine = &self.cpus[cpu];
        let above = self.shared.free.load(Ordering::Relaxed) > LOW;
        mine.pages.own_add(-1);
        self.count(&mine.hit, &self.shared.hit, &self.all.hit);
        self.count(&mine.local, &self.shared.local, &self.all.local);
        mine.pages.own_add(1);
        above
    }

    #[inline(always)]
    fn count(&self, difference: &D, zone: &AtomicI64, all: &AtomicI64) {
        if let Some(passed) = difference.count(self.threshold) {
            zone.fetch_add(passed, Ordering::Relaxed);
            all.fetch_add(passed, Ordering::Relaxed);
        }
    }

    /// Returns the allocations that the zone's total shows.
    #[cfg(test)]
    fn shown(&self) -> i64 {
        assert_eq!(self.shared.hit.load(Ordering::Relaxed), self.all.hit.load(Ordering::Relaxed));
        self.shared.hit.load(Ordering::Relaxed)
    }

    /// Returns the total with the counts that CPUs keep.
    #[cfg(test)]
    fn exact(&self) -> i64 {
        self.shown() + self.cpus.iter().map(|cpu| cpu.hit.value()).sum::<i64>()
    }
}

/// A zone without statistics: the row "disable zone_statistics", and the base for our counters.
#[derive(Debug)]
pub struct BareZone {
    cpus: Vec<Padded<AtomicI64>>,
    free: Padded<AtomicI64>,
}

impl BareZone {
    /// Makes a zone for this many CPUs.
    pub fn new(cpus: usize) -> BareZone {
        BareZone {
            cpus: (0..cpus).map(|_| Padded::default()).collect(),
            free: Padded(AtomicI64::new(1 << 20)),
        }
    }

    /// Like [`Zone::allocate_and_free`], but calls `count` in between.
    #[inline(always)]
    pub fn allocate_and_free(&self, cpu: usize, count: impl FnOnce()) -> bool {
        let above = self.free.load(Ordering::Relaxed) > LOW;
        self.cpus[cpu].own_add(-1);
        count();
        self.cpus[cpu].own_add(1);
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_fields_lie_where_the_simulation_has_them() {
        let shared = [offset_of!(Shared, free), offset_of!(Shared, hit), offset_of!(Shared, local)];
        assert_eq!(shared, [0, 16, 48]);
        assert_eq!([offset_of!(All, hit), offset_of!(All, local)], [0, 32]);
        assert_eq!(offset_of!(PerCpu<AtomicI8>, hit), 64);
    }

    /// Counts on one CPU alone. Returns how often the total was written, and the most that it did not show.
    fn alone<D: Difference>(threshold: u32, times: i64) -> (u32, i64) {
        let zone = Zone::<D>::new(1, threshold);
        let (mut writes, mut worst, mut shown) = (0, 0, 0);
        for counted in 1..=times {
            assert!(zone.allocate_and_free(0));
            assert_eq!(zone.exact(), counted, "nothing is lost");
            writes += u32::from(zone.shown() != shown);
            shown = zone.shown();
            worst = worst.max((counted - shown).abs());
        }
        (writes, worst)
    }

    #[test]
    fn with_a_sign_the_total_is_written_once_in_one_and_a_half_thresholds_and_one() {
        for threshold in [2, 32, 64, 125] {
            let period = i64::from(threshold + threshold / 2 + 1);
            // The first write comes after a threshold and one: the difference starts at zero.
            let times = i64::from(threshold) + 1 + 9 * period;
            assert_eq!(alone::<AtomicI8>(threshold, times), (10, i64::from(threshold)), "attained");
            assert_eq!(alone::<AtomicI16>(threshold, times), (10, i64::from(threshold)));
        }
        assert_eq!(alone::<AtomicI16>(30_000, 100_000), (2, 30_000));
    }

    #[test]
    fn without_a_sign_it_is_written_once_in_a_threshold_and_one() {
        assert_eq!(alone::<AtomicU16>(100, 1010), (10, 100));
        assert_eq!(alone::<AtomicU16>(65_533, 131_068), (2, 65_533));
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_byte_holds_no_larger_threshold_than_125() {
        Zone::<AtomicI8>::new(1, 126);
    }

    #[test]
    fn threads_lose_nothing() {
        let zone = Zone::<AtomicI8>::new(3, 32);
        std::thread::scope(|scope| {
            for cpu in 0..3 {
                let zone = &zone;
                scope.spawn(move || (0..50_000).all(|_| zone.allocate_and_free(cpu)));
            }
        });
        assert_eq!(zone.exact(), 150_000);
        assert!((150_000 - zone.shown()).abs() <= 3 * 32);
        assert!(zone.cpus.iter().all(|cpu| cpu.pages.load(Ordering::Relaxed) == 0));
    }
}

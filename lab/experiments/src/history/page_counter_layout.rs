//! Linux 6.0 and 6.1: page counters with protection, before and after "memcg: optimize charge codepath".
//!
//! The same walk passes over two orders of the fields. [`Packed`] has them in the order of 6.0. [`Split`] has them in
//! the order of 6.1, with separate lines for fields that every charge writes, fields that are written now and then, and
//! fields that are hardly ever written.

use std::sync::atomic::{AtomicI64, Ordering};

/// When a counter reports its protected usage to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagate {
    /// To 6.0: every walk exchanges the reported value, changed or not.
    Always,
    /// From 6.1: only if it has changed.
    Changed,
}

/// A group from its third line on, in 6.0: `usage` shares its line with the limits, and with the end of the header of
/// every group.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Packed {
    _css: [u64; 8],
    /// The number of the parent plus one; zero for none.
    css_parent: AtomicI64,
    _id: u64,
    usage: AtomicI64,
    min: AtomicI64,
    low: AtomicI64,
    high: AtomicI64,
    max: AtomicI64,
    emin: AtomicI64,
    min_usage: AtomicI64,
    children_min_usage: AtomicI64,
    elow: AtomicI64,
    low_usage: AtomicI64,
    children_low_usage: AtomicI64,
    watermark: AtomicI64,
    failures: AtomicI64,
    /// Like `css_parent`: the counters are linked as well as the groups.
    parent: AtomicI64,
    swap_usage: AtomicI64,
    _swap: [u64; 2],
    swap_high: AtomicI64,
}

/// A group in 6.1: `usage` alone, then the fields that protection writes, then those that are only read.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Split {
    _css: [u64; 8],
    /// The number of the parent plus one; zero for none.
    css_parent: AtomicI64,
    _id: [u64; 7],
    usage: AtomicI64,
    _line: [u64; 7],
    emin: AtomicI64,
    min_usage: AtomicI64,
    children_min_usage: AtomicI64,
    elow: AtomicI64,
    low_usage: AtomicI64,
    children_low_usage: AtomicI64,
    watermark: AtomicI64,
    failures: AtomicI64,
    min: AtomicI64,
    low: AtomicI64,
    high: AtomicI64,
    max: AtomicI64,
    /// Like `css_parent`: the counters are linked as well as the groups.
    parent: AtomicI64,
    _limits: [u64; 3],
    swap_usage: AtomicI64,
    _swap: [u64; 17],
    swap_high: AtomicI64,
}

macro_rules! layouts {
    ($($field:ident)*) => {
        /// An order of the fields that a walk touches.
        pub trait Layout: Default + Send + Sync {
            $(#[doc = concat!("The group's `", stringify!($field), "`.")]
            fn $field(&self) -> &AtomicI64;)*
        }

        layouts! { for Packed: $($field)* }
        layouts! { for Split: $($field)* }
    };
    (for $layout:ident: $($field:ident)*) => {
        impl Layout for $layout {
            $(#[inline(always)]
            fn $field(&self) -> &AtomicI64 {
                &self.$field
            })*
        }
    };
}

layouts! {
    css_parent usage min low high max min_usage children_min_usage low_usage children_low_usage
    watermark failures parent swap_usage swap_high
}

/// A chain of groups, the root first. The last one is charged.
#[derive(Debug)]
pub struct Charged<L> {
    levels: Vec<L>,
    propagate: Propagate,
}

impl<L: Layout> Charged<L> {
    /// Makes `depth` groups below a root. The topmost has `protected` pages of `min` and of `low`.
    pub fn new(depth: usize, protected: i64, propagate: Propagate) -> Charged<L> {
        let levels: Vec<L> = (0..=depth).map(|_| L::default()).collect();
        for (number, level) in levels.iter().enumerate() {
            level.max().store(i64::MAX, Ordering::Relaxed);
            level.high().store(i64::MAX, Ordering::Relaxed);
            level.swap_high().store(i64::MAX, Ordering::Relaxed);
            level.parent().store(number as i64, Ordering::Relaxed);
            level.css_parent().store(number as i64, Ordering::Relaxed);
            if number == 1 {
                level.min().store(protected, Ordering::Relaxed);
                level.low().store(protected, Ordering::Relaxed);
            }
        }
        Charged { levels, propagate }
    }

    /// Charges all levels, or none. Then checks whether one is above its `high`, as every charge does.
    #[inline(always)]
    pub fn try_charge(&self, pages: i64) -> bool {
        let mut at = self.levels.len();
        while at > 0 {
            let level = &self.levels[at - 1];
            // Relaxed, here and below: only each word's sum matters here.
            let usage = level.usage().fetch_add(pages, Ordering::Relaxed) + pages;
            if usage > level.max().load(Ordering::Relaxed) {
                self.take_back(at, pages);
                return false;
            }
            self.tell_parent(level, usage);
            if usage > level.watermark().load(Ordering::Relaxed) {
                level.watermark().store(usage, Ordering::Relaxed);
            }
            at = level.parent().load(Ordering::Relaxed) as usize;
        }
        if self.any(|group| {
            let above = |usage: &AtomicI64, high: &AtomicI64| {
                usage.load(Ordering::Relaxed) > high.load(Ordering::Relaxed)
            };
            above(group.usage(), group.high()) || above(group.swap_usage(), group.swap_high())
        }) {
            self.above_high();
        }
        true
    }

    /// Returns whether the group, or one above it, is short of memory for sockets. A thread that returns memory asks
    /// this. No group is short of it here; the cost is in finding the groups.
    #[inline(always)]
    pub fn short_of_memory(&self) -> bool {
        self.any(|_| false)
    }

    /// Returns whether a predicate holds for the group or for one above it.
    #[inline(always)]
    fn any(&self, of: impl Fn(&L) -> bool) -> bool {
        let mut at = self.levels.len();
        while at > 0 {
            let group = &self.levels[at - 1];
            if of(group) {
                return true;
            }
            at = group.css_parent().load(Ordering::Relaxed) as usize;
        }
        false
    }

    /// Uncharges all levels.
    #[inline(always)]
    pub fn uncharge(&self, pages: i64) {
        self.uncharge_down_to(1, pages);
    }

    #[inline(always)]
    fn uncharge_down_to(&self, last: usize, pages: i64) {
        let mut at = self.levels.len();
        while at >= last {
            let level = &self.levels[at - 1];
            let usage = level.usage().fetch_sub(pages, Ordering::Relaxed) - pages;
            self.tell_parent(level, usage);
            at = level.parent().load(Ordering::Relaxed) as usize;
            if at == 0 {
                return;
            }
        }
    }

    #[cold]
    fn take_back(&self, at: usize, pages: i64) {
        self.uncharge_down_to(at, pages);
        let failures = self.levels[at - 1].failures();
        failures.store(failures.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Here the kernel would send the task to reclaim.
    #[cold]
    fn above_high(&self) {}

    #[inline(always)]
    fn tell_parent(&self, level: &L, usage: i64) {
        let parent = level.parent().load(Ordering::Relaxed) as usize;
        if parent == 0 {
            return;
        }
        let parent = &self.levels[parent - 1];
        self.tell(usage, level.min(), level.min_usage(), parent.children_min_usage());
        self.tell(usage, level.low(), level.low_usage(), parent.children_low_usage());
    }

    #[inline(always)]
    fn tell(&self, usage: i64, setting: &AtomicI64, told: &AtomicI64, sum: &AtomicI64) {
        let setting = setting.load(Ordering::Relaxed);
        let protected = usage.min(setting);
        let before = || told.load(Ordering::Relaxed);
        let due = match self.propagate {
            // A nonzero value is exchanged without a comparison.
            Propagate::Always => setting != 0 || before() != 0,
            Propagate::Changed => protected != before(),
        };
        if due {
            let change = protected - told.swap(protected, Ordering::Relaxed);
            if change != 0 {
                sum.fetch_add(change, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::mem::offset_of;

    #[test]
    fn the_fields_lie_where_the_simulation_has_them() {
        macro_rules! offsets {
            ($type:ident) => {
                [
                    offset_of!($type, css_parent),
                    offset_of!($type, usage),
                    offset_of!($type, min),
                    offset_of!($type, low),
                    offset_of!($type, high),
                    offset_of!($type, max),
                    offset_of!($type, min_usage),
                    offset_of!($type, low_usage),
                    offset_of!($type, watermark),
                    offset_of!($type, parent),
                    offset_of!($type, swap_usage),
                    offset_of!($type, swap_high),
                ]
            };
        }
        // In 6.0, a counter begins 16 bytes into a line and has 112 bytes; in 6.1, it begins a line and has 192.
        let packed = [0, 8, 16, 24, 32, 48, 72, 88, 104, 112, 136].map(|field| 80 + field);
        assert_eq!(offsets!(Packed), concat(64, packed));
        let split = [0, 128, 136, 144, 152, 72, 96, 112, 160, 192, 336].map(|field| 128 + field);
        assert_eq!(offsets!(Split), concat(64, split));
    }

    fn concat(first: usize, rest: [usize; 11]) -> [usize; 12] {
        std::array::from_fn(|at| if at == 0 { first } else { rest[at - 1] })
    }

    /// Checks the levels after so many charged pages.
    fn settled<L: Layout>(counters: &Charged<L>, pages: i64, protected: i64) {
        let value = |word: &AtomicI64| word.load(Ordering::Relaxed);
        for (number, level) in counters.levels.iter().enumerate() {
            assert_eq!(value(level.usage()), pages);
            let told = if number == 1 { pages.min(protected) } else { 0 };
            assert_eq!((value(level.min_usage()), value(level.low_usage())), (told, told));
            let children = if number == 0 { pages.min(protected) } else { 0 };
            assert_eq!(value(level.children_min_usage()), children);
            assert_eq!(value(level.children_low_usage()), children);
        }
    }

    fn follows<L: Layout>(steps: &[i64], protected: i64, propagate: Propagate) {
        let counters = Charged::<L>::new(3, protected, propagate);
        counters.levels[2].max().store(500, Ordering::Relaxed);
        let (mut pages, mut refused, mut most) = (0, 0, 0);
        for &step in steps {
            if step > 0 {
                let fits = pages + step <= 500;
                assert_eq!(counters.try_charge(step), fits);
                pages += if fits { step } else { 0 };
                refused += i64::from(!fits);
                most = most.max(pages);
            } else if pages + step >= 0 {
                counters.uncharge(-step);
                pages += step;
            }
            settled(&counters, pages, protected);
        }
        assert!(!counters.short_of_memory());
        assert_eq!(counters.levels[2].failures().load(Ordering::Relaxed), refused);
        // The level above the one that refused knows only the charges before the refusal.
        assert_eq!(counters.levels[0].watermark().load(Ordering::Relaxed), most);
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn usage_and_protection_are_the_oracles(
            steps in proptest::collection::vec(-200..200i64, 1..100),
            protected in 0..400i64,
        ) {
            for propagate in [Propagate::Always, Propagate::Changed] {
                follows::<Packed>(&steps, protected, propagate);
                follows::<Split>(&steps, protected, propagate);
            }
        }
    }

    #[test]
    fn threads_lose_nothing() {
        fn storm<L: Layout>(propagate: Propagate) {
            let counters = Charged::<L>::new(3, 40, propagate);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for step in 0..10_000 {
                            let pages = step % 7 + 1;
                            assert!(counters.try_charge(pages));
                            counters.uncharge(pages);
                        }
                    });
                }
            });
            for level in &counters.levels {
                assert_eq!(level.usage().load(Ordering::Relaxed), 0);
            }
            // Walks race to report to the parent. The parent's sum equals the value that the child recorded.
            let told = counters.levels[1].min_usage().load(Ordering::Relaxed);
            let sum = counters.levels[0].children_min_usage().load(Ordering::Relaxed);
            assert_eq!(told, sum);
        }
        for propagate in [Propagate::Always, Propagate::Changed] {
            storm::<Packed>(propagate);
            storm::<Split>(propagate);
        }
    }
}

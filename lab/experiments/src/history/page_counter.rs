//! Linux 3.19: pages, in words that form a tree, each changed by one atomic addition (`page_counter`).

use ledgerline_measure::padded::Padded;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A counter. The order of the fields is the kernel's.
#[derive(Debug)]
#[repr(C)]
struct Counter {
    count: AtomicI64,
    limit: AtomicI64,
    parent: Option<usize>,
    watermark: AtomicI64,
    failures: AtomicU64,
}

/// Counters in a tree. The first is the root.
#[derive(Debug, Default)]
pub struct PageCounters {
    counters: Vec<Padded<Counter>>,
}

impl PageCounters {
    /// Adds a counter with a limit in pages; its number. Parents come before their children.
    pub fn add(&mut self, limit: i64, parent: Option<usize>) -> usize {
        assert!(parent.is_none_or(|parent| parent < self.counters.len()), "no such parent");
        self.counters.push(Padded(Counter {
            count: AtomicI64::new(0),
            limit: AtomicI64::new(limit),
            parent,
            watermark: AtomicI64::new(0),
            failures: AtomicU64::new(0),
        }));
        self.counters.len() - 1
    }

    /// Charges a counter and all above it, or none of them. While a charge that will be refused is taken
    /// back, others may be refused because of it.
    #[inline(always)]
    pub fn try_charge(&self, counter: usize, pages: i64) -> bool {
        let mut next = Some(counter);
        while let Some(at) = next {
            let level = &self.counters[at];
            // Relaxed: each level's sum is all that matters here.
            let count = level.count.fetch_add(pages, Ordering::Relaxed) + pages;
            if count > level.limit.load(Ordering::Relaxed) {
                self.take_back(counter, at, pages);
                return false;
            }
            // Racy, as it was: a higher mark may be lost to a lower one.
            if count > level.watermark.load(Ordering::Relaxed) {
                level.watermark.store(count, Ordering::Relaxed);
            }
            next = level.parent;
        }
        true
    }

    #[cold]
    fn take_back(&self, first: usize, last: usize, pages: i64) {
        let mut at = first;
        loop {
            let level = &self.counters[at];
            level.count.fetch_sub(pages, Ordering::Relaxed);
            if at == last {
                let failures = level.failures.load(Ordering::Relaxed);
                level.failures.store(failures + 1, Ordering::Relaxed);
                return;
            }
            at = level.parent.expect("the one that refused is above");
        }
    }

    /// Uncharges a counter and all above it.
    #[inline(always)]
    pub fn uncharge(&self, counter: usize, pages: i64) {
        let mut next = Some(counter);
        while let Some(at) = next {
            let level = &self.counters[at];
            level.count.fetch_sub(pages, Ordering::Relaxed);
            next = level.parent;
        }
    }

    /// Pages in use.
    #[cfg(test)]
    pub fn usage(&self, counter: usize) -> i64 {
        self.counters[counter].count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle;
    use super::*;

    #[test]
    fn charges_and_refusals_are_the_oracles() {
        oracle::check(
            |limits, parents| {
                let mut tree = PageCounters::default();
                for (&limit, &parent) in limits.iter().zip(parents) {
                    tree.add(limit as i64, parent);
                }
                tree
            },
            |tree, at, pages| tree.try_charge(at, pages as i64),
            |tree, at, pages| tree.uncharge(at, pages as i64),
            |tree, at| tree.usage(at) as u64,
        );
    }

    #[test]
    fn threads_lose_nothing() {
        let mut tree = PageCounters::default();
        let root = tree.add(1000, None);
        let leaves = [tree.add(i64::MAX, Some(root)), tree.add(600, Some(root))];
        std::thread::scope(|scope| {
            for leaf in leaves {
                let tree = &tree;
                scope.spawn(move || {
                    let mut held = 0;
                    for step in 0..20_000 {
                        let pages = step * 37 % 90 + 1;
                        if tree.try_charge(leaf, pages) {
                            held += pages;
                        }
                        if held > 300 {
                            tree.uncharge(leaf, held);
                            held = 0;
                        }
                    }
                    tree.uncharge(leaf, held);
                });
            }
        });
        assert_eq!([root, leaves[0], leaves[1]].map(|at| tree.usage(at)), [0; 3]);
        assert!(tree.counters[root].watermark.load(Ordering::Relaxed) <= 1000);
    }
}

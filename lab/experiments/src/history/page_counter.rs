//! Linux 3.19: counters of pages that form a tree, each changed by one atomic addition (`page_counter`).

use super::tree::Counter;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A counter of pages. The order of the fields is the kernel's.
#[derive(Debug)]
#[repr(C)]
pub struct PageCounter {
    count: AtomicI64,
    limit: AtomicI64,
    parent: Option<usize>,
    watermark: AtomicI64,
    failures: AtomicU64,
}

impl Counter for PageCounter {
    type Amount = i64;

    fn new(limit: i64, parent: Option<usize>) -> PageCounter {
        PageCounter {
            count: AtomicI64::new(0),
            limit: AtomicI64::new(limit),
            parent,
            watermark: AtomicI64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn parent(&self) -> Option<usize> {
        self.parent
    }

    #[inline(always)]
    fn try_charge(&self, pages: i64) -> bool {
        // Relaxed: only each counter's sum matters here.
        let count = self.count.fetch_add(pages, Ordering::Relaxed) + pages;
        if count > self.limit.load(Ordering::Relaxed) {
            self.uncharge(pages);
            self.failures.store(self.failures.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        }
        // Racy, like the original: a higher mark may be overwritten by a lower one.
        if count > self.watermark.load(Ordering::Relaxed) {
            self.watermark.store(count, Ordering::Relaxed);
        }
        true
    }

    #[inline(always)]
    fn uncharge(&self, pages: i64) {
        self.count.fetch_sub(pages, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn usage(&self) -> i64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle;
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn charges_and_refusals_are_the_oracles() {
        oracle::check(
            |limits, parents| {
                let mut tree = Tree::<PageCounter>::default();
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
        let mut tree = Tree::<PageCounter>::default();
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

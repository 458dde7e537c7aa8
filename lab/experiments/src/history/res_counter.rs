//! Linux to 3.18: memory in bytes, in 64-bit counters that form a tree, each changed under its spinlock
//! (`res_counter`).

use super::lock::TicketLock;
use super::tree::Counter;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of bytes. The order of the fields is the kernel's. The lock guards them; they are atomics only because
/// Rust needs that for shared words.
#[derive(Debug)]
#[repr(C)]
pub struct ResCounter {
    usage: AtomicU64,
    max_usage: AtomicU64,
    limit: AtomicU64,
    soft_limit: AtomicU64,
    failures: AtomicU64,
    lock: TicketLock,
    parent: Option<usize>,
}

impl Counter for ResCounter {
    type Amount = u64;

    fn new(limit: u64, parent: Option<usize>) -> ResCounter {
        ResCounter {
            usage: AtomicU64::new(0),
            max_usage: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            soft_limit: AtomicU64::new(u64::MAX),
            failures: AtomicU64::new(0),
            lock: TicketLock::default(),
            parent,
        }
    }

    #[inline(always)]
    fn parent(&self) -> Option<usize> {
        self.parent
    }

    #[inline(always)]
    fn try_charge(&self, bytes: u64) -> bool {
        // Relaxed, here and below: the lock provides the ordering.
        let _held = self.lock.lock();
        let usage = self.usage.load(Ordering::Relaxed) + bytes;
        if usage > self.limit.load(Ordering::Relaxed) {
            self.failures.store(self.failures.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        }
        self.usage.store(usage, Ordering::Relaxed);
        if usage > self.max_usage.load(Ordering::Relaxed) {
            self.max_usage.store(usage, Ordering::Relaxed);
        }
        true
    }

    #[inline(always)]
    fn uncharge(&self, bytes: u64) {
        let _held = self.lock.lock();
        let usage = self.usage.load(Ordering::Relaxed);
        self.usage.store(usage.saturating_sub(bytes), Ordering::Relaxed);
    }

    #[cfg(test)]
    fn usage(&self) -> u64 {
        self.usage.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle;
    use super::super::tree::Tree;
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_fields_lie_where_they_lay() {
        let at = [
            offset_of!(ResCounter, usage),
            offset_of!(ResCounter, limit),
            offset_of!(ResCounter, lock),
            offset_of!(ResCounter, parent),
        ];
        assert_eq!(at, [0, 16, 40, 48]);
    }

    #[test]
    fn charges_and_refusals_are_the_oracles() {
        oracle::check(
            |limits, parents| {
                let mut tree = Tree::<ResCounter>::default();
                for (&limit, &parent) in limits.iter().zip(parents) {
                    tree.add(limit, parent);
                }
                tree
            },
            Tree::<ResCounter>::try_charge,
            Tree::<ResCounter>::uncharge,
            Tree::<ResCounter>::usage,
        );
    }

    #[test]
    fn threads_lose_nothing_and_pass_no_limit() {
        let mut tree = Tree::<ResCounter>::default();
        let root = tree.add(1000, None);
        let leaves = [tree.add(u64::MAX, Some(root)), tree.add(600, Some(root))];
        std::thread::scope(|scope| {
            for (number, leaf) in leaves.into_iter().enumerate() {
                let tree = &tree;
                scope.spawn(move || {
                    let mut held = 0;
                    for step in 0..20_000 {
                        let bytes = (step * 37 + number as u64) % 90 + 1;
                        if tree.try_charge(leaf, bytes) {
                            held += bytes;
                        }
                        assert!(tree.usage(root) <= 1000);
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
        assert!(tree.counters[root].max_usage.load(Ordering::Relaxed) <= 1000);
    }
}

//! A queue lock between two CPUs: each waits on a line of its own (Mellor-Crummey and Scott).

use ledgerline_bench::measure::padded::Padded;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct QueueLock {
    /// The last CPU in the queue, as its number plus one; zero for none.
    tail: Padded<AtomicUsize>,
    nodes: [Padded<Node>; 2],
}

#[derive(Debug, Default)]
struct Node {
    /// The next CPU, as its number plus one.
    next: AtomicUsize,
    waiting: AtomicUsize,
}

impl QueueLock {
    /// Takes the lock and releases it on CPU `me`, 0 or 1.
    #[inline(always)]
    pub(super) fn pass(&self, me: usize) {
        let node = &self.nodes[me];
        // Relaxed: the swap below publishes both.
        node.next.store(0, Ordering::Relaxed);
        node.waiting.store(1, Ordering::Relaxed);
        let before = self.tail.swap(me + 1, Ordering::AcqRel);
        if before != 0 {
            // Release pairs with the Acquire of the CPU that passes the lock on.
            self.nodes[before - 1].next.store(me + 1, Ordering::Release);
            while node.waiting.load(Ordering::Acquire) == 1 {}
        }
        if node.next.load(Ordering::Acquire) == 0 {
            let (me, nobody) = (me + 1, 0);
            let swapped =
                self.tail.compare_exchange(me, nobody, Ordering::AcqRel, Ordering::Relaxed);
            if swapped.is_ok() {
                return;
            }
            while node.next.load(Ordering::Acquire) == 0 {}
        }
        let after = node.next.load(Ordering::Acquire) - 1;
        self.nodes[after].waiting.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_is_left_waiting_and_the_lock_ends_free() {
        let (lock, passes) = (QueueLock::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (lock, passes) = (&lock, &passes);
                scope.spawn(move || {
                    for _ in 0..300 {
                        lock.pass(me);
                        passes.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(passes.load(Ordering::Relaxed), 600);
        assert_eq!(lock.tail.load(Ordering::Relaxed), 0);
    }
}

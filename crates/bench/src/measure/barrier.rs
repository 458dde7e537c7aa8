//! A barrier that threads leave together, within a cache line's transfer.

use super::padded::Padded;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The turns of the loop after which a waiting thread starts to yield its CPU: the missing thread may need that very
/// CPU.
const SPINS: u32 = 1 << 14;

/// A barrier that holds a fixed number of threads until all of them have arrived.
///
/// `std::sync::Barrier` puts threads to sleep and wakes them one after the other, tens of
/// microseconds apart; here all of them watch one word.
#[derive(Debug)]
pub struct Barrier {
    size: usize,
    arrived: Padded<AtomicUsize>,
    turn: Padded<AtomicUsize>,
    broken: AtomicBool,
}

impl Barrier {
    /// Makes a barrier for `size` threads.
    pub fn new(size: usize) -> Barrier {
        Barrier {
            size,
            arrived: Padded::default(),
            turn: Padded::default(),
            broken: AtomicBool::new(false),
        }
    }

    /// Waits for the others. Each thread's writes before its call are visible to every thread after it.
    ///
    /// # Panics
    /// Panics if one of the others panicked: it will never arrive.
    pub fn wait(&self) {
        // Relaxed: the turn cannot pass before this thread has arrived.
        let turn = self.turn.load(Ordering::Relaxed);
        // AcqRel: the last to arrive acquires the writes of the others; the Release store below passes them to every
        // thread that leaves through the Acquire load.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.arrived.store(0, Ordering::Relaxed);
            self.turn.store(turn.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.turn.load(Ordering::Acquire) == turn {
            assert!(!self.broken.load(Ordering::Relaxed), "another thread of this round panicked");
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Breaks the barrier if the calling thread unwinds while the result lives.
    pub fn break_on_panic(&self) -> impl Drop + '_ {
        struct Guard<'a>(&'a Barrier);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.broken.store(true, Ordering::Relaxed);
                }
            }
        }
        Guard(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn nobody_leaves_before_all_have_come() {
        const THREADS: usize = 5;
        let barrier = Barrier::new(THREADS);
        let came = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for turn in 1..=200 {
                        came.fetch_add(1, Ordering::Relaxed);
                        barrier.wait();
                        assert_eq!(came.load(Ordering::Relaxed), turn * THREADS);
                        barrier.wait();
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_frees_those_who_wait() {
        let barrier = Barrier::new(2);
        let freed = thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let _guard = barrier.break_on_panic();
                barrier.wait();
            });
            let panics = scope.spawn(|| {
                let _guard = barrier.break_on_panic();
                // Not `panic!`: the test's output stays free of a meaningless message.
                std::panic::resume_unwind(Box::new(()));
            });
            panics.join().is_err() && waits.join().is_err()
        });
        assert!(freed);
    }
}

//! A CPU's own words, and the number of the running CPU.

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

/// Returns the number of the running CPU, modulo `cpus`.
pub(super) fn running(cpus: usize) -> usize {
    // SAFETY: sched_getcpu has no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0) % cpus
}

/// A word that one thread writes. It stands for the kernel's changes of a CPU's own word with preemption disabled.
pub(super) trait Own<T> {
    /// Adds, and returns the sum. Not atomic: an addition of another thread may be lost.
    fn own_add(&self, n: T) -> T;
}

macro_rules! own {
    ($atomic:ty, $value:ty) => {
        impl Own<$value> for $atomic {
            #[inline(always)]
            fn own_add(&self, n: $value) -> $value {
                let sum = self.load(Ordering::Relaxed) + n;
                self.store(sum, Ordering::Relaxed);
                sum
            }
        }
    };
}

own!(AtomicI32, i32);
own!(AtomicI64, i64);

//! The structures that a charge is compared with: the same account on shared counters.

use crate::measure::padded::Padded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The levels of both peers, the root included.
const LEVELS: usize = 3;

/// A hierarchical counter that all threads share.
pub(super) trait Peer: Sync + Send {
    /// Adds at every level, or at none if one has too little room.
    fn try_charge(&self, units: u64) -> bool;

    fn uncharge(&self, units: u64);
}

/// A hierarchical counter of atomics: one per level, each alone on its cache lines.
#[derive(Debug)]
pub(super) struct Atomics {
    levels: [(Padded<AtomicU64>, u64); LEVELS],
}

impl Atomics {
    pub(super) fn new(max: u64) -> Atomics {
        Atomics { levels: std::array::from_fn(|_| (Padded::default(), max)) }
    }

    #[cold]
    fn cancel(&self, last: usize, units: u64) {
        for (usage, _) in &self.levels[..=last] {
            usage.fetch_sub(units, Ordering::Relaxed);
        }
    }
}

impl Peer for Atomics {
    /// Adds at every level from the leaf to the root. At the first that is too full, it removes the units added so far.
    #[inline(always)]
    fn try_charge(&self, units: u64) -> bool {
        for (at, (usage, max)) in self.levels.iter().enumerate() {
            // Relaxed: only each level's sum matters, as in the kernel's counter.
            if usage.fetch_add(units, Ordering::Relaxed) + units > *max {
                self.cancel(at, units);
                return false;
            }
        }
        true
    }

    #[inline(always)]
    fn uncharge(&self, units: u64) {
        for (usage, _) in &self.levels {
            usage.fetch_sub(units, Ordering::Relaxed);
        }
    }
}

/// As [`Atomics`], and each level keeps its peak.
#[derive(Debug)]
pub(super) struct AtomicPeaks {
    usage: Atomics,
    peaks: [Padded<AtomicU64>; LEVELS],
}

impl AtomicPeaks {
    pub(super) fn new(max: u64) -> AtomicPeaks {
        AtomicPeaks { usage: Atomics::new(max), peaks: Default::default() }
    }
}

impl Peer for AtomicPeaks {
    #[inline(always)]
    fn try_charge(&self, units: u64) -> bool {
        for (at, ((usage, max), peak)) in self.usage.levels.iter().zip(&self.peaks).enumerate() {
            let sum = usage.fetch_add(units, Ordering::Relaxed) + units;
            if sum > *max {
                self.usage.cancel(at, units);
                return false;
            }
            if sum > peak.load(Ordering::Relaxed) {
                peak.fetch_max(sum, Ordering::Relaxed);
            }
        }
        true
    }

    #[inline(always)]
    fn uncharge(&self, units: u64) {
        self.usage.uncharge(units);
    }
}

/// A hierarchical counter behind one lock.
#[derive(Debug)]
pub(super) struct Locked {
    levels: Padded<Mutex<[u64; LEVELS]>>,
    max: [u64; LEVELS],
}

impl Locked {
    pub(super) fn new(max: u64) -> Locked {
        Locked { levels: Padded::default(), max: [max; LEVELS] }
    }
}

impl Peer for Locked {
    #[inline(always)]
    fn try_charge(&self, units: u64) -> bool {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.iter().zip(&self.max).any(|(usage, max)| usage + units > *max) {
            return false;
        }
        for usage in levels.iter_mut() {
            *usage += units;
        }
        true
    }

    #[inline(always)]
    fn uncharge(&self, units: u64) {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        for usage in levels.iter_mut() {
            *usage -= units;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_refuse_above_the_limit_and_take_back() {
        let peer = Atomics::new(100);
        assert!(peer.try_charge(64));
        assert!(!peer.try_charge(64));
        assert!(peer.try_charge(36));
        peer.uncharge(100);
        assert!(peer.levels.iter().all(|(usage, _)| usage.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn peaks_are_the_highest_sums() {
        let peer = AtomicPeaks::new(100);
        assert!(peer.try_charge(64) && !peer.try_charge(64));
        peer.uncharge(64);
        assert!(peer.try_charge(10));
        assert!(peer.peaks.iter().all(|peak| peak.load(Ordering::Relaxed) == 64));
    }

    #[test]
    fn the_lock_refuses_above_the_limit() {
        let peer = Locked::new(100);
        assert!(peer.try_charge(64));
        assert!(!peer.try_charge(64));
        assert!(peer.try_charge(36));
        peer.uncharge(100);
        assert_eq!(*peer.levels.lock().unwrap(), [0; LEVELS]);
    }
}

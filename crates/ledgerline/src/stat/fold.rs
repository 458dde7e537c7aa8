//! Moves differences to the totals: folds, drains, changes of a threshold.
//!
//! ```text
//! take(places, columns):                     under the table's lock
//!   sections:  each block: limits = CLOSED            updates go to the totals meanwhile
//!              fence                                  no section that saw it open goes on
//!   sequence += 1                                     readers wait
//!   each difference: total += difference; difference = 0
//!   sequence += 1
//!   each block: limits = open(threshold)
//! ```
//!
//! With atomics (fallback, simulated CPUs) nothing is closed. Each difference is swapped for a zero, and an
//! update that finds the limits changed since it began checks its difference again.

use super::counters::{Counters, limits};
use super::items::Item;
use super::layout::View;
use super::places::PlaceId;
use super::width::Width;
use crate::percpu::membarrier;
use crate::sync::{Ordering, fence};
use std::fmt;
use std::ops::Range;
use std::sync::PoisonError;

/// A threshold that a place cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdError {
    /// The threshold is above what the width can hold.
    TooLarge {
        /// The threshold.
        threshold: u32,
        /// The largest possible one; 0 for `i64`, which has none.
        most: u32,
    },
    /// The kernel refused the remote fence, which a sandbox may have forbidden. Nothing was changed.
    Fence,
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThresholdError::TooLarge { threshold, most } => {
                write!(f, "threshold {threshold}: at most {most} with this width")
            }
            ThresholdError::Fence => write!(f, "the kernel refused the remote fence"),
        }
    }
}

impl std::error::Error for ThresholdError {}

impl<I: Item, W: Width> Counters<I, W> {
    /// Moves all differences of all CPUs to the totals. Returns how many there were. Empty blocks are only
    /// read.
    ///
    /// Does nothing for `i64`, whose differences readers add up. If the kernel refuses the remote fence, it
    /// moves nothing; `precise` is still exact. Not async-signal-safe.
    pub fn fold(&self) -> u64 {
        self.take(self.places().subtree(0), 0..self.cpus())
    }

    /// Like [`fold`](Self::fold), but only for the differences of one place, not of those below it.
    pub fn fold_place(&self, place: PlaceId) -> u64 {
        self.take(&[self.check(place) as u32], 0..self.cpus())
    }

    /// Like [`fold`](Self::fold), but only for the differences of one CPU (a column), for instance one that
    /// is idle or offline.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn fold_cpu(&self, cpu: u32) -> u64 {
        assert!(cpu < self.cpus(), "CPU {cpu} of {}", self.cpus());
        self.take(self.places().subtree(0), cpu..cpu + 1)
    }

    /// Empties a place that will no longer be used, and all below it. Their differences go to the totals,
    /// and so does every later update there: the threshold is 0 until
    /// [`set_threshold`](Self::set_threshold). Returns how many differences there were.
    ///
    /// Does nothing for `i64`.
    ///
    /// # Errors
    /// When the kernel refuses the remote fence. Nothing was changed.
    pub fn drain(&self, place: PlaceId) -> Result<u64, ThresholdError> {
        let subtree = self.places().subtree(self.check(place) as u32);
        self.change(subtree, 0).ok_or(ThresholdError::Fence)
    }

    /// Sets the threshold of a place, from 0 (nothing is kept back) to 125 with `i8` or 65533 with `u16`.
    /// Its differences go to the totals. When this returns, no earlier update keeps back more than the new
    /// threshold.
    ///
    /// # Errors
    /// When the width cannot hold it, and when the kernel refuses the remote fence.
    pub fn set_threshold(&self, place: PlaceId, threshold: u32) -> Result<(), ThresholdError> {
        let place = [self.check(place) as u32];
        let most = W::KIND.most();
        if threshold > most {
            return Err(ThresholdError::TooLarge { threshold, most });
        }
        self.change(&place, threshold).map(drop).ok_or(ThresholdError::Fence)
    }

    /// Sets the threshold of some places. Returns how many differences there were, or `None` without a
    /// fence.
    fn change(&self, places: &[u32], threshold: u32) -> Option<u64> {
        if !W::BOUNDED {
            return Some(0);
        }
        let _held = self.lock();
        let old: Vec<u32> = places
            .iter()
            .map(|&place| self.view.place(place as usize).threshold.load(Ordering::Relaxed))
            .collect();
        // A higher bound is set before any difference may grow up to it, a lower one afterwards.
        for (&place, &old) in places.iter().zip(&old) {
            self.set(place, threshold, old.max(threshold), old);
        }
        let taken = self.take_locked(places, 0..self.cpus(), true);
        for (&place, &old) in places.iter().zip(&old) {
            let now = if taken.is_some() { threshold } else { old };
            self.set(place, now, now, old.max(threshold));
        }
        taken
    }

    /// Stores a place's threshold, and adds the change of the bound to all places that it lies in.
    fn set(&self, place: u32, threshold: u32, bound: u32, before: u32) {
        self.view.place(place as usize).threshold.store(threshold, Ordering::Relaxed);
        let change = u64::from(bound).wrapping_sub(u64::from(before));
        for at in self.places().ancestors(place) {
            // The addition wraps: a change may be negative, but a sum never is.
            self.view.place(at as usize).below.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Takes the differences of all blocks that are not empty.
    fn take(&self, places: &[u32], columns: Range<u32>) -> u64 {
        if !W::BOUNDED {
            return 0;
        }
        let _held = self.lock();
        self.take_locked(places, columns, false).unwrap_or(0)
    }

    /// Takes the lock, inside the gate that forks close, so that no child starts with a fold that never
    /// ends.
    fn lock(&self) -> (impl Drop, crate::gate::lock::Inside) {
        let inside = crate::gate::lock::pass();
        // Code under this lock never panics half-way, so a poisoned lock is harmless.
        let held = self.shared.fold.lock().unwrap_or_else(PoisonError::into_inner);
        (held, inside)
    }

    /// Takes the differences of blocks, under the lock: of all blocks if `all` is set, since they get other
    /// limits, otherwise of those that are not empty. Returns how many differences there were, or `None`
    /// without a fence.
    fn take_locked(&self, places: &[u32], columns: Range<u32>, all: bool) -> Option<u64> {
        let blocks: Vec<(u32, u32)> = places
            .iter()
            .flat_map(|&place| columns.clone().map(move |column| (place, column)))
            .filter(|&(place, column)| all || !self.is_empty(place, column))
            .collect();
        if blocks.is_empty() {
            return Some(0);
        }
        let limits_of =
            |&(place, column): &(u32, u32)| limits(self.view.block(column, place as usize));
        let open =
            |place: u32| W::open(self.view.place(place as usize).threshold.load(Ordering::Relaxed));
        if self.is_rseq() {
            let before: Vec<u16> = blocks
                .iter()
                // SeqCst, so that it is ordered before the fence.
                .map(|block| limits_of(block).swap(W::CLOSED, Ordering::SeqCst))
                .collect();
            if !membarrier::fence() {
                for (block, before) in blocks.iter().zip(before) {
                    limits_of(block).store(before, Ordering::Release);
                }
                return None;
            }
        } else {
            // Partner of the limits' load after an update (`counters.rs`): a thread that stores a
            // difference by the old limits either does so before the swap below, or checks the limits
            // again.
            for block in &blocks {
                limits_of(block).store(open(block.0), Ordering::SeqCst);
            }
        }
        let taken = self.move_to_totals(&blocks);
        if self.is_rseq() {
            for block in &blocks {
                // Release, partner of the sections' order of loads: a section that sees it open sees zeros.
                limits_of(block).store(open(block.0), Ordering::Release);
            }
        }
        Some(taken)
    }

    /// Returns whether all differences of a block are zero.
    fn is_empty(&self, place: u32, column: u32) -> bool {
        let block = self.view.block(column, place as usize);
        (0..I::ALL.len()).all(|item| {
            // SAFETY: a live difference (S1).
            unsafe { W::load(block.wrapping_add(View::offset(W::KIND, item))) == 0 }
        })
    }

    /// Moves the differences of blocks to the totals, while no other thread takes from the blocks. Returns
    /// how many were not zero.
    fn move_to_totals(&self, blocks: &[(u32, u32)]) -> u64 {
        let sequence = &self.view.header().sequence;
        sequence.fetch_add(1, Ordering::Relaxed);
        // Partner of the fence in `try_steady` (`read.rs`): a reader that sees any of the following stores
        // sees the number.
        fence(Ordering::Release);
        let mut taken = 0;
        let mut sums = vec![0i64; I::ALL.len()];
        // Blocks of a place come in runs, so all CPUs of a place take one addition per item.
        for run in blocks.chunk_by(|a, b| a.0 == b.0) {
            sums.fill(0);
            for &(place, column) in run {
                let block = self.view.block(column, place as usize);
                for (item, sum) in sums.iter_mut().enumerate() {
                    let at = block.wrapping_add(View::offset(W::KIND, item));
                    // SAFETY: a live difference (S1). With sections, its block is closed and was fenced, so
                    // no section stores to it (P2; guarded by `tests/main/counters.rs`: nothing is lost
                    // while another thread folds).
                    let difference = unsafe { W::take(at) };
                    *sum += difference;
                    taken += u64::from(difference != 0);
                }
            }
            for (item, &sum) in sums.iter().enumerate() {
                self.view.add_to_total(run[0].1, run[0].0 as usize, item, sum);
            }
        }
        // Release, partner of the Acquire in `try_steady`.
        sequence.fetch_add(1, Ordering::Release);
        taken
    }
}

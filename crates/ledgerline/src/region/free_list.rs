//! The free list: a lock-free stack of row numbers, linked through the rows themselves.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Head of the stack: a tag against reuse in the upper half, the first row in the lower. Zero is
/// the empty list: the root is never free.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct FreeList(AtomicU64);

impl FreeList {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        FreeList(AtomicU64::new(0))
    }

    /// Pushes a row; `next` is the row's word for the row behind it.
    pub(crate) fn push(&self, row: u32, next: &AtomicU32) {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            next.store(seen as u32, Ordering::Relaxed);
            // Release, partner of the Acquire in `pop`: the next row is written before.
            match self.0.compare_exchange_weak(
                seen,
                Self::step(seen, row),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Pops a row; `next` finds a row's word, or `None` for a number that is no row (memory that
    /// another process overwrote).
    pub(crate) fn pop<'a>(&self, next: impl Fn(u32) -> Option<&'a AtomicU32>) -> Option<u32> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let row = seen as u32;
            if row == 0 {
                return None;
            }
            // May be stale if another thread takes the row first; then the tag has changed.
            let behind = next(row)?.load(Ordering::Relaxed);
            match self.0.compare_exchange_weak(
                seen,
                Self::step(seen, behind),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(row),
                Err(now) => seen = now,
            }
        }
    }

    const fn step(seen: u64, row: u32) -> u64 {
        (seen >> 32).wrapping_add(1) << 32 | row as u64
    }
}

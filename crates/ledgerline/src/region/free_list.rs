//! The free list: a lock-free stack of row numbers, linked through the rows themselves.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The head of the stack: a tag against reuse in the upper half, the first row in the lower. Zero means an empty list, as
/// the root is never free.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct FreeList(AtomicU64);

impl FreeList {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        FreeList(AtomicU64::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        FreeList(AtomicU64::new(0))
    }

    /// Pushes a row; `next` is the row's link to the row behind it.
    pub(crate) fn push(&self, row: u32, next: &AtomicU32) {
        let put = |seen: u64| {
            next.store(seen as u32, Ordering::Relaxed);
            Some(Self::step(seen, row))
        };
        // Release, partner of the Acquire in `pop`: the link was written before.
        let _always_put = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, put);
    }

    /// Pops a row. `next` returns a row's link, or `None` for a number that is not a row, read from memory that another
    /// process overwrote.
    pub(crate) fn pop<'a>(&self, next: impl Fn(u32) -> Option<&'a AtomicU32>) -> Option<u32> {
        let take = |seen: u64| {
            if seen as u32 == 0 {
                return None;
            }
            // May be stale if another thread takes the row first; then the tag has changed.
            let behind = next(seen as u32)?.load(Ordering::Relaxed);
            Some(Self::step(seen, behind))
        };
        let taken = self.0.fetch_update(Ordering::Acquire, Ordering::Acquire, take);
        taken.ok().map(|seen| seen as u32)
    }

    const fn step(seen: u64, row: u32) -> u64 {
        (seen >> 32).wrapping_add(1) << 32 | row as u64
    }
}

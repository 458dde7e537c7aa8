//! Address space that stays reserved after its region is gone, for the next region of that size.
//!
//! A thread that charges by number (`charge/lease.rs`) may take a page fault at the very moment at which the ledger is
//! taken away. The kernel resolves the fault before it notices that the section has to restart, and a fault at an unmapped
//! address kills the program. So the address of such a region stays mapped: zeros that cost nothing replace its memory in
//! one step, and the next region of that size is placed there.
//!
//! A program that creates and frees ledgers of one shape uses one address again and again. If all places below are taken,
//! the address space is given up, but not its memory.

use super::Place;
use crate::os::{Backing, memory};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many ranges are remembered.
const PLACES: usize = 64;

/// A range that no region has now: its size, and its address. Address 0 means that there is none; 1, that it is being
/// written.
struct Range {
    size: AtomicUsize,
    base: AtomicUsize,
}

static RANGES: [Range; PLACES] =
    [const { Range { size: AtomicUsize::new(0), base: AtomicUsize::new(0) } }; PLACES];

/// Replaces the mapped memory by zeros, and keeps the address for another region.
///
/// # Safety
/// The range is a mapping of the caller's. Only sections that will restart still use it.
pub(super) unsafe fn retire(base: *mut u8, size: usize) {
    // SAFETY: over a mapping of the caller's, as required. A thread that faults there meanwhile finds the old mapping or
    // this one, since the kernel replaces it under its lock. On machines without sections, no thread is there.
    if unsafe { memory::map(base, size, Backing::Zeros) }.is_ok() {
        put(base.expose_provenance(), size);
    }
}

fn put(base: usize, size: usize) {
    let free = |range: &&Range| {
        // Acquire, partner of the Release in `take`.
        range.base.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    if let Some(range) = RANGES.iter().find(free) {
        range.size.store(size, Ordering::Relaxed);
        // Release, partner of the Acquire in `take`: a thread that sees the address sees the size.
        range.base.store(base, Ordering::Release);
    }
}

/// Takes a range of that size whose address satisfies the region's constraint.
pub(super) fn take(size: usize, place: Place) -> Option<*mut u8> {
    RANGES.iter().find_map(|range| {
        let base = range.base.load(Ordering::Acquire);
        // By the time of the exchange, the size may belong to another range. That range's address either differs, or is the
        // same range's.
        let fits = base > 1
            && range.size.load(Ordering::Relaxed) == size
            && (base + place.offset).is_multiple_of(place.alignment);
        let taken =
            || range.base.compare_exchange(base, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !fits || !taken() {
            return None;
        }
        let same = range.size.load(Ordering::Relaxed) == size;
        // Release, partner of the Acquire in `put`.
        range.base.store(if same { 0 } else { base }, Ordering::Release);
        same.then(|| std::ptr::with_exposed_provenance_mut(base))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Region;
    use super::*;

    #[test]
    fn an_address_that_is_kept_stays_mapped_and_is_the_next_regions_with_zeros_in_it() {
        // No other test uses regions of this size.
        const SIZE: usize = 37 << 16;
        let place = Place { offset: 3 << 16, alignment: 1 << 24 };
        let region = Region::anonymous_at(SIZE, place).unwrap();
        let word = region.at::<u64>(5 << 16).cast_mut();
        // SAFETY: inside the region.
        unsafe { word.write(7) };
        region.keep_address();
        drop(region);
        // SAFETY: the address stays mapped, as this test checks.
        assert_eq!(unsafe { word.read_volatile() }, 0);
        let other = Region::anonymous_at(SIZE + (1 << 16), place).unwrap();
        assert_ne!(other.at::<u64>(5 << 16), word, "its size differs");
        let next = Region::anonymous_at(SIZE, place).unwrap();
        assert_eq!(next.at::<u64>(5 << 16), word);
        // SAFETY: inside the region.
        unsafe {
            assert_eq!(word.read(), 0);
            word.write(8);
        }
        drop(next);
        assert_eq!(take(SIZE, place), None, "it was not asked to be kept again");
    }
}

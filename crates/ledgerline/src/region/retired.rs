//! Address space that stays reserved when its region is gone, for the next region of that size.
//!
//! A thread that charges by number (`charge/lease.rs`) may take a page fault at the very moment at which the ledger
//! is taken away. The kernel resolves the fault before it notices that the section has to start anew, and a
//! fault where nothing is mapped kills the program. So such a region's address stays mapped: its memory is
//! replaced by zeros that cost nothing, in one step, and the next region of that size lies there.
//!
//! A program that makes and frees ledgers of one shape uses one address again and again. Where all places
//! below are taken, the address space is given up (and its memory is not).

use super::Place;
use crate::os::{Backing, memory};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many ranges are remembered.
const PLACES: usize = 64;

/// A range that no region has now: its size, and its address (0: there is none; 1: it is being written).
struct Range {
    size: AtomicUsize,
    base: AtomicUsize,
}

static RANGES: [Range; PLACES] =
    [const { Range { size: AtomicUsize::new(0), base: AtomicUsize::new(0) } }; PLACES];

/// Replaces what is mapped there by zeros, and keeps the address for another region.
///
/// # Safety
/// The range is a mapping of the caller's, which nobody uses but sections that will start anew.
pub(super) unsafe fn retire(base: *mut u8, size: usize) {
    // SAFETY: over a mapping of the caller's, as it says. A thread that faults there meanwhile finds the old
    // mapping or this one: the kernel replaces one by the other under its lock. (Where there are no sections, no thread
    // is there.)
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
        // Release, partner of the Acquire in `take`: who sees the address sees the size.
        range.base.store(base, Ordering::Release);
    }
}

/// Takes a range of that size, in which the region would lie as it has to.
pub(super) fn take(size: usize, place: Place) -> Option<*mut u8> {
    RANGES.iter().find_map(|range| {
        let base = range.base.load(Ordering::Acquire);
        // (The size may be another range's by the time of the exchange, whose address then differs, or is
        // the same range's.)
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
        // No other test has regions of this size.
        const SIZE: usize = 37 << 16;
        let place = Place { offset: 3 << 16, alignment: 1 << 24 };
        let region = Region::anonymous_at(SIZE, place).unwrap();
        let word = region.at::<u64>(5 << 16).cast_mut();
        // SAFETY: inside the region.
        unsafe { word.write(7) };
        region.keep_address();
        drop(region);
        // SAFETY: the address stays mapped, which this test is about.
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

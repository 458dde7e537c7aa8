//! The sizes of blocks for small requests, from an allocator that can predict them: jemalloc's `nallocx`, which
//! tcmalloc has too, and mimalloc's `mi_good_size`.
//!
//! The prediction is asked once for every eight sizes, and compared with the block that came. From then on a new
//! block's size is known without a call. The expected size is passed along with the block in a register: passing it
//! through the thread's words took two nanoseconds more.

use crate::objects;
use crate::sizes;
use ledgerline_interpose::find;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Smallest distance between the starts of two blocks: glibc's smallest chunk. Other allocators are
/// asked for no less.
pub(crate) const WINDOW: usize = ledgerline::shadow::WINDOW;

/// Larger requests have no known size.
const SMALL: usize = 1024;
/// The step of requests: all requests within one have the same size.
const GRAIN: usize = 8;
/// The allocator does not predict the size, or the size does not fit a note.
const UNKNOWN: usize = 1 << 8;
/// The lowest bit of the place.
const PLACE: u32 = 16;

/// The sizes of blocks per eight requests, as [`Expected`] encodes them; the last place is for all larger requests.
static GIVEN: [AtomicU32; SMALL / GRAIN + 2] = {
    let mut given = [const { AtomicU32::new(0) }; SMALL / GRAIN + 2];
    let mut at = 0;
    while at < given.len() - 1 {
        given[at] = AtomicU32::new(((at + 1) << PLACE) as u32);
        at += 1;
    }
    given
};

/// The expected size of a request's block. From bit 16 on: the request's place in [`GIVEN`], plus one. Lowest byte: the
/// size as a note has it (`sizes.rs`), zero before the allocator was asked and if [`UNKNOWN`] is set. The whole word is
/// zero if nothing is known of the request, as for a large one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Expected(usize);

impl Expected {
    /// Nothing is known of the request.
    pub(crate) const NOTHING: Expected = Expected(0);

    /// Returns the expectation for a request that is about to be made.
    #[inline(always)]
    pub(crate) fn of(request: usize) -> Expected {
        // Without a branch: all larger requests have the last place.
        let place = request.min(SMALL + 1).div_ceil(GRAIN);
        Expected(GIVEN[place].load(Ordering::Relaxed) as usize)
    }

    /// Returns the size as a note has it; zero if it is not known.
    #[inline(always)]
    pub(crate) fn steps(self) -> u8 {
        self.0 as u8
    }

    /// Learns the size of a new block.
    #[inline(always)]
    pub(crate) fn learn(self, size: usize) {
        if self.0 != 0 && self.0.is_multiple_of(1 << PLACE) {
            learn((self.0 >> PLACE) - 1, size);
        }
    }
}

/// Notes the size for some eight requests, if the allocator predicts that size for each of them.
#[cold]
#[inline(never)]
fn learn(at: usize, size: usize) {
    // Smaller requests are never made.
    let requests = [at.saturating_sub(1) * GRAIN + 1, at * GRAIN].map(|bytes| bytes.max(WINDOW));
    let steps = sizes::steps(size);
    let given = if steps != 0 && requests.iter().all(|&bytes| given_for(bytes) == Some(size)) {
        usize::from(steps)
    } else {
        UNKNOWN
    };
    if let Some(place) = GIVEN.get(at) {
        place.store(((at + 1) << PLACE | given) as u32, Ordering::Relaxed);
    }
}

/// The allocator's functions for predictions: `nallocx` and `mi_good_size`. Zero before [`resolve`], and if there is
/// none.
static SAYS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Looks for the functions beside `malloc`.
pub(crate) fn resolve(malloc: usize) {
    for (place, name) in SAYS.iter().zip([c"nallocx", c"mi_good_size"]) {
        let function = find(name);
        if function != 0 && objects::are_of_one(malloc, function) {
            place.store(function, Ordering::Relaxed);
        }
    }
}

fn given_for(request: usize) -> Option<usize> {
    let [of_jemalloc, of_mimalloc] = SAYS.each_ref().map(|place| place.load(Ordering::Relaxed));
    // SAFETY: dlsym found them under the names of C functions of these types, in malloc's library. They only compute,
    // and take any size that is not zero.
    unsafe {
        if of_jemalloc != 0 {
            let says: unsafe extern "C" fn(usize, c_int) -> usize =
                std::mem::transmute(of_jemalloc);
            return Some(says(request, 0));
        }
        if of_mimalloc != 0 {
            let says: unsafe extern "C" fn(usize) -> usize = std::mem::transmute(of_mimalloc);
            return Some(says(request));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_allocator_that_says_nothing_beforehand_each_size_is_asked_for() {
        let expected = Expected::of(999);
        assert_eq!((expected.0 >> PLACE, expected.steps()), (999 / GRAIN + 2, 0));
        expected.learn(1008);
        assert_eq!(Expected::of(999).0 % (1 << PLACE), UNKNOWN);
        assert_eq!(Expected::of(999).steps(), 0);
        // An unknown size is not learned again.
        Expected::of(999).learn(1008);
        assert_eq!(Expected::of(999).0 % (1 << PLACE), UNKNOWN);
    }

    #[test]
    fn of_large_requests_nothing_is_expected_and_nothing_learnt() {
        assert_eq!(Expected::of(SMALL).0 >> PLACE, SMALL / GRAIN + 1);
        for request in [SMALL + 1, usize::MAX] {
            assert_eq!(Expected::of(request).0, 0);
            Expected::of(request).learn(request);
        }
    }
}

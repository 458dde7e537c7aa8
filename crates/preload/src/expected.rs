//! What an allocator gives for small requests, where it says so beforehand: jemalloc's `nallocx`, which tcmalloc has too,
//! and mimalloc's `mi_good_size`.
//!
//! It is asked once for every eight sizes, and compared with what it gave. From then on a new block's size is known
//! without a call. What is expected goes with the block from one function to the next, in a register: through the
//! thread's words it took two nanoseconds more.

use crate::objects;
use crate::sizes;
use ledgerline_interpose::find;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Smallest distance between the starts of two blocks: glibc's smallest chunk. Other allocators are
/// asked for no less.
pub(crate) const WINDOW: usize = ledgerline::shadow::WINDOW;

/// Requests of up to so many bytes have a known size each.
const SMALL: usize = 1024;
/// Requests that differ by less than this have one size.
const GRAIN: usize = 8;
/// The allocator does not say beforehand, or gives what no note can say.
const UNKNOWN: usize = 1 << 8;
/// From this bit on stands the place.
const PLACE: u32 = 16;

/// What the allocator gives for requests, by eights, as [`Expected`] has it; the last place is for all larger ones.
static GIVEN: [AtomicU32; SMALL / GRAIN + 2] = {
    let mut given = [const { AtomicU32::new(0) }; SMALL / GRAIN + 2];
    let mut at = 0;
    while at < given.len() - 1 {
        given[at] = AtomicU32::new(((at + 1) << PLACE) as u32);
        at += 1;
    }
    given
};

/// What is expected of a request: from bit 16 its place in [`GIVEN`], plus one; the lowest byte is the size as a note
/// has it (`sizes.rs`), zero before the allocator was asked and where [`UNKNOWN`] is set. All of it is zero where nothing
/// is known of the request, as of a large one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Expected(usize);

impl Expected {
    /// Nothing is known of the request.
    pub(crate) const NOTHING: Expected = Expected(0);

    /// What is expected of a request that is about to be made.
    #[inline(always)]
    pub(crate) fn of(request: usize) -> Expected {
        // (No branch: all larger ones have the last place.)
        let place = request.min(SMALL + 1).div_ceil(GRAIN);
        Expected(GIVEN[place].load(Ordering::Relaxed) as usize)
    }

    /// The size as a note has it; zero where it is not known.
    #[inline(always)]
    pub(crate) fn steps(self) -> u8 {
        self.0 as u8
    }

    /// Learns what was given.
    #[inline(always)]
    pub(crate) fn learn(self, size: usize) {
        if self.0 != 0 && self.0.is_multiple_of(1 << PLACE) {
            learn((self.0 >> PLACE) - 1, size);
        }
    }
}

/// Notes what requests of some eight sizes are given, if the allocator says that each of them is.
#[cold]
#[inline(never)]
fn learn(at: usize, size: usize) {
    // (Less is never asked for.)
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

/// The function by which the allocator says what it would give for a request: `nallocx` or `mi_good_size`. Zero before
/// [`resolve`], and where there is none.
static SAYS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Looks for the function beside `malloc`.
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
    // SAFETY: dlsym found them under the names of C functions of these types, in the library that malloc is in; they
    // compute, and take any size that is not zero.
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
        // What is unknown is not learnt again.
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

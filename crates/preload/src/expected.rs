//! What an allocator gives for small requests, where it says so beforehand: jemalloc's `nallocx`, which tcmalloc has too,
//! and mimalloc's `mi_good_size`.
//!
//! It is asked once for every eight sizes, and compared with what it gave. From then on a new block's size is known
//! without a call. The request leaves word for that in the thread, since malloc has but the block when it returns.

use crate::objects;
use crate::thread::{self, Word};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Smallest distance between the starts of two blocks: glibc's smallest chunk. Other allocators are
/// asked for no less.
pub(crate) const WINDOW: usize = ledgerline::shadow::WINDOW;

/// Requests of up to so many bytes have a known size each.
const SMALL: usize = 1024;
/// Requests that differ by less than this have one size.
const GRAIN: usize = 8;
/// The allocator does not say beforehand.
const UNKNOWN: u16 = u16::MAX;

/// What the allocator gives for requests, by eights, as [`Expected`] has it.
static GIVEN: [AtomicU32; SMALL / GRAIN + 1] = {
    let mut given = [const { AtomicU32::new(0) }; SMALL / GRAIN + 1];
    let mut at = 0;
    while at < given.len() {
        given[at] = AtomicU32::new(((at + 1) << 16) as u32);
        at += 1;
    }
    given
};

/// Leaves word of a request that is about to be made.
#[inline(always)]
pub(crate) fn expect(request: usize) {
    let given = GIVEN.get(request.div_ceil(GRAIN));
    let word = given.map_or(0, |given| given.load(Ordering::Relaxed) as usize);
    thread::set(Word::Expected, word);
}

/// The word that was left, of which nothing is left then. (A request within another takes the other's with it.)
#[inline(always)]
pub(crate) fn take() -> Expected {
    let expected = peek();
    forget();
    expected
}

/// The word that was left, which stays.
#[inline(always)]
pub(crate) fn peek() -> Expected {
    Expected(thread::get(Word::Expected))
}

/// Leaves nothing of the word.
#[inline(always)]
pub(crate) fn forget() {
    thread::set(Word::Expected, 0);
}

/// What is expected of a request: from bit 16 its place in [`GIVEN`], plus one; below that the size, zero before the
/// allocator was asked. All of it is zero for a large request.
#[derive(Clone, Copy)]
pub(crate) struct Expected(usize);

impl Expected {
    #[inline(always)]
    pub(crate) fn size(self) -> Option<usize> {
        let given = self.0 as u16;
        (given != 0 && given != UNKNOWN).then_some(usize::from(given))
    }

    /// Learns what was given.
    #[inline(always)]
    pub(crate) fn learn(self, size: usize) {
        if self.0 != 0 && self.0 as u16 == 0 {
            learn((self.0 >> 16) - 1, size);
        }
    }
}

/// Notes what requests of some eight sizes are given, if the allocator says that each of them is.
#[cold]
#[inline(never)]
fn learn(at: usize, size: usize) {
    // (Less is never asked for.)
    let requests = [at.saturating_sub(1) * GRAIN + 1, at * GRAIN].map(|bytes| bytes.max(WINDOW));
    let given = if requests.iter().all(|&bytes| given_for(bytes) == Some(size)) {
        u16::try_from(size).unwrap_or(UNKNOWN)
    } else {
        UNKNOWN
    };
    if let Some(place) = GIVEN.get(at) {
        place.store(((at + 1) << 16) as u32 | u32::from(given), Ordering::Relaxed);
    }
}

/// The function by which the allocator says what it would give for a request: `nallocx` or `mi_good_size`. Zero before
/// [`resolve`], and where there is none.
static SAYS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Looks for the function beside `malloc`.
pub(crate) fn resolve(malloc: usize) {
    for (place, name) in SAYS.iter().zip([c"nallocx", c"mi_good_size"]) {
        let function = objects::find(name);
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
    fn what_is_expected_is_taken_once_and_large_requests_leave_no_word() {
        expect(64);
        assert_eq!(take().0 >> 16, 64 / GRAIN + 1);
        assert_eq!(take().0, 0);
        expect(64);
        expect(SMALL + 1);
        assert_eq!(take().0, 0);
    }

    #[test]
    fn of_an_allocator_that_says_nothing_beforehand_each_size_is_asked_for() {
        expect(999);
        let expected = take();
        assert_eq!(expected.size(), None);
        expected.learn(1008);
        expect(999);
        assert_eq!(take().size(), None);
    }
}

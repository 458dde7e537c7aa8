//! Labels: the owner's number and the size of each block, beside the heap.
//!
//! ```text
//! window of 16 bytes:   the block's first             the second        the third
//! entry:                | size | owner's number |     | size, low |     | size, high |
//!                         16     16                     32                32
//! ```
//!
//! A size of 65 535 or more stands in the two windows after the first, which the block has all to itself; the first says so. All
//! three are zero again when the label is taken, since other blocks may start there next.

use crate::region::shadow::Shadow;
use crate::sync::are_calls_forbidden;
use std::sync::atomic::{AtomicU32, Ordering};

const WINDOW_BITS: u32 = 4;
const WINDOW: usize = 1 << WINDOW_BITS;
/// In the place of a size: it stands in the next windows.
const LARGE: u32 = 0xffff;

static LABELS: Shadow<AtomicU32, WINDOW_BITS> = Shadow::new();

#[cold]
#[inline(never)]
fn make(address: usize) -> Option<&'static AtomicU32> {
    if are_calls_forbidden() { LABELS.entry(address) } else { LABELS.make(address) }
}

#[inline(always)]
fn entry_or_make(address: usize) -> Option<&'static AtomicU32> {
    LABELS.entry(address).or_else(|| make(address))
}

/// Labels a block; `false` where there is no memory for that. All is Relaxed here: a thread that has a block got it from the
/// thread that labelled it.
#[inline(always)]
pub(super) fn set(address: usize, number: u16, size: u64) -> bool {
    debug_assert!(address.is_multiple_of(WINDOW) && number != 0);
    let Some(entry) = entry_or_make(address) else { return false };
    let short = if size < u64::from(LARGE) { size as u32 } else { LARGE };
    if short == LARGE && !set_size(address, size) {
        return false;
    }
    entry.store(short << 16 | u32::from(number), Ordering::Relaxed);
    true
}

#[cold]
#[inline(never)]
fn set_size(address: usize, size: u64) -> bool {
    let next = [1, 2].map(|window| entry_or_make(address + window * WINDOW));
    let [Some(low), Some(high)] = next else { return false };
    low.store(size as u32, Ordering::Relaxed);
    high.store((size >> 32) as u32, Ordering::Relaxed);
    true
}

/// The number and the size of a block.
#[inline(always)]
pub(super) fn get(address: usize) -> Option<(u16, u64)> {
    parts(address, LABELS.entry(address)?.load(Ordering::Relaxed), false)
}

/// Takes a block's label.
#[inline(always)]
pub(super) fn take(address: usize) -> Option<(u16, u64)> {
    let entry = LABELS.entry(address)?;
    let word = entry.load(Ordering::Relaxed);
    if word == 0 {
        return None;
    }
    entry.store(0, Ordering::Relaxed);
    parts(address, word, true)
}

/// Removes the label of a block that belongs to no group.
#[inline(always)]
pub(super) fn clear(address: usize) {
    take(address);
}

#[inline(always)]
fn parts(address: usize, word: u32, takes: bool) -> Option<(u16, u64)> {
    let (number, short) = (word as u16, word >> 16);
    if word == 0 {
        return None;
    }
    let size = if short < LARGE { u64::from(short) } else { size(address, takes) };
    Some((number, size))
}

#[cold]
#[inline(never)]
fn size(address: usize, takes: bool) -> u64 {
    let next = [2, 1].map(|window| LABELS.entry(address + window * WINDOW));
    let mut size = 0;
    for entry in next.into_iter().flatten() {
        size = size << 32 | u64::from(entry.load(Ordering::Relaxed));
        if takes {
            entry.store(0, Ordering::Relaxed);
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_of_any_size_is_read_as_it_was_written_and_leaves_nothing_where_it_was_taken() {
        // (Nothing lies at these addresses. They end at a map's end.)
        let sizes = [1, 15, 16, 512, 0xfffe, 0xffff, 0x1_0000, 1 << 20, (1 << 32) - 1, 1 << 40];
        for (turn, &size) in sizes.iter().enumerate() {
            for address in [0x3333_0000_0000, 0x3333_4000_0000 - WINDOW] {
                let number = 1 + turn as u16 * 7000;
                assert!(set(address, number, size));
                assert_eq!(get(address), Some((number, size)));
                assert_eq!(take(address), Some((number, size)));
                let windows = [0, 1, 2].map(|window| get(address + window * WINDOW));
                assert_eq!(windows, [None; 3], "{size}");
                assert_eq!(take(address), None);
            }
        }
    }

    #[test]
    fn neighbours_have_labels_of_their_own() {
        let at = |place: usize| 0x3334_0000_0000 + place * WINDOW;
        for place in 0..100 {
            assert!(set(at(place), 1 + place as u16, 16));
        }
        for place in (0..100).step_by(2) {
            assert_eq!(take(at(place)), Some((1 + place as u16, 16)));
        }
        for place in 0..100 {
            let expected = (place % 2 == 1).then_some((1 + place as u16, 16));
            assert_eq!(get(at(place)), expected);
        }
    }

    #[test]
    fn an_address_of_no_process_gets_no_label() {
        #[cfg(target_pointer_width = "64")]
        assert!(!set(1 << 60, 1, 1) && get(1 << 60).is_none());
    }
}

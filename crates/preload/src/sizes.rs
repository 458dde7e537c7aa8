//! How large blocks are whose allocator puts no header before them that tells.
//!
//! The allocator knows (`malloc_usable_size`), and takes two to five nanoseconds to say so, more than a charge takes. It
//! would be asked when a block comes and when it goes.
//!
//! * **A new block** has the size that was expected (`expected.rs`), if the allocator says that beforehand.
//! * **A block that goes**: a byte for each 32 bytes of heap has the size that was charged for the block that starts
//!   there, in steps of 16. Zero, which is what unwritten bytes read as, means: ask. A byte lies where its block lies, so
//!   threads meet at one as little as they do at blocks; it is written only if it changes.
//!
//! Whoever charges a block notes its size. So a byte that is not zero is that of the block that is there.

use crate::filter;
use ledgerline::shadow::{Shadow, WINDOW_BITS};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

/// A byte counts these.
const STEP: usize = 16;

/// The bytes.
#[unsafe(link_section = ".bss.ledgerline_tables")]
static BYTES: Shadow<AtomicU8, WINDOW_BITS, true> = Shadow::new();

#[inline(always)]
fn byte(block: *const c_void) -> Option<&'static AtomicU8> {
    BYTES.entry(block as usize)
}

/// A size as a note has it; zero for one that no note can say.
#[inline(always)]
pub(crate) fn steps(units: usize) -> u8 {
    if units.is_multiple_of(STEP) { u8::try_from(units / STEP).unwrap_or(0) } else { 0 }
}

/// The size that a note says.
#[inline(always)]
pub(crate) fn units(steps: u8) -> usize {
    usize::from(steps) * STEP
}

/// What was charged for a block, if that is noted.
#[inline(always)]
pub(crate) fn noted(block: *const c_void) -> Option<usize> {
    // Relaxed: whoever frees a block has it from whoever got it, and the byte's value with it.
    let steps = byte(block)?.load(Ordering::Relaxed);
    (steps != 0).then(|| units(steps))
}

/// Notes what is charged for a block.
#[inline(always)]
pub(crate) fn note(block: *const c_void, units: usize) {
    let steps = steps(units);
    if !note_where_noted(block, steps)
        && steps != 0
        && let Some(byte) = make(block)
    {
        byte.store(steps, Ordering::Relaxed);
    }
}

/// [`note`] of a size that a note can say, where a map is; `false` is: nothing was noted.
#[inline(always)]
pub(crate) fn note_where_noted(block: *const c_void, steps: u8) -> bool {
    let Some(byte) = byte(block) else { return false };
    if byte.load(Ordering::Relaxed) != steps {
        byte.store(steps, Ordering::Relaxed);
    }
    true
}

/// As [`byte`], making the map if need be; `None` where there is no memory for it.
#[cold]
#[inline(never)]
fn make(block: *const c_void) -> Option<&'static AtomicU8> {
    if filter::is_on() { None } else { BYTES.make(block as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: usize) -> *const c_void {
        address as *const c_void
    }

    #[test]
    fn a_size_is_what_was_noted_last_or_must_be_asked_for() {
        let heap = 0x1357_0000_0000;
        assert_eq!(noted(block(heap)), None);
        for (units, told) in [
            (32, Some(32)),
            (4080, Some(4080)),
            (4096, None),
            (48, Some(48)),
            (56, None),
            (64, Some(64)),
            (1 << 30, None),
        ] {
            note(block(heap), units);
            assert_eq!(noted(block(heap)), told);
        }
        note(block(heap + 32), 32);
        assert_eq!([noted(block(heap)), noted(block(heap + 32))], [None, Some(32)]);
        // Where the first block has no size that could be noted, no map is made for it.
        note(block(0x2468_0000_0000), 4096);
        assert!(byte(block(0x2468_0000_0000)).is_none());
        assert_eq!(noted(block(usize::MAX)), None);
    }
}

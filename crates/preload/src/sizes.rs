//! The sizes of blocks whose allocator puts no header with the size before them.
//!
//! The allocator knows the size (`malloc_usable_size`), but the call takes two to five nanoseconds, more than a charge.
//! It would be made twice per block, at malloc and at free.
//!
//! * **malloc**: a new block has the expected size (`expected.rs`), if the allocator predicts it.
//! * **free**: a byte for each 32 bytes of heap holds the charged size of the block that starts there, in steps of 16.
//!   Zero, the value of unwritten bytes, means: ask. A byte belongs to its block, so threads contend for it as little
//!   as for blocks; it is written only if it changes.
//!
//! Each charge of a block notes its size. So a byte that is not zero is that of the present block.

use crate::filter;
use ledgerline::shadow::{Shadow, WINDOW_BITS};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

/// The unit of a byte.
const STEP: usize = 16;

/// The bytes.
#[unsafe(link_section = ".bss.ledgerline_tables")]
static BYTES: Shadow<AtomicU8, WINDOW_BITS, true> = Shadow::new();

#[inline(always)]
fn byte(block: *const c_void) -> Option<&'static AtomicU8> {
    BYTES.entry(block as usize)
}

/// Returns a size as a note has it; zero for a size that does not fit a note.
#[inline(always)]
pub(crate) fn steps(units: usize) -> u8 {
    if units.is_multiple_of(STEP) { u8::try_from(units / STEP).unwrap_or(0) } else { 0 }
}

/// Returns the size of a note.
#[inline(always)]
pub(crate) fn units(steps: u8) -> usize {
    usize::from(steps) * STEP
}

/// Returns a block's charge, if it is noted.
#[inline(always)]
pub(crate) fn noted(block: *const c_void) -> Option<usize> {
    // Relaxed: the freeing thread got the block from the allocating one, and the byte's value with it.
    let steps = byte(block)?.load(Ordering::Relaxed);
    (steps != 0).then(|| units(steps))
}

/// Notes the charge of a block.
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

/// Like [`note`], but only for a size that fits a note, and with an existing map. Returns `false` if nothing was noted.
#[inline(always)]
pub(crate) fn note_where_noted(block: *const c_void, steps: u8) -> bool {
    let Some(byte) = byte(block) else { return false };
    if byte.load(Ordering::Relaxed) != steps {
        byte.store(steps, Ordering::Relaxed);
    }
    true
}

/// Like [`byte`], but makes the map if necessary; `None` without memory for it.
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
        // If the size of the first block does not fit a note, no map is made for it.
        note(block(0x2468_0000_0000), 4096);
        assert!(byte(block(0x2468_0000_0000)).is_none());
        assert_eq!(noted(block(usize::MAX)), None);
    }
}

//! malloc and free for allocators without headers before their blocks. The size comes from the allocator or from a note
//! (`sizes.rs`).
//!
//! The paths mirror those of `alloc.rs`. The entry of a span with one owner is that owner's cell, marked as one for
//! which no header may be read ([`shadow::asked`]); in other spans a byte of shadow names the owner.

use crate::charges;
use crate::expected::Expected;
use crate::next::NEXT;
use crate::process;
use crate::shadow;
use crate::sizes;
use crate::thread::{self, Busy, Word};
use std::ffi::c_void;

/// Charges a new block to the cell of its span if everything needed is known already. `cell` is the span's entry.
/// Returns `false` if nothing was charged. Calls nothing.
///
/// # Safety
/// `block` is not null, and fresh from the next allocator.
#[inline(always)]
pub(crate) unsafe fn adopt(block: *mut c_void, cell: usize, expected: Expected) -> bool {
    let steps = expected.steps();
    // SAFETY: the entry of a span is the thread's cell only if it is one, of the ledger that is open for good.
    steps != 0
        && cell == thread::get(Word::AskedCell)
        && !Busy::is_entered()
        && sizes::note_where_noted(block, steps)
        && unsafe { shadow::prepaid(shadow::asked(cell)).take(sizes::units(steps) as u64) }
}

/// Does [`adopt`]'s work for any block: its span may have several owners, or its size is not known yet.
///
/// # Safety
/// As for [`adopt`].
pub(crate) unsafe fn adopt_anywhere(block: *mut c_void, cell: usize, expected: Expected) -> bool {
    let slot = thread::get(Word::AskedSlot) as u32;
    if slot == 0 || Busy::is_entered() {
        return false;
    }
    // SAFETY: a thread with a slot has its blocks from the next allocator, which is ready; the rest is as in `adopt`.
    unsafe {
        let units = size_of_new(block, expected);
        if cell == thread::get(Word::AskedCell) {
            sizes::note(block, units);
            return shadow::prepaid(shadow::asked(cell)).take(units as u64);
        }
        let Some(group) = process::group(slot) else { return false };
        sizes::note(block, units);
        shadow::assign(block, slot) == slot && charges::take_block(group, units)
    }
}

/// Returns the size of a new block: the expected one, or the allocator's answer.
///
/// # Safety
/// The block is the next allocator's, which is ready; the thread is not busy.
#[inline(always)]
unsafe fn size_of_new(block: *mut c_void, expected: Expected) -> usize {
    if expected.steps() != 0 {
        return sizes::units(expected.steps());
    }
    // SAFETY: the caller's contract, passed on.
    let size = unsafe { NEXT.asked_size(block) };
    expected.learn(size);
    size
}

/// Returns the units of a block that is about to be freed to the cell of its span, if its size is noted. Returns
/// `false` if nothing was returned. Calls nothing.
///
/// # Safety
/// `block` is not null, and `cell` its span's entry.
#[inline(always)]
pub(crate) unsafe fn forget(block: *mut c_void, cell: usize) -> bool {
    // SAFETY: an entry below zero is a cell, of the ledger that is open for good.
    (cell as isize) < 0
        && !Busy::is_entered()
        && sizes::noted(block)
            .is_some_and(|size| unsafe { shadow::prepaid(shadow::asked(cell)).put(size as u64) })
}

/// Does [`forget`]'s work for a block in a span of several owners, or without a noted size.
///
/// # Safety
/// As for [`forget`].
pub(crate) unsafe fn forget_anywhere(block: *mut c_void, cell: usize) -> bool {
    if Busy::is_entered() {
        return false;
    }
    // SAFETY: a block with an owner is the next allocator's; the rest is as in `forget`.
    unsafe {
        let size = || sizes::noted(block).unwrap_or_else(|| NEXT.asked_size(block));
        if (cell as isize) < 0 {
            return shadow::prepaid(shadow::asked(cell)).put(size() as u64);
        }
        let Some(group) = process::group(shadow::owner(block)) else { return false };
        let put = charges::put_block(group, size());
        if put {
            shadow::clear(block);
        }
        put
    }
}

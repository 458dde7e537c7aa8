//! The body of realloc. `caller` is its return address.

use crate::alloc::{fail, forget, free, malloc, note_size, owner, spaced};
use crate::charges;
use crate::next::{self, NEXT, WINDOW, early};
use crate::process;
use crate::shadow;
use crate::thread::{self, Word};
use ledgerline_interpose::{errno, set_errno};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// # Safety
/// As for C's `realloc`.
pub(crate) unsafe extern "C" fn realloc(
    block: *mut c_void,
    size: usize,
    caller: usize,
) -> *mut c_void {
    // SAFETY: `block` is valid by the caller's contract.
    unsafe {
        if block.is_null() {
            return malloc(size, caller);
        }
        if early::owns(block) {
            let moved = malloc(size, caller);
            if !moved.is_null() {
                let held = early::size(block).min(size);
                std::ptr::copy_nonoverlapping(block.cast::<u8>(), moved.cast(), held);
            }
            return moved;
        }
        if size == 0 {
            return realloc_to_nothing(block, caller);
        }
        // No allocator has that much. This is not a matter of limits, and no reason to kill.
        if size > isize::MAX as usize {
            return fail();
        }
        let cell = shadow::sole(block);
        if cell == thread::cell(NEXT.words.load(Ordering::Relaxed))
            && let Some(moved) = realloc_own(block, size, cell)
        {
            return moved;
        }
        let held = NEXT.size(block);
        // As in `alloc::adopt_otherwise`.
        let before = errno();
        let new = owner(caller);
        let old = shadow::owner(block);
        shadow::clear(block);
        // The charge comes first: a block that has moved cannot be moved back. Its size is known only afterwards, so
        // the charge is glibc's rounded size and is corrected then.
        let guess = rounded(size);
        let charge = plan(old, new, held, guess);
        // Called here and no deeper: stacks may be small, and this is the longest path.
        if !charge.is_done && !charges::block(charge.slot, charge.more) {
            note_owner(block, give_back(old, charge.holder, held), held);
            return fail();
        }
        set_errno(before);
        let moved = NEXT.alone(|next| next.realloc(block, spaced(size)));
        let after = errno();
        if moved.is_null() {
            charges::return_block(charge.slot, charge.more);
            note_owner(block, give_back(old, charge.holder, held), held);
            set_errno(after);
            return moved;
        }
        // A realloc counts as a charge and an uncharge, whatever the difference was.
        let stays = charge.holder == charge.slot;
        charges::return_block(charge.holder, if stays { 0 } else { held });
        settle_moved(moved, charge.slot, charge.more + if stays { held } else { 0 });
        set_errno(after);
        moved
    }
}

/// The charge of a block while it moves.
struct Charge {
    /// The future owner, and the amount that its slot is charged now.
    slot: u32,
    more: usize,
    /// Whether that amount was charged already.
    is_done: bool,
    /// The slot that holds the previous charge.
    holder: u32,
}

/// Decides how a block of `held` units is charged before it becomes one of `guess`.
///
/// | the old owner                      | the future owner                                                    |
/// |------------------------------------|---------------------------------------------------------------------|
/// | is the new one                     | the same                                                            |
/// | is not of this process             | the new one, which is charged for all of it                         |
/// | is another; all of it lies prepaid | the new one: no limit needs to be asked                             |
/// | is another                         | the new one, by a transfer, which asks that row's own limit alone   |
/// | is another, and that has no room   | still the old one, which grows                                      |
///
/// So the common ancestors are asked for the difference alone: a block may grow up to the limit, whichever thread
/// calls, and one that shrinks is never refused.
fn plan(old: u32, new: u32, held: usize, guess: usize) -> Charge {
    let more = guess.saturating_sub(held);
    if old == new {
        return Charge { slot: new, more, is_done: false, holder: old };
    }
    let Some((_, row)) = process::group(old).zip(process::group(new)) else {
        return Charge { slot: new, more: guess, is_done: false, holder: old };
    };
    if charges::take_block(row, guess) {
        return Charge { slot: new, more: guess, is_done: true, holder: old };
    }
    let slot = if charges::move_block(old, new, held, guess) { new } else { old };
    Charge { slot, more, is_done: false, holder: slot }
}

/// Moves the charge of a block that did not move back to its owner, and returns the slot that has it. The charge stays
/// in place if the owner's own limit has no room by now.
#[cold]
fn give_back(owner: u32, holder: u32, held: usize) -> u32 {
    let back = holder != owner && charges::move_block(holder, owner, held, held);
    if back { owner } else { holder }
}

/// Does [`realloc`]'s work for a block with a header in a span whose one owner is the calling thread's, to a size that
/// an allocator may have. Returns `None`, without effect, if the block grows by more than lies prepaid. As there, only
/// the difference is charged, and before the block moves.
///
/// # Safety
/// As for [`realloc`]; `cell` is the span's entry and the thread's cell.
#[inline(always)]
unsafe fn realloc_own(block: *mut c_void, size: usize, cell: usize) -> Option<*mut c_void> {
    // SAFETY: as in `adopt`; a block in a span with a cell is the next allocator's, which is ready.
    unsafe {
        let (held, guess) = (next::chunk_size(block), rounded(size));
        if !shadow::prepaid(cell).take(guess.saturating_sub(held) as u64) {
            return None;
        }
        let charged = held.max(guess);
        // Blocks have headers here, so the thread need not be busy.
        let moved = NEXT.raw.realloc(block, size);
        let now = if moved.is_null() { held } else { next::chunk_size(moved) };
        let stays = moved.is_null() || shadow::sole(moved) == cell;
        if !(stays && now <= charged && shadow::prepaid(cell).put((charged - now) as u64)) {
            let errno = errno();
            let slot = thread::get(Word::Slot) as u32;
            charges::return_block(slot, 0);
            if moved.is_null() {
                charges::correct_block(slot, charged, held);
            } else {
                settle_moved(moved, slot, charged);
            }
            set_errno(errno);
        }
        Some(moved)
    }
}

/// Corrects the charge of a block that `realloc` moved, from `charged` to the block's size, and notes the owner.
///
/// # Safety
/// `moved` is fresh from the next allocator, and not null.
unsafe fn settle_moved(moved: *mut c_void, slot: u32, charged: usize) {
    // SAFETY: by the caller's contract.
    let size = unsafe { NEXT.size(moved) };
    charges::correct_block(slot, charged, size);
    note_size(moved, size);
    note_owner(moved, slot, size);
}

/// Notes the owner of a block, which is charged for its size.
fn note_owner(block: *mut c_void, slot: u32, size: usize) {
    let noted = shadow::assign(block, slot);
    if noted != slot {
        charges::return_block(slot, size);
        charges::force_block(noted, size);
    }
}

/// Handles `realloc` to zero bytes: glibc and others free the block, and some return a small one for it.
///
/// # Safety
/// As for [`realloc`]; `block` is neither null nor an early block.
#[cold]
unsafe fn realloc_to_nothing(block: *mut c_void, caller: usize) -> *mut c_void {
    // SAFETY: by the caller's contract; a block of the next allocator is its own.
    unsafe {
        if NEXT.headers() {
            free(block);
            return null_mut();
        }
        forget(block);
        let given = NEXT.alone(|next| next.realloc(block, 0));
        if given.is_null() {
            return given;
        }
        // It may lie closer to another block than a window of shadow.
        NEXT.raw.free(given);
        malloc(0, caller)
    }
}

/// Returns the size of glibc's chunk for a request of `size` bytes below its mmap threshold.
fn rounded(size: usize) -> usize {
    (size.saturating_add(8 + 15) & !15).max(WINDOW)
}

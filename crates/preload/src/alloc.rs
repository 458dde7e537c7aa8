//! The bodies of malloc and its family. `caller` is the address that the function returns to.

use crate::asked;
use crate::charges;
use crate::expected;
use crate::filter;
use crate::library;
use crate::next::{self, HOT, NEXT, WINDOW, early};
use crate::process;
use crate::say::{errno, set_errno};
use crate::shadow;
use crate::sizes;
use crate::thread::{self, Busy, Word};
use ledgerline::Prepaid;
use ledgerline_protocol::By;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// The slot in which the calling thread is charged now; zero for nowhere.
pub(crate) fn owner(caller: usize) -> u32 {
    let known = [Word::Slot, Word::AskedSlot].map(|word| thread::get(word) as u32);
    match known.into_iter().find(|&slot| process::group(slot).is_some()) {
        Some(slot) => slot,
        None => find_owner(caller),
    }
}

#[cold]
#[inline(never)]
pub(crate) fn find_owner(caller: usize) -> u32 {
    let Some(_busy) = Busy::enter() else { return 0 };
    let is_ready = NEXT.ready();
    if !process::attached() {
        return 0;
    }
    // The early blocks are nobody's, and all were handed out by now. (Where blocks have no header, they are known by
    // their addresses: they lie near what another allocator maps, and would keep that from having an owner.)
    if NEXT.headers() {
        early::used().into_iter().flatten().for_each(|place| shadow::claim(place.cast()));
    }
    let slot = match process::by() {
        By::Process => process::OWN,
        By::Thread if filter::is_on() => process::OWN,
        By::Thread => process::named_slot(thread::name(&mut [0; 16])),
        By::Library => {
            let through_new = thread::get(Word::Caller);
            thread::set(Word::Caller, 0);
            // The slot is not kept in the thread's word: the next caller may be another library.
            return library::slot(if through_new != 0 { through_new } else { caller });
        }
    };
    if !is_ready {
        // (Another thread looks the allocator up.)
        return slot;
    }
    let cell = process::group(slot).and_then(|group| group.prepaid()?.into_raw());
    let cell = cell.map(|(cell, _area)| cell);
    // The fast path reads glibc's headers; where there are none, it is a longer one.
    if NEXT.headers() {
        thread::set(Word::Slot, slot as usize);
        thread::set(Word::Cell, cell.unwrap_or(thread::NO_CELL));
    } else {
        thread::set(Word::AskedSlot, slot as usize);
        thread::set(Word::AskedCell, cell.map_or(thread::NO_CELL, |cell| cell | shadow::ASKED));
    }
    slot
}

/// The handle of a cell.
///
/// # Safety
/// A span's entry ([`shadow::sole`]) held the cell.
#[inline(always)]
unsafe fn prepaid(cell: usize) -> Prepaid<'static> {
    // SAFETY: both numbers are a handle's, the second since before the first was entered; a ledger
    // that is open stays open for good.
    unsafe { Prepaid::from_raw(cell, HOT.area.load(Ordering::Relaxed)) }
}

/// Charges and assigns a new block, or gives it back and fails. The fast path calls nothing and needs
/// few registers, so that none are saved.
///
/// # Safety
/// `block` is null or fresh from the next allocator.
pub(crate) unsafe extern "C" fn adopt(block: *mut c_void, caller: usize) -> *mut c_void {
    if block.is_null() {
        // operator new may have noted its caller, which nobody uses now.
        thread::set(Word::Caller, 0);
        expected::forget();
        return block;
    }
    let cell = shadow::sole(block);
    // SAFETY: the entry of a span is a thread's cell only if it is a cell at all, of the ledger that is
    // open for good; and then blocks have glibc's header (the early buffer's as well).
    unsafe {
        if cell == thread::cell(HOT.words.load(Ordering::Relaxed))
            && prepaid(cell).take(next::chunk_size(block) as u64)
        {
            return block;
        }
        if (cell as isize) < 0 {
            return adopt_asked(block, caller, cell);
        }
        adopt_shared(block, caller, cell)
    }
}

/// [`adopt`] of a block without a header, in a span that has one owner.
///
/// # Safety
/// As [`adopt`], and not null.
#[inline(never)]
unsafe extern "C" fn adopt_asked(block: *mut c_void, caller: usize, cell: usize) -> *mut c_void {
    // SAFETY: handed on.
    unsafe { if asked::adopt(block, cell) { block } else { adopt_anywhere(block, caller, cell) } }
}

/// [`adopt`] in a span that has other owners, too; `cell` is the span's entry. (C's
/// calling convention, here and below: a function that cannot unwind can be jumped to.)
///
/// # Safety
/// As [`adopt`], and not null.
#[inline(never)]
unsafe extern "C" fn adopt_shared(block: *mut c_void, caller: usize, cell: usize) -> *mut c_void {
    let slot = thread::get(Word::Slot) as u32;
    // SAFETY: where a thread has a slot, blocks have glibc's header.
    unsafe {
        if let Some(group) = process::group(slot)
            && shadow::assign(block, slot) == slot
            && charges::take_block(group, next::chunk_size(block))
        {
            return block;
        }
        adopt_anywhere(block, caller, cell)
    }
}

/// [`adopt`] where nothing is known beforehand.
///
/// # Safety
/// As [`adopt`], and not null.
#[inline(never)]
unsafe extern "C" fn adopt_anywhere(block: *mut c_void, caller: usize, cell: usize) -> *mut c_void {
    // SAFETY: handed on.
    unsafe {
        if !NEXT.headers() && asked::adopt_anywhere(block, cell) {
            return block;
        }
        adopt_otherwise(block, caller)
    }
}

/// [`adopt`] for a thread without a slot, or with an empty cell.
///
/// # Safety
/// As [`adopt`], and not null.
#[cold]
#[inline(never)]
unsafe extern "C" fn adopt_otherwise(block: *mut c_void, caller: usize) -> *mut c_void {
    // (What this library allocates for itself, and what an operator of the allocator's asks malloc for.)
    if early::owns(block.cast()) || !NEXT.ready() || Busy::is_entered() {
        return block;
    }
    let slot = shadow::assign(block, owner(caller));
    // SAFETY: the block is the next allocator's, which is ready.
    unsafe {
        let size = NEXT.size(block);
        if !charges::block(slot, size) {
            shadow::clear(block);
            NEXT.free(block);
            return fail();
        }
        note_size(block, size);
    }
    block
}

/// Notes what was charged for a block that bears no header, in the place of what was noted of an earlier one there.
fn note_size(block: *mut c_void, size: usize) {
    if !NEXT.headers() {
        sizes::note(block, size);
    }
}

#[cold]
fn fail() -> *mut c_void {
    set_errno(libc::ENOMEM);
    null_mut()
}

/// The size to ask the next allocator for, so that two blocks are a window apart at least. glibc sees to
/// that itself. (For malloc, `Next` does this.)
fn spaced(size: usize) -> usize {
    if NEXT.headers() { size } else { size.max(WINDOW) }
}

/// # Safety
/// As C's `malloc`.
pub(crate) unsafe extern "C" fn malloc(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: until the next malloc is found, its place holds one that finds it.
    unsafe { adopt(NEXT.malloc(size), caller) }
}

/// # Safety
/// As C's `free`.
#[inline(always)]
pub(crate) unsafe fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    let cell = shadow::sole(block);
    // SAFETY: as in `adopt`; a block in a span with a cell is the next allocator's.
    unsafe {
        if cell as isize > shadow::SHARED as isize
            && prepaid(cell).put(next::chunk_size(block) as u64)
        {
            return NEXT.free(block);
        }
        if (cell as isize) < 0 {
            return free_asked(block, cell);
        }
        free_shared(block, cell);
    }
}

/// [`free`] of a block without a header, in a span that has one owner.
///
/// # Safety
/// As [`free`], and not null.
#[inline(never)]
unsafe extern "C" fn free_asked(block: *mut c_void, cell: usize) {
    // SAFETY: handed on; a block whose units were returned is the next allocator's.
    unsafe {
        if asked::forget(block, cell) { NEXT.free(block) } else { free_anywhere(block, cell) }
    }
}

/// [`free`] in a span with several owners; `cell` is the span's entry.
///
/// # Safety
/// As [`free`], and not null.
#[inline(never)]
unsafe extern "C" fn free_shared(block: *mut c_void, cell: usize) {
    // SAFETY: a block with an owner is the next allocator's.
    unsafe {
        if NEXT.headers()
            && let Some(group) = process::group(shadow::owner(block))
            && charges::put_block(group, next::chunk_size(block))
        {
            shadow::clear(block);
            return NEXT.free(block);
        }
        free_anywhere(block, cell);
    }
}

/// [`free`] where nothing is noted.
///
/// # Safety
/// As [`free`], and not null.
#[inline(never)]
unsafe extern "C" fn free_anywhere(block: *mut c_void, cell: usize) {
    // SAFETY: handed on; a block whose units were returned is the next allocator's.
    unsafe {
        if !NEXT.headers() && !early::owns(block.cast()) && asked::forget_anywhere(block, cell) {
            return NEXT.free(block);
        }
        free_otherwise(block);
    }
}

/// [`free`] of a block for which this process is not charged, or into a cell that has no room.
///
/// # Safety
/// As [`free`], and not null.
#[cold]
#[inline(never)]
unsafe extern "C" fn free_otherwise(block: *mut c_void) {
    if early::owns(block.cast()) || !NEXT.ready() {
        return;
    }
    if Busy::is_entered() {
        // SAFETY: the block came from the next allocator.
        return unsafe { NEXT.free(block) };
    }
    // System calls for the account may fail, and `free` must leave errno alone.
    let errno = errno();
    // SAFETY: the block came from the next allocator.
    unsafe {
        let slot = shadow::owner(block);
        if slot != 0 {
            shadow::clear(block);
            charges::return_block(slot, NEXT.size(block));
        }
        set_errno(errno);
        NEXT.free(block);
    }
}

/// Returns the units of a block that is about to be freed by another way than [`free`].
///
/// # Safety
/// `block` is the next allocator's, which is ready.
pub(crate) unsafe fn forget(block: *mut c_void) {
    let slot = shadow::owner(block);
    if slot != 0 && !early::owns(block.cast()) {
        // What is done for the account may fail, and whoever frees leaves errno alone.
        let errno = errno();
        shadow::clear(block);
        // SAFETY: as the caller says.
        charges::return_block(slot, unsafe { NEXT.size(block) });
        set_errno(errno);
    }
}

/// # Safety
/// As C's `calloc`.
pub(crate) unsafe extern "C" fn calloc(count: usize, size: usize, caller: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return fail() };
    if !NEXT.ready() {
        return early::allocate(bytes, 1).cast();
    }
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.calloc(1, spaced(bytes)), caller) }
}

/// # Safety
/// As C's `realloc`.
pub(crate) unsafe extern "C" fn realloc(
    block: *mut c_void,
    size: usize,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the caller's word for `block`, handed on.
    unsafe {
        if block.is_null() {
            return malloc(size, caller);
        }
        if early::owns(block.cast()) {
            let moved = malloc(size, caller);
            if !moved.is_null() {
                let held = early::size(block.cast()).min(size);
                std::ptr::copy_nonoverlapping(block.cast::<u8>(), moved.cast(), held);
            }
            return moved;
        }
        if size == 0 {
            return realloc_to_nothing(block, caller);
        }
        // No allocator has so much. This is no question of limits, and no reason to kill.
        if size > isize::MAX as usize {
            return fail();
        }
        let held = NEXT.size(block);
        let new = owner(caller);
        let old = shadow::owner(block);
        shadow::clear(block);
        // The charge comes first: once the block has moved there is no way back. Its size is only
        // known afterwards, so it is charged as glibc will round it and corrected. In the same row
        // only the difference is asked for, so that a block may grow up to the limit.
        let guess = rounded(size);
        let base = if old == new { held } else { 0 };
        if !charges::block(new, guess.saturating_sub(base)) {
            shadow::assign(block, old);
            return fail();
        }
        let moved = NEXT.realloc(block, spaced(size));
        if moved.is_null() {
            charges::return_block(new, guess.saturating_sub(base));
            shadow::assign(block, old);
            return moved;
        }
        let size = NEXT.size(moved);
        charges::correct_block(new, base.max(guess), size);
        note_size(moved, size);
        // A realloc counts as a charge and an uncharge, whatever the difference was.
        charges::return_block(old, held - base);
        let noted = shadow::assign(moved, new);
        if noted != new {
            charges::return_block(new, size);
            if let Some(group) = process::group(noted) {
                // The block is there already: it is charged in any case.
                charges::force_block(group, size);
            }
        }
        moved
    }
}

/// `realloc` to no bytes: glibc and others free the block, and some give a small one for it.
///
/// # Safety
/// As [`realloc`], and not null, nor an early block.
#[cold]
unsafe fn realloc_to_nothing(block: *mut c_void, caller: usize) -> *mut c_void {
    // SAFETY: the caller's word; what the next allocator gives is its own.
    unsafe {
        if NEXT.headers() {
            free(block);
            return null_mut();
        }
        forget(block);
        let given = NEXT.realloc(block, 0);
        if given.is_null() {
            return given;
        }
        // It may lie closer to another than a window of shadow.
        NEXT.free(given);
        malloc(0, caller)
    }
}

/// The chunk that glibc makes for a request of `size` bytes below its mmap threshold.
fn rounded(size: usize) -> usize {
    (size.saturating_add(8 + 15) & !15).max(WINDOW)
}

/// # Safety
/// As C's `memalign`.
pub(crate) unsafe extern "C" fn memalign(align: usize, size: usize, caller: usize) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, align.next_power_of_two()).cast();
    }
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.memalign(align, spaced(size)), caller) }
}

/// # Safety
/// As C's `aligned_alloc`.
pub(crate) unsafe extern "C" fn aligned_alloc(
    align: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, align.next_power_of_two()).cast();
    }
    // (A window is a multiple of a smaller alignment, as the size of such a block is to be.)
    let size = if align <= WINDOW { spaced(size) } else { size };
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.aligned_alloc(align, size), caller) }
}

/// # Safety
/// As C's `posix_memalign`.
pub(crate) unsafe extern "C" fn posix_memalign(
    into: *mut *mut c_void,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    // It reports errors by its result and leaves errno and `into` alone.
    let errno = errno();
    let mut block = null_mut();
    if !NEXT.ready() {
        block = early::allocate(size, align.next_power_of_two()).cast();
    } else {
        // SAFETY: the next allocator is ready; it writes to a variable of ours.
        let result = unsafe { NEXT.posix_memalign(&raw mut block, align, spaced(size)) };
        if result != 0 {
            return result;
        }
        // SAFETY: fresh from the next allocator.
        block = unsafe { adopt(block, caller) };
    }
    set_errno(errno);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's word for `into`.
    unsafe { into.write(block) };
    0
}

/// What a program may use of a block.
///
/// # Safety
/// As glibc's `malloc_usable_size`.
pub(crate) unsafe extern "C" fn usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the block is ours or the next allocator's.
    unsafe {
        if early::owns(block.cast()) {
            return early::size(block.cast());
        }
        NEXT.usable(block)
    }
}

//! The bodies of malloc and its family. `caller` is the address that the function returns to.

use crate::asked;
use crate::charges;
use crate::expected::Expected;
use crate::filter;
use crate::library;
use crate::next::{self, NEXT, WINDOW, early};
use crate::process;
use crate::shadow;
use crate::sizes;
use crate::thread::{self, Busy, Word};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::By;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

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
    let Some(run) = process::attached() else { return 0 };
    // The early blocks are nobody's, and all were handed out by now. (Where blocks have no header, they are known by
    // their addresses: they lie near what another allocator maps, and would keep that from having an owner.)
    if NEXT.headers() {
        for place in early::used().into_iter().flatten() {
            shadow::claim(place);
        }
    }
    let slot = match run.by {
        By::Process => process::OWN,
        By::Thread if filter::is_on() => process::OWN,
        By::Thread => process::named_slot(thread::name(&mut [0; 16])),
        By::Library => {
            let through_new = thread::get(Word::Caller);
            thread::set(Word::Caller, 0);
            // The slot is not kept in the thread's word: the next caller may be another library.
            return match through_new {
                0 => library::slot_of_caller(caller),
                through_new => library::slot_of_new(through_new),
            };
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
        thread::set(Word::AskedCell, cell.map_or(thread::NO_CELL, shadow::asked));
    }
    slot
}

/// Charges and assigns a new block, or gives it back and fails. The fast path calls nothing and needs
/// few registers, so that none are saved.
///
/// # Safety
/// `block` is null or fresh from the next allocator.
#[inline(always)]
pub(crate) unsafe fn adopt(block: *mut c_void, caller: usize, expected: Expected) -> *mut c_void {
    if block.is_null() {
        // operator new may have noted its caller, which nobody uses now.
        thread::set(Word::Caller, 0);
        return block;
    }
    let cell = shadow::sole(block);
    // SAFETY: the entry of a span is a thread's cell only if it is a cell at all, of the ledger that is
    // open for good; and then blocks have glibc's header (the early buffer's as well).
    unsafe {
        if cell == thread::cell(NEXT.words.load(Ordering::Relaxed))
            && shadow::prepaid(cell).take(next::chunk_size(block) as u64)
        {
            return block;
        }
        if (cell as isize) < 0 {
            return adopt_asked(block, caller, expected, cell);
        }
        adopt_shared(block, caller, expected, cell)
    }
}

/// [`adopt`] of a block without a header, in a span that has one owner.
///
/// # Safety
/// As [`adopt`], and not null.
#[inline(never)]
unsafe extern "C" fn adopt_asked(
    block: *mut c_void,
    caller: usize,
    expected: Expected,
    cell: usize,
) -> *mut c_void {
    // SAFETY: handed on.
    unsafe {
        if asked::adopt(block, cell, expected) {
            return block;
        }
        adopt_anywhere(block, caller, expected, cell)
    }
}

/// [`adopt`] in a span that has other owners, too; `cell` is the span's entry. (C's
/// calling convention, here and below: a function that cannot unwind can be jumped to.)
///
/// # Safety
/// As [`adopt`], and not null.
#[inline(never)]
unsafe extern "C" fn adopt_shared(
    block: *mut c_void,
    caller: usize,
    expected: Expected,
    cell: usize,
) -> *mut c_void {
    let slot = thread::get(Word::Slot) as u32;
    // SAFETY: where a thread has a slot, blocks have glibc's header.
    unsafe {
        if let Some(group) = process::group(slot)
            && shadow::assign(block, slot) == slot
            && charges::take_block(group, next::chunk_size(block))
        {
            return block;
        }
        adopt_anywhere(block, caller, expected, cell)
    }
}

/// [`adopt`] where nothing is known beforehand.
///
/// # Safety
/// As [`adopt`], and not null.
#[inline(never)]
unsafe extern "C" fn adopt_anywhere(
    block: *mut c_void,
    caller: usize,
    expected: Expected,
    cell: usize,
) -> *mut c_void {
    // SAFETY: handed on.
    unsafe {
        if !NEXT.headers() && asked::adopt_anywhere(block, cell, expected) {
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
    if early::owns(block) || !NEXT.ready() || Busy::is_entered() {
        return block;
    }
    // Calls for the account may fail, and who gets a block finds errno as it was.
    let before = errno();
    let slot = shadow::assign(block, owner(caller));
    // SAFETY: the block is the next allocator's, which is ready.
    unsafe {
        let size = NEXT.size(block);
        if !charges::block(slot, size) {
            shadow::clear(block);
            NEXT.raw.free(block);
            return fail();
        }
        note_size(block, size);
    }
    set_errno(before);
    block
}

/// Notes what was charged for a block that bears no header, in the place of what was noted of an earlier one there.
pub(crate) fn note_size(block: *mut c_void, size: usize) {
    if !NEXT.headers() {
        sizes::note(block, size);
    }
}

#[cold]
pub(crate) fn fail() -> *mut c_void {
    set_errno(libc::ENOMEM);
    null_mut()
}

/// The size to ask the next allocator for, so that two blocks are a window apart at least. glibc sees to
/// that itself. (For malloc, `Next` does this.)
pub(crate) fn spaced(size: usize) -> usize {
    if NEXT.headers() { size } else { size.max(WINDOW) }
}

/// Where `malloc` goes on: to a function that finds out, and then to that for the allocator's blocks. (Each call more on
/// this way, with its return, takes more than a nanosecond.)
pub(crate) static MALLOC: AtomicPtr<()> = AtomicPtr::new(first_malloc as *const () as *mut ());

#[cold]
unsafe extern "C" fn first_malloc(size: usize, caller: usize) -> *mut c_void {
    if NEXT.ready() {
        let way = if NEXT.headers() { malloc_headed } else { malloc_asked };
        // Release: whoever goes that way sees what was found before. (Pairs with the load of `exports::malloc`.)
        MALLOC.store(way as *const () as *mut (), Ordering::Release);
    }
    // SAFETY: handed on.
    unsafe { malloc(size, caller) }
}

/// Whether the program's own `malloc` gets its blocks elsewhere. It is asked for one: programs that define `malloc` by the next
/// one (`dlsym(RTLD_NEXT)`) pass the request on, and are accounted as others are. `own` is zero where there is none.
pub(crate) fn is_passed_by(own: usize) -> bool {
    if own == 0 || !NEXT.ready() {
        return own != 0;
    }
    // The first request that comes here moves it on.
    MALLOC.store(first_malloc as *const () as *mut (), Ordering::Release);
    // SAFETY: the functions that the program and its libraries call by these names, before its first instruction, too.
    unsafe { libc::free(call(own, 1)) };
    std::ptr::eq(MALLOC.load(Ordering::Acquire), first_malloc as *const ())
}

/// Calls a `malloc`.
///
/// # Safety
/// There is one at the address.
unsafe fn call(malloc: usize, size: usize) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe {
        let malloc: unsafe extern "C" fn(usize) -> *mut c_void = std::mem::transmute(malloc);
        malloc(size)
    }
}

/// # Safety
/// As C's `malloc`.
pub(crate) unsafe extern "C" fn malloc(size: usize, caller: usize) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, 1);
    }
    // SAFETY: the next allocator is ready.
    unsafe { if NEXT.headers() { malloc_headed(size, caller) } else { malloc_asked(size, caller) } }
}

/// [`malloc`] where blocks bear glibc's header.
///
/// # Safety
/// As [`malloc`]; the next allocator is ready.
unsafe extern "C" fn malloc_headed(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { adopt(NEXT.raw.malloc(size), caller, Expected::NOTHING) }
}

/// [`malloc`] where they bear none.
///
/// # Safety
/// As [`malloc`]; the next allocator is ready.
unsafe extern "C" fn malloc_asked(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe {
        let block = NEXT.raw.malloc(size.max(WINDOW));
        let expected = Expected::of(size);
        if !block.is_null() && asked::adopt(block, shadow::sole(block), expected) {
            return block;
        }
        adopt(block, caller, expected)
    }
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
        if (cell as isize) < 0 {
            return free_asked(block, cell);
        }
        if cell > shadow::SHARED && shadow::prepaid(cell).put(next::chunk_size(block) as u64) {
            return NEXT.raw.free(block);
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
        if asked::forget(block, cell) { NEXT.raw.free(block) } else { free_anywhere(block, cell) }
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
            return NEXT.raw.free(block);
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
        if !NEXT.headers() && !early::owns(block) && asked::forget_anywhere(block, cell) {
            return NEXT.raw.free(block);
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
    if early::owns(block) || !NEXT.ready() {
        return;
    }
    if Busy::is_entered() {
        // SAFETY: the block came from the next allocator.
        return unsafe { NEXT.raw.free(block) };
    }
    // SAFETY: the block came from the next allocator.
    unsafe {
        forget(block);
        NEXT.raw.free(block);
    }
}

/// Returns the units of a block that is about to be freed, where nothing is known beforehand.
///
/// # Safety
/// `block` is the next allocator's, which is ready.
pub(crate) unsafe fn forget(block: *mut c_void) {
    let slot = shadow::owner(block);
    if slot != 0 && !early::owns(block) {
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
        return early::allocate(bytes, 1);
    }
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.alone(|next| next.calloc(1, spaced(bytes))), caller, Expected::of(bytes)) }
}

/// # Safety
/// As C's `memalign`.
pub(crate) unsafe extern "C" fn memalign(align: usize, size: usize, caller: usize) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, align.next_power_of_two());
    }
    // SAFETY: the next allocator is ready.
    unsafe {
        adopt(NEXT.alone(|next| next.memalign(align, spaced(size))), caller, Expected::NOTHING)
    }
}

/// # Safety
/// As C's `aligned_alloc`.
pub(crate) unsafe extern "C" fn aligned_alloc(
    align: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, align.next_power_of_two());
    }
    // (A window is a multiple of a smaller alignment, as the size of such a block is to be.)
    let size = if align <= WINDOW { spaced(size) } else { size };
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.alone(|next| next.aligned_alloc(align, size)), caller, Expected::NOTHING) }
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
        block = early::allocate(size, align.next_power_of_two());
    } else {
        let place = &raw mut block;
        // SAFETY: the next allocator is ready; it writes to a variable of ours.
        let result = NEXT.alone(|next| unsafe { next.posix_memalign(place, align, spaced(size)) });
        if result != 0 {
            return result;
        }
        // SAFETY: fresh from the next allocator.
        block = unsafe { adopt(block, caller, Expected::NOTHING) };
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
        if early::owns(block) {
            return early::size(block);
        }
        NEXT.raw.usable_size(block)
    }
}

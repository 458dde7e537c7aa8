//! The bodies of malloc and its family. `caller` is the return address of the function.

use crate::asked;
use crate::charges;
use crate::expected::Expected;
use crate::filter;
use crate::library;
use crate::next::{self, NEXT, WINDOW, early};
use crate::objects;
use crate::process;
use crate::shadow;
use crate::sizes;
use crate::thread::{self, Busy, Word};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::By;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns the slot that the calling thread is charged to now; zero without one.
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
    // The early blocks have no owner, and all were handed out by now. If blocks have no header, the early ones are
    // recognized by their addresses: they lie near mappings of another allocator, whose spans could not get an owner
    // then.
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
        // Another thread looks the allocator up.
        return slot;
    }
    let cell = process::group(slot).and_then(|group| group.prepaid()?.into_raw());
    let cell = cell.map(|(cell, _area)| cell);
    // The fast path reads glibc's headers. Without headers a longer path serves.
    if NEXT.headers() {
        thread::set(Word::Slot, slot as usize);
        thread::set(Word::Cell, cell.unwrap_or(thread::NO_CELL));
    } else {
        thread::set(Word::AskedSlot, slot as usize);
        thread::set(Word::AskedCell, cell.map_or(thread::NO_CELL, shadow::asked));
    }
    slot
}

/// Charges and assigns a new block, or frees it and fails. The fast path calls nothing and needs few registers, so that
/// none are saved.
///
/// # Safety
/// `block` is null or fresh from the next allocator.
#[inline(always)]
pub(crate) unsafe fn adopt(block: *mut c_void, caller: usize, expected: Expected) -> *mut c_void {
    if block.is_null() {
        // operator new may have stored its caller, which is not needed now.
        thread::set(Word::Caller, 0);
        return block;
    }
    let cell = shadow::sole(block);
    // SAFETY: a span's entry equals a thread's cell only if it is a cell at all, of the ledger that is open for good.
    // Blocks have glibc's header then, and so do those of the early buffer.
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

/// Does [`adopt`]'s work for a block without a header, in a span that has one owner.
///
/// # Safety
/// As for [`adopt`]; `block` is not null.
#[inline(never)]
unsafe extern "C" fn adopt_asked(
    block: *mut c_void,
    caller: usize,
    expected: Expected,
    cell: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract, passed on.
    unsafe {
        if asked::adopt(block, cell, expected) {
            return block;
        }
        adopt_anywhere(block, caller, expected, cell)
    }
}

/// Does [`adopt`]'s work in a span that has other owners too; `cell` is the span's entry. C's calling convention, here
/// and below: a function that cannot unwind can be jumped to.
///
/// # Safety
/// As for [`adopt`]; `block` is not null.
#[inline(never)]
unsafe extern "C" fn adopt_shared(
    block: *mut c_void,
    caller: usize,
    expected: Expected,
    cell: usize,
) -> *mut c_void {
    let slot = thread::get(Word::Slot) as u32;
    // SAFETY: a thread has a slot only if blocks have glibc's header.
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

/// Does [`adopt`]'s work if nothing is known beforehand.
///
/// # Safety
/// As for [`adopt`]; `block` is not null.
#[inline(never)]
unsafe extern "C" fn adopt_anywhere(
    block: *mut c_void,
    caller: usize,
    expected: Expected,
    cell: usize,
) -> *mut c_void {
    // SAFETY: the caller's contract, passed on.
    unsafe {
        if !NEXT.headers() && asked::adopt_anywhere(block, cell, expected) {
            return block;
        }
        adopt_otherwise(block, caller)
    }
}

/// Does [`adopt`]'s work for a thread without a slot, or with an empty cell.
///
/// # Safety
/// As for [`adopt`]; `block` is not null.
#[cold]
#[inline(never)]
unsafe extern "C" fn adopt_otherwise(block: *mut c_void, caller: usize) -> *mut c_void {
    // Exempt are this library's own blocks, and those that an operator of the allocator takes from malloc.
    if early::owns(block) || !NEXT.ready() || Busy::is_entered() {
        return block;
    }
    // Calls for the account may fail, but a successful malloc leaves errno alone.
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

/// Notes the charge of a block without a header. It replaces the note of an earlier block at that address.
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

/// Returns the size to request from the next allocator, so that blocks start at least 32 bytes apart ([`WINDOW`]).
/// glibc ensures that itself. For malloc, `Next` does this.
pub(crate) fn spaced(size: usize) -> usize {
    if NEXT.headers() { size } else { size.max(WINDOW) }
}

/// The continuation of `malloc`: first a function that inspects the allocator, then the one for its kind of blocks.
/// Each further call and return on this path takes more than a nanosecond.
pub(crate) static MALLOC: AtomicPtr<()> = AtomicPtr::new(first_malloc as *const () as *mut ());

#[cold]
unsafe extern "C" fn first_malloc(size: usize, caller: usize) -> *mut c_void {
    if NEXT.ready() {
        let way = if NEXT.headers() { malloc_headed } else { malloc_asked };
        // Release, paired with the load in `exports::malloc`: a thread that jumps there sees the results of the
        // inspection.
        MALLOC.store(way as *const () as *mut (), Ordering::Release);
    }
    // SAFETY: the caller's contract, passed on.
    unsafe { malloc(size, caller) }
}

/// Returns whether the program's own `malloc` takes its blocks from elsewhere, by asking it for one. A program that
/// defines `malloc` by the next one (`dlsym(RTLD_NEXT)`) passes the request on and is accounted like any other. `own`
/// is zero if there is no such `malloc`.
pub(crate) fn is_passed_by(own: usize) -> bool {
    if own == 0 || !NEXT.ready() {
        return own != 0;
    }
    // The first request that arrives here changes this.
    MALLOC.store(first_malloc as *const () as *mut (), Ordering::Release);
    // By address: the compiler takes `free` for this library's, and inlines it.
    let free = objects::called(c"free");
    // SAFETY: the functions that the program and its libraries call by these names, even before its first instruction.
    unsafe {
        let free: unsafe extern "C" fn(*mut c_void) = std::mem::transmute(free);
        free(call(own, 1));
    }
    std::ptr::eq(MALLOC.load(Ordering::Acquire), first_malloc as *const ())
}

/// Calls a `malloc`.
///
/// # Safety
/// The address is that of a `malloc`.
unsafe fn call(malloc: usize, size: usize) -> *mut c_void {
    // SAFETY: by the caller's contract.
    unsafe {
        let malloc: unsafe extern "C" fn(usize) -> *mut c_void = std::mem::transmute(malloc);
        malloc(size)
    }
}

/// # Safety
/// As for C's `malloc`.
pub(crate) unsafe extern "C" fn malloc(size: usize, caller: usize) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, 1);
    }
    // SAFETY: the next allocator is ready.
    unsafe { if NEXT.headers() { malloc_headed(size, caller) } else { malloc_asked(size, caller) } }
}

/// Does [`malloc`]'s work if blocks have glibc's header.
///
/// # Safety
/// As for [`malloc`]; the next allocator is ready.
unsafe extern "C" fn malloc_headed(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: by the caller's contract.
    unsafe { adopt(NEXT.raw.malloc(size), caller, Expected::NOTHING) }
}

/// Does [`malloc`]'s work if blocks have no header.
///
/// # Safety
/// As for [`malloc`]; the next allocator is ready.
unsafe extern "C" fn malloc_asked(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: by the caller's contract.
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
/// As for C's `free`.
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

/// Does [`free`]'s work for a block without a header, in a span that has one owner.
///
/// # Safety
/// As for [`free`]; `block` is not null.
#[inline(never)]
unsafe extern "C" fn free_asked(block: *mut c_void, cell: usize) {
    // SAFETY: the caller's contract, passed on; a block whose units were returned is the next allocator's.
    unsafe {
        if asked::forget(block, cell) { NEXT.raw.free(block) } else { free_anywhere(block, cell) }
    }
}

/// Does [`free`]'s work in a span with several owners; `cell` is the span's entry.
///
/// # Safety
/// As for [`free`]; `block` is not null.
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

/// Does [`free`]'s work if no size is noted.
///
/// # Safety
/// As for [`free`]; `block` is not null.
#[inline(never)]
unsafe extern "C" fn free_anywhere(block: *mut c_void, cell: usize) {
    // SAFETY: the caller's contract, passed on; a block whose units were returned is the next allocator's.
    unsafe {
        if !NEXT.headers() && !early::owns(block) && asked::forget_anywhere(block, cell) {
            return NEXT.raw.free(block);
        }
        free_otherwise(block);
    }
}

/// Does [`free`]'s work for a block that this process is not charged for, or if the cell has no room.
///
/// # Safety
/// As for [`free`]; `block` is not null.
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

/// Returns the units of a block that is about to be freed, if nothing is known beforehand.
///
/// # Safety
/// `block` is the next allocator's, which is ready.
pub(crate) unsafe fn forget(block: *mut c_void) {
    let slot = shadow::owner(block);
    if slot != 0 && !early::owns(block) {
        // Calls for the account may fail, but `free` leaves errno alone.
        let errno = errno();
        shadow::clear(block);
        // SAFETY: by the caller's contract.
        charges::return_block(slot, unsafe { NEXT.size(block) });
        set_errno(errno);
    }
}

/// # Safety
/// As for C's `calloc`.
pub(crate) unsafe extern "C" fn calloc(count: usize, size: usize, caller: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return fail() };
    if !NEXT.ready() {
        return early::allocate(bytes, 1);
    }
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.alone(|next| next.calloc(1, spaced(bytes))), caller, Expected::of(bytes)) }
}

/// # Safety
/// As for C's `memalign`.
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
/// As for C's `aligned_alloc`.
pub(crate) unsafe extern "C" fn aligned_alloc(
    align: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, align.next_power_of_two());
    }
    // The size of such a block must be a multiple of its alignment. A window is one of any smaller alignment.
    let size = if align <= WINDOW { spaced(size) } else { size };
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.alone(|next| next.aligned_alloc(align, size)), caller, Expected::NOTHING) }
}

/// # Safety
/// As for C's `posix_memalign`.
pub(crate) unsafe extern "C" fn posix_memalign(
    into: *mut *mut c_void,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    // The function reports errors by its result and leaves errno and `into` alone.
    let errno = errno();
    let mut block = null_mut();
    if !NEXT.ready() {
        block = early::allocate(size, align.next_power_of_two());
    } else {
        let place = &raw mut block;
        // SAFETY: the next allocator is ready; it writes to a local variable.
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
    // SAFETY: `into` is valid by the caller's contract.
    unsafe { into.write(block) };
    0
}

/// Returns the bytes of a block that a program may use.
///
/// # Safety
/// As for glibc's `malloc_usable_size`.
pub(crate) unsafe extern "C" fn usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the block is an early one or the next allocator's.
    unsafe {
        if early::owns(block) {
            return early::size(block);
        }
        NEXT.raw.usable_size(block)
    }
}

//! The bodies of malloc and its family. `caller` is the address that the function returns to.

use crate::library;
use crate::next::{self, NEXT, early};
use crate::process::{self, By};
use crate::refuse::{self, set_errno};
use crate::shadow::{self, WINDOW};
use crate::thread::{self, Busy, Word};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// The slot in which the calling thread is charged now; zero for nowhere.
fn owner(caller: usize) -> u32 {
    let slot = thread::get(Word::Slot) as u32;
    if process::group(slot).is_some() { slot } else { find_owner(caller) }
}

#[cold]
#[inline(never)]
pub(crate) fn find_owner(caller: usize) -> u32 {
    let Some(_busy) = Busy::enter() else { return 0 };
    if !process::attached() {
        return 0;
    }
    let slot = match process::settings().by {
        By::Process => process::OWN,
        By::Thread => process::named_slot(thread::name(&mut [0; 16]).as_bytes()),
        By::Library => {
            let through_new = thread::get(Word::Caller);
            thread::set(Word::Caller, 0);
            // Not kept in the thread's word: the next caller may be another.
            return library::slot(if through_new != 0 { through_new } else { caller });
        }
    };
    // The fast path reads glibc's headers; where there are none, every call comes through here.
    if NEXT.headers() {
        thread::set(Word::Slot, slot as usize);
    }
    slot
}

/// Charges a slot; `false` if a limit says no. Nobody is charged for a block without an owner.
fn charge(slot: u32, units: usize) -> bool {
    let Some(group) = process::group(slot) else { return true };
    match group.try_charge_units(units as u64) {
        Ok(()) => true,
        Err(refusal) => refuse::try_again(group, refusal),
    }
}

/// Returns units to a slot, if it is one of this process's.
fn uncharge(slot: u32, units: usize) {
    if let Some(group) = process::group(slot) {
        group.uncharge_units(units as u64);
    }
}

/// Notes the owner of a block.
fn mark(block: *mut c_void, slot: u32) {
    if let Some(byte) = shadow::byte(block) {
        byte.store(slot as u8, Ordering::Relaxed);
    }
}

/// Takes the owner off a block: before it is freed, since the next thread may get it at once.
fn unmark(block: *mut c_void) -> u32 {
    shadow::byte(block).map_or(0, |byte| {
        let slot = byte.load(Ordering::Relaxed);
        byte.store(0, Ordering::Relaxed);
        u32::from(slot)
    })
}

/// Charges and marks a new block, or gives it back and fails. The fast path calls nothing, so that
/// the compiler saves no registers for it.
///
/// # Safety
/// `block` is null or fresh from the next allocator.
#[inline(always)]
unsafe fn adopt(block: *mut c_void, caller: usize) -> *mut c_void {
    if block.is_null() {
        // Nobody took note of the operator new that asked.
        thread::set(Word::Caller, 0);
        return block;
    }
    let slot = thread::get(Word::Slot) as u32;
    // SAFETY: where a thread has a slot, blocks have glibc's header (the early buffer's as well).
    unsafe {
        if let Some(group) = process::group(slot)
            && let Some(map) = shadow::map(block)
            && group.take_prepaid(next::chunk_size(block) as u64)
        {
            shadow::byte_in(map, block).store(slot as u8, Ordering::Relaxed);
            return block;
        }
        adopt_otherwise(block, caller)
    }
}

/// [`adopt`] for a thread without a slot, an empty cell, a first block in its GiB.
///
/// # Safety
/// As [`adopt`], and not null.
#[cold]
#[inline(never)]
unsafe fn adopt_otherwise(block: *mut c_void, caller: usize) -> *mut c_void {
    if early::owns(block.cast()) || !NEXT.ready() {
        return block;
    }
    let slot = owner(caller);
    // Without a byte for its owner a block is nobody's.
    if slot == 0 || shadow::make_byte(block).is_none() {
        return block;
    }
    // SAFETY: the block is the next allocator's, which is ready.
    unsafe {
        if !charge(slot, NEXT.size(block)) {
            NEXT.free(block);
            return fail();
        }
    }
    mark(block, slot);
    block
}

#[cold]
fn fail() -> *mut c_void {
    set_errno(libc::ENOMEM);
    null_mut()
}

/// What to ask the next allocator for: two blocks are a window apart at least. glibc sees to that
/// itself. (For malloc, `Next` does this.)
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
    // SAFETY: a block with an owner is the next allocator's.
    unsafe {
        if NEXT.headers()
            && let Some(map) = shadow::map(block)
        {
            let byte = shadow::byte_in(map, block);
            if let Some(group) = process::group(u32::from(byte.load(Ordering::Relaxed)))
                && group.put_prepaid(next::chunk_size(block) as u64)
            {
                // Before the block goes: the next thread may get it at once.
                byte.store(0, Ordering::Relaxed);
                return NEXT.free(block);
            }
        }
        free_otherwise(block);
    }
}

/// [`free`] of a block that this process is not charged for, or when the cell has no room.
///
/// # Safety
/// As [`free`], and not null.
#[cold]
#[inline(never)]
unsafe fn free_otherwise(block: *mut c_void) {
    if early::owns(block.cast()) || !NEXT.ready() {
        return;
    }
    // What the account asks of the kernel may fail; `free` leaves errno alone.
    let errno = refuse::errno();
    // SAFETY: the block came from the next allocator.
    unsafe {
        let slot = unmark(block);
        if slot != 0 {
            uncharge(slot, NEXT.size(block));
        }
        set_errno(errno);
        NEXT.free(block);
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
            free(block);
            return null_mut();
        }
        // No allocator has so much: not a question of limits, nor a reason to be killed.
        if size > isize::MAX as usize {
            return fail();
        }
        let held = NEXT.size(block);
        let new = owner(caller);
        let old = unmark(block);
        // The charge comes first: once the block has moved there is no way back. Its size is only
        // known afterwards, so it is charged as glibc will round it and corrected. In the same row
        // only the difference is asked for, so that a block may grow up to the limit.
        let guess = rounded(size);
        let base = if old == new { held } else { 0 };
        if !charge(new, guess.saturating_sub(base)) {
            mark(block, old);
            return fail();
        }
        let moved = NEXT.realloc(block, spaced(size));
        if moved.is_null() {
            uncharge(new, guess.saturating_sub(base));
            mark(block, old);
            return moved;
        }
        correct(new, base.max(guess), NEXT.size(moved));
        // A realloc counts as a charge and an uncharge, whatever the difference was.
        uncharge(old, held - base);
        if shadow::make_byte(moved).is_some() {
            mark(moved, new);
        } else {
            uncharge(new, NEXT.size(moved));
        }
        moved
    }
}

/// Makes a charge of `charged` one of `units`.
fn correct(slot: u32, charged: usize, units: usize) {
    let Some(group) = process::group(slot) else { return };
    if units > charged {
        // The rest of a page at most, and the block is there already: it is charged in any case.
        let _ = group.charge_units((units - charged) as u64);
        group.uncharge_units(0);
    } else if units < charged {
        let _ = group.charge_units(0);
        group.uncharge_units((charged - units) as u64);
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
    let errno = refuse::errno();
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

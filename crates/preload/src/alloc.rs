//! The bodies of malloc and its family. `caller` is the address that the function returns to.

use crate::library;
use crate::next::{self, NEXT, early};
use crate::process::{self, By};
use crate::refuse::{self, set_errno};
use crate::tag::{SIZE, Tag};
use crate::thread::{self, Busy, Word};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// The tag of what the calling thread allocates now.
#[inline(always)]
fn owner(caller: usize) -> Tag {
    let tag = Tag::from_raw(thread::get(Word::Tag) as u32);
    // A forked child has another stamp than its parent's tags, or none yet.
    if process::made(tag) { tag } else { find_owner(caller) }
}

#[cold]
#[inline(never)]
pub(crate) fn find_owner(caller: usize) -> Tag {
    let Some(_busy) = Busy::enter() else { return Tag::NONE };
    if !process::attached() {
        return Tag::NONE;
    }
    let row = match process::settings().by {
        By::Process => process::row(),
        By::Thread => process::named_row(thread::name(&mut [0; 16]).as_bytes()),
        By::Library => {
            let through_new = thread::get(Word::Caller);
            thread::set(Word::Caller, 0);
            // Not kept in the thread's word: the next caller may be another.
            let caller = if through_new != 0 { through_new } else { caller };
            return process::tag(library::row(caller));
        }
    };
    let tag = process::tag(row);
    thread::set(Word::Tag, tag.raw() as usize);
    tag
}

/// Charges a block; `false` if a limit says no.
#[inline(always)]
fn charge(tag: Tag, units: usize) -> bool {
    if tag == Tag::NONE {
        return true;
    }
    process::group(tag.row()).try_charge_units(units as u64).is_ok()
        || refuse::try_again(tag.row(), units as u64)
}

/// Takes the charge of a block back from whoever it was charged to, if that is this process.
///
/// A block that an ancestor allocated stays in the ancestor's account: it still has its copy.
#[inline(always)]
fn uncharge(tag: Tag, units: usize) {
    if process::made(tag) {
        process::group(tag.row()).uncharge_units(units as u64);
    }
}

/// Charges and tags a new block, or gives it back and fails.
///
/// # Safety
/// `block` is null or fresh from the next allocator, with four bytes more than the program wants.
#[inline(always)]
unsafe fn adopt(block: *mut c_void, caller: usize) -> *mut c_void {
    if block.is_null() {
        return block;
    }
    let tag = Tag::from_raw(thread::get(Word::Tag) as u32);
    // SAFETY: the block is the next allocator's, and its last four bytes are ours.
    unsafe {
        if NEXT.headers() && process::made(tag) {
            let usable = next::size_in_header(block);
            if process::group(tag.row()).try_charge_units(usable as u64).is_ok() {
                tag.write(block.cast(), usable);
                return block;
            }
        }
        adopt_otherwise(block, caller)
    }
}

/// [`adopt`] for a thread without a row, for other allocators, and after a refusal.
///
/// # Safety
/// As [`adopt`].
#[cold]
#[inline(never)]
unsafe fn adopt_otherwise(block: *mut c_void, caller: usize) -> *mut c_void {
    // SAFETY: by the caller's word.
    unsafe {
        let usable = NEXT.usable(block);
        let tag = owner(caller);
        if !charge(tag, usable) {
            NEXT.free(block);
            return fail();
        }
        tag.write(block.cast(), usable);
    }
    block
}

#[cold]
fn fail() -> *mut c_void {
    set_errno(libc::ENOMEM);
    null_mut()
}

/// # Safety
/// As C's `malloc`.
pub(crate) unsafe extern "C" fn malloc(size: usize, caller: usize) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, 1).cast();
    }
    let Some(whole) = size.checked_add(SIZE) else { return fail() };
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.malloc(whole), caller) }
}

/// # Safety
/// As C's `free`.
#[inline(always)]
pub(crate) unsafe fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: the block came from the next allocator, or from the early buffer, whose blocks look
    // alike and have no owner.
    unsafe {
        if NEXT.headers() {
            let usable = next::size_in_header(block);
            let tag = Tag::read(block.cast(), usable);
            if process::made(tag) {
                process::group(tag.row()).uncharge_units(usable as u64);
                return NEXT.free(block);
            }
        }
        free_otherwise(block);
    }
}

/// [`free`] of a block that this process is not charged for, and for other allocators.
///
/// # Safety
/// As [`free`], and not null.
#[cold]
#[inline(never)]
unsafe fn free_otherwise(block: *mut c_void) {
    if early::owns(block.cast()) || !NEXT.ready() {
        return;
    }
    // SAFETY: the block came from the next allocator, through one of these functions.
    unsafe {
        let usable = NEXT.usable(block);
        uncharge(Tag::read(block.cast(), usable), usable);
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
    let Some(whole) = bytes.checked_add(SIZE) else { return fail() };
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.calloc(1, whole), caller) }
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
        let Some(whole) = size.checked_add(SIZE) else { return fail() };
        let held = NEXT.usable(block);
        let old = Tag::read(block.cast(), held);
        let new = owner(caller);
        // The charge comes first: once the block has moved there is no way back. Its size is only
        // known afterwards, so it is charged as glibc will round it and corrected. In the same row
        // only the difference is asked for, so that a block may grow up to the limit.
        let guess = rounded(whole);
        let base = if old == new { held } else { 0 };
        if !charge(new, guess.saturating_sub(base)) {
            return fail();
        }
        let moved = NEXT.realloc(block, whole);
        if moved.is_null() {
            uncharge(new, guess.saturating_sub(base));
            return moved;
        }
        let usable = NEXT.usable(moved);
        correct(new, base.max(guess), usable);
        // A realloc counts as a charge and an uncharge, whatever the difference was.
        uncharge(old, held - base);
        new.write(moved.cast(), usable);
        moved
    }
}

/// Makes a charge of `charged` one of `units`.
#[inline(always)]
fn correct(tag: Tag, charged: usize, units: usize) {
    if units == charged || tag == Tag::NONE {
        return;
    }
    let group = process::group(tag.row());
    if units > charged {
        // The rest of a page at most, and the block is there already: it is charged in any case.
        let _ = group.charge_units((units - charged) as u64);
        group.uncharge_units(0);
    } else {
        let _ = group.charge_units(0);
        group.uncharge_units((charged - units) as u64);
    }
}

/// The usable size that glibc gives a request of `whole` bytes below its mmap threshold.
#[inline(always)]
fn rounded(whole: usize) -> usize {
    (whole.saturating_add(8 + 15) & !15).max(32) - 8
}

/// # Safety
/// As C's `memalign`.
pub(crate) unsafe extern "C" fn memalign(align: usize, size: usize, caller: usize) -> *mut c_void {
    if !NEXT.ready() {
        return early::allocate(size, align.next_power_of_two()).cast();
    }
    let Some(whole) = size.checked_add(SIZE) else { return fail() };
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.memalign(align, whole), caller) }
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
    let Some(whole) = size.checked_add(SIZE) else { return fail() };
    // SAFETY: the next allocator is ready.
    unsafe { adopt(NEXT.aligned_alloc(align, whole), caller) }
}

/// # Safety
/// As C's `posix_memalign`.
pub(crate) unsafe extern "C" fn posix_memalign(
    into: *mut *mut c_void,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    let Some(whole) = size.checked_add(SIZE) else { return libc::ENOMEM };
    // It reports errors by its result and leaves errno and `into` alone.
    let errno = refuse::errno();
    let mut block = null_mut();
    if !NEXT.ready() {
        block = early::allocate(size, align.next_power_of_two()).cast();
    } else {
        // SAFETY: the next allocator is ready; it writes to a variable of ours.
        let result = unsafe { NEXT.posix_memalign(&raw mut block, align, whole) };
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

/// What a program may use of a block: all but the tag.
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
        NEXT.usable(block).saturating_sub(SIZE)
    }
}

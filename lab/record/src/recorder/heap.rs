//! malloc and its family. Each calls the next allocator's function and notes a block that may hold objects.

use crate::format::{self, Heap, header};
use crate::recorder::lock::Lock;
use crate::recorder::next::{NEXT, ready};
use crate::recorder::plan::{self, Block, Plan};
use crate::recorder::{arena, objects, shadow};
use ledgerline_interpose::{early, errno, set_errno};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

ledgerline_interpose::export! {
    malloc(_size: usize) -> *mut c_void, "rsi", "x1", malloc_from;
    calloc(_count: usize, _size: usize) -> *mut c_void, "rdx", "x2", calloc_from;
    realloc(_block: *mut c_void, _size: usize) -> *mut c_void, "rdx", "x2", realloc_from;
    reallocarray(_block: *mut c_void, _count: usize, _size: usize) -> *mut c_void,
        "rcx", "x3", reallocarray_from;
    aligned_alloc(_align: usize, _size: usize) -> *mut c_void, "rdx", "x2", aligned_alloc_from;
    memalign(_align: usize, _size: usize) -> *mut c_void, "rdx", "x2", memalign_from;
    posix_memalign(_into: *mut *mut c_void, _align: usize, _size: usize) -> c_int,
        "rcx", "x3", posix_memalign_from;
}

/// A program's request: a number of elements of a size, from a place in its code.
#[derive(Clone, Copy)]
struct Asked {
    count: usize,
    size: usize,
    /// The requested alignment; 1 if there was none.
    align: usize,
    caller: usize,
}

/// Notes a new block.
#[inline(always)]
fn born(block: *mut c_void, asked: Asked) -> *mut c_void {
    if let Some(plan) = plan::recording()
        && plan.heap != Heap::None as u64
        && !block.is_null()
    {
        note(plan, block as usize, asked);
    }
    block
}

fn note(plan: &Plan, block: usize, asked: Asked) {
    let Asked { count, size, align, caller } = asked;
    let found = plan.block(count, size, align);
    let unasked = matches!(found, Block::Unasked(..));
    if found == Block::Unwanted
        || (unasked && !objects::suspecting())
        || !(plan.sites.is_empty() || plan.sites.iter().any(|site| site.contains(&caller)))
    {
        return;
    }
    let lock = Lock::take();
    let (ty, count, how) = match found {
        Block::Of(ty, count) => (ty, count, 0),
        Block::Rounded(ty) => (ty, 1, format::ROUNDED),
        Block::Ambiguous => {
            if arena::add(header::AMBIGUOUS, 1) == 0 {
                arena::set(header::AMBIGUOUS_SIZE, (count * size) as u64);
                arena::set(header::AMBIGUOUS_ALIGN, align as u64);
            }
            return;
        }
        Block::Unasked(ty, count) => return objects::suspect(plan, block, ty, count, &lock),
        Block::Unwanted => return,
    };
    objects::add(plan, block, ty, count, &lock);
    let within = plan.image.contains(&caller);
    let site = if within { caller.wrapping_sub(plan.bias) as u64 } else { format::FOREIGN };
    objects::note_site(site, ty, how, &lock);
}

/// Forgets the objects in a block that is about to be freed.
#[inline(always)]
fn dies(block: *mut c_void) {
    if let Some(plan) = plan::recording()
        && !block.is_null()
    {
        // SAFETY: the block is the next allocator's, since it is not an early one.
        let end = block as usize + unsafe { NEXT.usable_size(block) };
        if shadow::first(block as usize, end).is_some() {
            objects::remove(plan, block as usize, end, &Lock::take());
        }
    }
}

/// Returns a new block from the next allocator, or an early one until that is found.
#[inline(always)]
fn new_block(asked: Asked, next: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if ready() {
        return born(next(), asked);
    }
    let bytes = asked.count.checked_mul(asked.size);
    let place = bytes.zip(asked.align.checked_next_power_of_two());
    place.map_or(null_mut(), |(bytes, align)| early::allocate(bytes, align))
}

unsafe extern "C" fn malloc_from(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: the caller's contract (R5).
    new_block(Asked { count: 1, size, align: 1, caller }, || unsafe { NEXT.malloc(size) })
}

unsafe extern "C" fn calloc_from(count: usize, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: the caller's contract (R5).
    new_block(Asked { count, size, align: 1, caller }, || unsafe { NEXT.calloc(count, size) })
}

unsafe extern "C" fn realloc_from(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: the caller's contract (R5).
    unsafe { reallocarray_from(block, 1, size, caller) }
}

unsafe extern "C" fn reallocarray_from(
    block: *mut c_void,
    count: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        set_errno(libc::ENOMEM);
        return null_mut();
    };
    if early::owns(block) || !ready() {
        // SAFETY: R5.
        unsafe {
            let new = malloc_from(bytes, caller);
            if !new.is_null() && !block.is_null() {
                let held = bytes.min(early::size(block));
                std::ptr::copy_nonoverlapping::<u8>(block.cast(), new.cast(), held);
            }
            return new;
        }
    }
    // This comes first, since afterwards another thread may have the place. A block that stays because there is no
    // memory is forgotten as well. That is rare enough.
    dies(block);
    // SAFETY: the caller's contract (R5).
    born(unsafe { NEXT.realloc(block, bytes) }, Asked { count, size, align: 1, caller })
}

unsafe extern "C" fn aligned_alloc_from(align: usize, size: usize, caller: usize) -> *mut c_void {
    let asked = Asked { count: 1, size, align, caller };
    // SAFETY: the caller's contract (R5).
    new_block(asked, || unsafe { NEXT.aligned_alloc(align, size) })
}

unsafe extern "C" fn memalign_from(align: usize, size: usize, caller: usize) -> *mut c_void {
    let asked = Asked { count: 1, size, align, caller };
    // SAFETY: the caller's contract (R5).
    new_block(asked, || unsafe { NEXT.memalign(align, size) })
}

unsafe extern "C" fn posix_memalign_from(
    into: *mut *mut c_void,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    if !ready() {
        let errno = errno();
        let align = align.checked_next_power_of_two();
        let block = align.map_or(null_mut(), |align| early::allocate(size, align));
        // This function returns the reason of its failure.
        set_errno(errno);
        // SAFETY: R5.
        unsafe { into.write(block) };
        return if block.is_null() { libc::ENOMEM } else { 0 };
    }
    // SAFETY: the caller's contract (R5); the block was written if the call did not fail.
    unsafe {
        let result = NEXT.posix_memalign(into, align, size);
        if result == 0 {
            born(*into, Asked { count: 1, size, align, caller });
        }
        result
    }
}

/// Implements C's `free`.
///
/// # Safety
/// The same as for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if early::owns(block) || !ready() {
        return;
    }
    dies(block);
    // SAFETY: the caller's contract (R5).
    unsafe { NEXT.free(block) }
}

/// Implements glibc's `malloc_usable_size`.
///
/// # Safety
/// The same as for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if early::owns(block) {
        // SAFETY: the block is an early one.
        return unsafe { early::size(block) };
    }
    // SAFETY: the caller's contract (R5).
    if ready() { unsafe { NEXT.usable_size(block) } } else { 0 }
}

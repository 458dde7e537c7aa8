//! malloc and its family. Each calls the next allocator's function and notes a block that may hold objects.

use crate::format::{self, header};
use crate::lock::Lock;
use crate::next::{self, early};
use crate::plan::{self, Block, Plan};
use crate::{arena, objects, shadow};
use std::ffi::{c_int, c_void};

/// Exports `name` as its body with the return address, which tells who asked, in the next free register.
macro_rules! export {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $register:literal, $body:path;)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", [rsp]"),
                "jmp {body}",
                body = sym $body,
            );
        }
    )*};
}

export! {
    malloc(_size: usize) -> *mut c_void, "rsi", malloc_from;
    calloc(_count: usize, _size: usize) -> *mut c_void, "rdx", calloc_from;
    realloc(_block: *mut c_void, _size: usize) -> *mut c_void, "rdx", realloc_from;
    reallocarray(_block: *mut c_void, _count: usize, _size: usize) -> *mut c_void, "rcx", reallocarray_from;
    aligned_alloc(_align: usize, _size: usize) -> *mut c_void, "rdx", aligned_alloc_from;
    memalign(_align: usize, _size: usize) -> *mut c_void, "rdx", memalign_from;
    posix_memalign(_into: *mut *mut c_void, _align: usize, _size: usize) -> c_int, "rcx", posix_memalign_from;
}

/// What a program asked for: so many elements of a size, from a place in its code.
#[derive(Clone, Copy)]
struct Asked {
    count: usize,
    size: usize,
    /// 1 where it did not say.
    align: usize,
    caller: usize,
}

/// Notes a new block.
#[inline(always)]
fn born(block: *mut c_void, asked: Asked) -> *mut c_void {
    if let Some(plan) = plan::recording()
        && plan.heap != format::heap::NONE
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

/// Forgets what lies in a block that is about to go.
#[inline(always)]
fn dies(block: *mut c_void) {
    if let Some(plan) = plan::recording()
        && !block.is_null()
    {
        // SAFETY: the block is the next allocator's, since it is not an early one.
        let end = block as usize + unsafe { next::usable_size(block) };
        if shadow::first(block as usize, end).is_some() {
            objects::remove(plan, block as usize, end, &Lock::take());
        }
    }
}

unsafe extern "C" fn malloc_from(size: usize, caller: usize) -> *mut c_void {
    if !next::ready() {
        return early::allocate(size, 16);
    }
    // SAFETY: handed on (R5).
    born(unsafe { next::malloc(size) }, Asked { count: 1, size, align: 1, caller })
}

unsafe extern "C" fn calloc_from(count: usize, size: usize, caller: usize) -> *mut c_void {
    if !next::ready() {
        return count
            .checked_mul(size)
            .map_or(std::ptr::null_mut(), |bytes| early::allocate(bytes, 16));
    }
    // SAFETY: handed on (R5).
    born(unsafe { next::calloc(count, size) }, Asked { count, size, align: 1, caller })
}

unsafe extern "C" fn realloc_from(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: handed on (R5).
    unsafe { resize(block, 1, size, caller) }
}

unsafe extern "C" fn reallocarray_from(
    block: *mut c_void,
    count: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    // SAFETY: handed on (R5).
    unsafe { resize(block, count, size, caller) }
}

/// # Safety
/// As C's `realloc`.
unsafe fn resize(block: *mut c_void, count: usize, size: usize, caller: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        // SAFETY: the calling thread's own variable.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return std::ptr::null_mut();
    };
    if early::owns(block) || !next::ready() {
        // SAFETY: R5.
        unsafe {
            let new = malloc_from(bytes, caller);
            if !new.is_null() && !block.is_null() {
                std::ptr::copy_nonoverlapping::<u8>(
                    block.cast(),
                    new.cast(),
                    bytes.min(early::size(block)),
                );
            }
            return new;
        }
    }
    // This comes first, since afterwards another thread may have the place. (A block that stays as it is, because
    // there is no memory, is forgotten: that is rare enough.)
    dies(block);
    // SAFETY: handed on (R5).
    born(unsafe { next::realloc(block, bytes) }, Asked { count, size, align: 1, caller })
}

unsafe extern "C" fn aligned_alloc_from(align: usize, size: usize, caller: usize) -> *mut c_void {
    if !next::ready() {
        return early::allocate(size, align);
    }
    // SAFETY: handed on (R5).
    born(unsafe { next::aligned_alloc(align, size) }, Asked { count: 1, size, align, caller })
}

unsafe extern "C" fn memalign_from(align: usize, size: usize, caller: usize) -> *mut c_void {
    if !next::ready() {
        return early::allocate(size, align);
    }
    // SAFETY: handed on (R5).
    born(unsafe { next::memalign(align, size) }, Asked { count: 1, size, align, caller })
}

unsafe extern "C" fn posix_memalign_from(
    into: *mut *mut c_void,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    if !next::ready() {
        let block = early::allocate(size, align);
        // SAFETY: R5.
        unsafe { into.write(block) };
        return if block.is_null() { libc::ENOMEM } else { 0 };
    }
    // SAFETY: handed on (R5); the block was written where the call did not fail.
    unsafe {
        let result = next::posix_memalign(into, align, size);
        if result == 0 {
            born(*into, Asked { count: 1, size, align, caller });
        }
        result
    }
}

/// C's `free`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if early::owns(block) || !next::ready() {
        return;
    }
    dies(block);
    // SAFETY: handed on (R5).
    unsafe { next::free(block) }
}

/// glibc's `malloc_usable_size`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if early::owns(block) {
        return early::size(block);
    }
    // SAFETY: handed on (R5).
    if next::ready() { unsafe { next::usable_size(block) } } else { 0 }
}

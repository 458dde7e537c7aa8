//! The objects that a program declares itself; `include/ledgerline_record.h` has the interface.

use crate::format::header;
use crate::recorder::lock::Lock;
use crate::recorder::{arena, objects, plan};
use std::ffi::{CStr, c_char, c_void};

/// Notes that `count` values of a type lie at an address, and replaces earlier notes of the place.
///
/// # Safety
/// The name ends in zero. The address is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_record_array(
    start: *const c_void,
    count: usize,
    name: *const c_char,
) {
    let Some(plan) = plan::recording() else { return };
    if start.is_null() || name.is_null() {
        return;
    }
    // SAFETY: R5.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(ty) = plan.named(name.to_bytes()) else {
        arena::add(header::UNKNOWN_NAMES, 1);
        return;
    };
    let Some(end) = count
        .checked_mul(plan.types[ty].size)
        .and_then(|bytes| bytes.checked_add(start as usize))
        .filter(|&end| end <= 1 << 47)
    else {
        return;
    };
    let lock = Lock::take();
    objects::supersede(plan, start as usize, end, &lock);
    objects::add(plan, start as usize, ty, count, &lock);
}

/// Notes that a value of a type lies at an address.
///
/// # Safety
/// The same as for [`ledgerline_record_array`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_record_object(start: *const c_void, name: *const c_char) {
    // SAFETY: the caller's contract is that of the callee.
    unsafe { ledgerline_record_array(start, 1, name) }
}

/// Forgets the objects in `size` bytes, which are gone or used for something else now.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_record_forget(start: *const c_void, size: usize) {
    if let Some(plan) = plan::recording()
        && let Some(end) = (start as usize).checked_add(size)
    {
        objects::supersede(plan, start as usize, end, &Lock::take());
    }
}

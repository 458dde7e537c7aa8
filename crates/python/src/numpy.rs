//! numpy's data: the functions of its default handler are exchanged in place, so every thread has the new ones. A handler that is
//! set holds for one context.
//!
//! N1: the handler is a static of numpy's, and numpy is never unloaded.

use crate::hooks;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

type Malloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);

/// NEP 49: `PyDataMemAllocator`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocator {
    ctx: *mut c_void,
    malloc: Malloc,
    calloc: Calloc,
    realloc: Realloc,
    free: Free,
}

/// NEP 49: `PyDataMem_Handler`.
#[repr(C)]
struct Handler {
    name: [u8; 127],
    version: u8,
    allocator: Allocator,
}

/// The place of `PyDataMem_DefaultHandler` in numpy's table of functions.
const DEFAULT_HANDLER: usize = 306;
const HANDLER_NAME: &CStr = c"mem_handler";

struct Before(UnsafeCell<Option<Allocator>>);

// SAFETY: written once, with the GIL, before the functions below are called.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(None));

fn before() -> &'static Allocator {
    // SAFETY: as above.
    unsafe { (*BEFORE.0.get()).as_ref().expect("it was noted first") }
}

/// Exchanges the functions, once a process. `module` is numpy's `_multiarray_umath`.
pub fn hook(module: &Bound<'_, PyAny>) -> PyResult<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let table = module.getattr("_ARRAY_API")?;
    // SAFETY: numpy's table of functions, which stays (N1); numpy 1.22 and later have that entry, a place with a capsule. Versions
    // of the handler beyond 1 are refused.
    unsafe {
        let table =
            ffi::PyCapsule_GetPointer(table.as_ptr(), std::ptr::null()).cast::<*mut c_void>();
        if table.is_null() {
            return Err(PyErr::fetch(module.py()));
        }
        let capsule = *(*table.add(DEFAULT_HANDLER)).cast::<*mut ffi::PyObject>();
        let handler = ffi::PyCapsule_GetPointer(capsule, HANDLER_NAME.as_ptr()).cast::<Handler>();
        if handler.is_null() {
            return Err(PyErr::fetch(module.py()));
        }
        if (*handler).version != 1 {
            let why = "numpy has a memory handler of a version that ledgerline does not know";
            return Err(PyRuntimeError::new_err(why));
        }
        DONE.store(true, Ordering::Relaxed);
        *BEFORE.0.get() = Some((*handler).allocator);
        (*handler).allocator = Allocator {
            ctx: (*handler).allocator.ctx,
            malloc: data_malloc,
            calloc: data_calloc,
            realloc: data_realloc,
            free: data_free,
        };
    }
    Ok(())
}

// numpy calls these with the GIL: its own functions keep a list of free blocks without another lock.

unsafe extern "C" fn data_malloc(ctx: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: passed on as it came, here and below.
    hooks::make(size, || unsafe { (before().malloc)(ctx, size) })
}

unsafe extern "C" fn data_calloc(ctx: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    hooks::make(count.saturating_mul(size), || unsafe { (before().calloc)(ctx, count, size) })
}

unsafe extern "C" fn data_realloc(
    ctx: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as above.
    hooks::resize(block, size, || unsafe { (before().realloc)(ctx, block, size) })
}

unsafe extern "C" fn data_free(ctx: *mut c_void, block: *mut c_void, size: usize) {
    hooks::release(block);
    // SAFETY: as above.
    unsafe { (before().free)(ctx, block, size) }
}

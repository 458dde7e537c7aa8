//! The hooks of Python's allocators.
//!
//! | domain   | called                   | what is charged                                               |
//! |----------|--------------------------|---------------------------------------------------------------|
//! | obj, mem | with the GIL             | every block, to the account of the current group              |
//! | raw      | with the GIL or without  | blocks above 512 bytes that no hook of obj or mem asks for    |
//!
//! pymalloc gets blocks above 512 bytes, its arenas' lists and the nodes of its tree of addresses by way of the raw domain. While a
//! hook calls it, the raw hook passes on ([`seen::passing`]). So each block is charged once, and pymalloc's own needs never.
//!
//! H1: a block is freed and resized through hooks of the three domains, with the same label. One that was made before they
//! were there has no label, and never belongs to an account.

use crate::account::{self, Account};
use crate::limit::{self, Taken};
use crate::seen;
use crate::spare;
use crate::standing::SMALL_MOST;
use crate::state::State;
use ledgerline::alloc::block::{self, Labelled, Owner};
use ledgerline::current;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyMemAllocatorDomain, PyMemAllocatorEx};
use pyo3::prelude::*;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Labels stand 16 bytes apart, so blocks do, too. (pymalloc and every malloc have no smaller ones.)
const SIZE_LEAST: usize = 16;

/// The allocator beneath the hooks of a domain. H2: written once, before the hooks are there.
struct Beneath(UnsafeCell<MaybeUninit<PyMemAllocatorEx>>);

// SAFETY: H2.
unsafe impl Sync for Beneath {}

impl Beneath {
    const fn new() -> Beneath {
        Beneath(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

static RAW: Beneath = Beneath::new();
static MEM: Beneath = Beneath::new();
static OBJ: Beneath = Beneath::new();

macro_rules! call {
    ($beneath:expr, $function:ident $(, $argument:expr)*) => {
        ($beneath.$function.expect("every allocator has all four functions"))($beneath.ctx $(, $argument)*)
    };
}

/// Sets the hooks, once a process.
pub fn install(py: Python<'_>) -> PyResult<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let traces = py.import("_tracemalloc")?.call_method0("is_tracing")?;
    if traces.is_truthy()? {
        return Err(PyRuntimeError::new_err(
            "tracemalloc is on, and would take ledgerline's hooks away when it stops: start it once a group was entered",
        ));
    }
    // The GIL is held, so no other thread runs meanwhile.
    DONE.store(true, Ordering::Relaxed);
    let domains = [
        (PyMemAllocatorDomain::PYMEM_DOMAIN_RAW, &RAW),
        (PyMemAllocatorDomain::PYMEM_DOMAIN_MEM, &MEM),
        (PyMemAllocatorDomain::PYMEM_DOMAIN_OBJ, &OBJ),
    ];
    for (number, (domain, beneath)) in domains.into_iter().enumerate() {
        let raw = number == 0;
        let ctx = beneath.0.get().cast::<PyMemAllocatorEx>();
        let mut hooks = PyMemAllocatorEx {
            ctx: ctx.cast(),
            malloc: Some(if raw { raw_malloc } else { malloc }),
            calloc: Some(if raw { raw_calloc } else { calloc }),
            realloc: Some(if raw { raw_realloc } else { realloc }),
            free: Some(if raw { raw_free } else { free }),
        };
        // SAFETY: the GIL is held; `ctx` is this domain's, which no thread reads yet (H2).
        unsafe {
            ffi::PyMem_GetAllocator(domain, ctx);
            ffi::PyMem_SetAllocator(domain, &raw mut hooks);
        }
    }
    // SAFETY: written above (H2).
    let [mem, obj] = [&MEM, &OBJ].map(|it| unsafe { it.0.get().cast::<PyMemAllocatorEx>().read() });
    let function = |it: &PyMemAllocatorEx| {
        (it.malloc.map(|it| it as usize), it.free.map(|it| it as usize), it.ctx)
    };
    if function(&mem) == function(&obj) {
        // SAFETY: a spare block is one of the allocator beneath (H2, X1).
        spare::begin(|block| unsafe {
            call!(beneath(OBJ.0.get().cast()), free, block.cast());
        });
    }
    Ok(())
}

/// Whether a block is charged. Another module may have put back what it had found before the hooks. The caller has made a group
/// the current one.
#[cold]
pub fn are_beneath() -> bool {
    // SAFETY: the GIL is held; what is made is freed.
    unsafe {
        let block = ffi::PyObject_Malloc(64);
        let Some(place) = NonNull::new(block.cast::<u8>()) else { return true };
        let charged = block::labelled(place).is_some();
        ffi::PyObject_Free(block);
        charged
    }
}

/// Whether Python calls the hooks, and no others that another module set.
pub fn are_on_top() -> bool {
    let mut found = MaybeUninit::<PyMemAllocatorEx>::uninit();
    // SAFETY: the GIL is held; the call fills it in.
    let found = unsafe {
        ffi::PyMem_GetAllocator(PyMemAllocatorDomain::PYMEM_DOMAIN_OBJ, found.as_mut_ptr());
        found.assume_init()
    };
    found.ctx == OBJ.0.get().cast()
}

/// The allocator beneath.
///
/// # Safety
/// `ctx` is that of a hook (H2).
#[inline(always)]
unsafe fn beneath<'b>(ctx: *mut c_void) -> &'b PyMemAllocatorEx {
    // SAFETY: as the caller says.
    unsafe { &*ctx.cast::<PyMemAllocatorEx>() }
}

/// The running thread, if it may be charged under the GIL that guards accounts.
#[inline(always)]
fn running() -> Option<State> {
    State::running().filter(|&state| seen::is_main(state))
}

/// Makes a block under the GIL, and charges it.
#[inline(always)]
pub fn make(size: usize, get: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let Some(state) = running() else { return get() };
    let Some(account) = seen::account(state) else { return seen::passing(get) };
    let units = size.max(1);
    let payer = match limit::take(account, units as u64) {
        Taken::From(payer) => payer,
        Taken::Nobody => return seen::passing(get),
        Taken::Refused => return null_mut(),
    };
    let block = seen::passing(get);
    if !label(payer, block, units) {
        payer.put(units as u64);
    }
    block
}

/// Labels a block; `false` where that cannot be: it is null, or there is no memory for the label.
#[inline(always)]
fn label(payer: &Account, block: *mut c_void, units: usize) -> bool {
    let (Some(block), Some(owner)) = (NonNull::new(block.cast::<u8>()), payer.owner()) else {
        return false;
    };
    // A foreign allocator's block may be aligned to less.
    block.addr().get().is_multiple_of(SIZE_LEAST) && owner.label(block, units)
}

/// Credits a block's owner under the GIL, before the block is freed.
#[inline(always)]
pub fn release(block: *mut c_void) {
    if let Some(block) = NonNull::new(block.cast::<u8>())
        && let Some(Labelled { number, size, .. }) = block::unlabel(block)
    {
        account::at(number).put(size as u64);
    }
}

/// Resizes a block under the GIL. Its owner pays for what it grows by.
#[inline(always)]
pub fn resize(old: *mut c_void, size: usize, get: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let Some(old) = NonNull::new(old.cast::<u8>()) else { return make(size, get) };
    let Some(held) = block::labelled(old) else {
        return if running().is_some() { seen::passing(get) } else { get() };
    };
    resize_held(old, held, size.max(1), get)
}

fn resize_held(
    old: NonNull<u8>,
    held: Labelled,
    new: usize,
    get: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let account = account::at(held.number);
    let (more, less) = (new.saturating_sub(held.size), held.size.saturating_sub(new));
    let payer = if more == 0 { Taken::From(account) } else { limit::take(account, more as u64) };
    let payer = match payer {
        Taken::From(payer) => payer,
        Taken::Refused => return null_mut(),
        Taken::Nobody => {
            // All groups above ended, or this is a child that inherited it.
            release(old.as_ptr().cast());
            return seen::passing(get);
        }
    };
    // An ancestor takes over the whole block if the owner ended.
    let moves = !std::ptr::eq(payer, account);
    let takes_over = moves && payer.take_over(held.size as u64);
    // Before the call: another thread may get the old place.
    let _held = block::unlabel(old);
    let block = seen::passing(get);
    if block.is_null() {
        let _labelled = held.owner().label(old, held.size);
        payer.put((more + if takes_over { held.size } else { 0 }) as u64);
        return block;
    }
    if moves {
        account.put(held.size as u64);
    }
    let charged = if moves && !takes_over { more } else { new + less };
    let labelled = label(payer, block, if moves && !takes_over { more } else { new });
    payer.put(if labelled { less } else { charged } as u64);
    block
}

/// Makes a block of obj or mem: a small one of the group's spare ones, if it has one.
#[inline(always)]
fn make_python(size: usize, get: impl FnOnce() -> *mut c_void) -> (*mut c_void, bool) {
    let units = size.max(1);
    if units <= spare::MOST
        && let Some(state) = running()
        && let Some(account) = seen::account(state)
    {
        let payer = match limit::take(account, units as u64) {
            Taken::From(payer) => payer,
            Taken::Nobody => return (seen::passing(get), false),
            Taken::Refused => return (null_mut(), false),
        };
        let spare = payer.spare.pop(units);
        let block = match spare {
            Some(block) => block.as_ptr().cast(),
            None => seen::passing(get),
        };
        if !label(payer, block, units) {
            payer.put(units as u64);
        }
        return (block, spare.is_some());
    }
    (make(size, get), false)
}

extern "C" fn malloc(ctx: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: H2; the call is passed on, with at least what was asked for.
    make_python(size, || unsafe { call!(beneath(ctx), malloc, spare::whole(size)) }).0
}

extern "C" fn calloc(ctx: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // (Python has looked that this does not overflow; other callers may not have.)
    let bytes = count.saturating_mul(size);
    let (count, size) = if bytes <= spare::MOST { (1, spare::whole(bytes)) } else { (count, size) };
    // SAFETY: as above.
    let (block, is_spare) =
        make_python(bytes, || unsafe { call!(beneath(ctx), calloc, count, size) });
    if is_spare {
        // SAFETY: a spare block has so many bytes, at most `spare::MOST`.
        unsafe { block.cast::<u8>().write_bytes(0, bytes) };
    }
    block
}

extern "C" fn realloc(ctx: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as above; the block is one of this domain's (H1).
    resize(block, size, || unsafe { call!(beneath(ctx), realloc, block, spare::whole(size)) })
}

extern "C" fn free(ctx: *mut c_void, block: *mut c_void) {
    if let Some(place) = NonNull::new(block.cast::<u8>())
        && let Some(Labelled { number, size, .. }) = block::unlabel(place)
    {
        let account = account::at(number);
        account.put(size as u64);
        if size <= spare::MOST && !account.is_ended() && account.spare.push(size, place) {
            return;
        }
    }
    // SAFETY: as above.
    unsafe { call!(beneath(ctx), free, block) }
}

/// Whether the raw hook is to charge under the GIL, without it, or not at all.
enum How {
    UnderGil,
    Alone,
    Pass,
}

fn how() -> How {
    match State::mine() {
        Some(state) if !seen::is_main(state) => How::Pass,
        Some(_) if seen::is_passing() => How::Pass,
        Some(_) => How::UnderGil,
        None => How::Alone,
    }
}

/// Makes a block without the GIL. It may go over a limit: accounts may have room, but no code can look.
fn make_alone(size: usize, get: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let block = get();
    if let Some(place) = NonNull::new(block.cast::<u8>())
        && let Some(group) = current::group()
        && let Some(owner) = Owner::of(group)
        && group.charge_units(size as u64).is_ok()
        && !owner.label(place, size)
    {
        group.uncharge_units(size as u64);
    }
    block
}

/// Credits a block's owner without the GIL.
fn release_alone(block: NonNull<u8>) {
    if let Some(held) = block::unlabel(block)
        && let Some(group) = held.owner().group()
    {
        group.uncharge_units(held.size as u64);
    }
}

fn raw_make(size: usize, get: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if size as u64 <= SMALL_MOST {
        return get();
    }
    match how() {
        How::Pass => get(),
        How::UnderGil => make(size, get),
        How::Alone => make_alone(size, get),
    }
}

extern "C" fn raw_malloc(ctx: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as above.
    raw_make(size, || unsafe { call!(beneath(ctx), malloc, size.max(SIZE_LEAST)) })
}

extern "C" fn raw_calloc(ctx: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    let (count, size) = if bytes < SIZE_LEAST { (1, SIZE_LEAST) } else { (count, size) };
    // SAFETY: as above.
    raw_make(bytes, || unsafe { call!(beneath(ctx), calloc, count, size) })
}

extern "C" fn raw_realloc(ctx: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as above.
    let get = || unsafe { call!(beneath(ctx), realloc, block, size.max(SIZE_LEAST)) };
    let Some(old) = NonNull::new(block.cast::<u8>()) else { return raw_make(size, get) };
    let Some(held) = block::labelled(old) else { return get() };
    match how() {
        How::UnderGil => resize_held(old, held, size.max(1), get),
        // A hook above has taken the label of a block that it resizes.
        How::Pass | How::Alone => resize_alone(old, held, size.max(1), get),
    }
}

/// Resizes a block without the GIL.
fn resize_alone(
    old: NonNull<u8>,
    held: Labelled,
    new: usize,
    get: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let _held = block::unlabel(old);
    let block = get();
    let owner = held.owner();
    let Some(place) = NonNull::new(block.cast::<u8>()) else {
        let _labelled = owner.label(old, held.size);
        return block;
    };
    if let Some(group) = owner.group() {
        group.uncharge_units(held.size as u64);
        // If the group ended, the block belongs to no account.
        if group.charge_units(new as u64).is_ok() && !owner.label(place, new) {
            group.uncharge_units(new as u64);
        }
    }
    block
}

extern "C" fn raw_free(ctx: *mut c_void, block: *mut c_void) {
    if let Some(place) = NonNull::new(block.cast::<u8>())
        && block::labelled(place).is_some()
    {
        match how() {
            How::UnderGil => release(block),
            How::Pass | How::Alone => release_alone(place),
        }
    }
    // SAFETY: as above.
    unsafe { call!(beneath(ctx), free, block) }
}

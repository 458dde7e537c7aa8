//! C++'s `operator new` and `operator delete`.
//!
//! libstdc++'s and libc++'s call malloc and free, which count: all that happens here is that `new` notes who called
//! it. Allocators such as jemalloc, tcmalloc and mimalloc bring operators of their own, which call neither. Then
//! the block is charged here, and returned here:
//!
//! ```text
//! operator new(n):      the next one is the allocator's?   p = next.new(n); charge(my row, size(p))
//!                         a limit says no: next.delete(p); call the new handler, or throw bad_alloc
//!                       otherwise: note the caller, next.new(n) (and malloc counts)
//! operator delete(p):   the next one is the allocator's?   uncharge(the block's owner); next.delete(p)
//!                       otherwise: next.delete(p) (and free counts)
//! ```
//!
//! The first call finds out which it is, as its caller sees it: an object that was loaded without `RTLD_GLOBAL` has a C++ library that
//! nobody else sees. From then on each operator is one jump. Where no library has the operator, `malloc` and `free` serve.

use crate::expected::Expected;
use crate::next::{NEXT, WINDOW};
use crate::thread::{self, Busy, Word};
use crate::{alloc, objects};
use ledgerline_interpose::symbol;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Any `operator new`: at most three arguments, in registers.
type New = unsafe extern "C-unwind" fn(usize, usize, usize) -> *mut c_void;
/// Any `operator delete`, likewise.
type Delete = unsafe extern "C" fn(*mut c_void, usize, usize);

/// Finds out at an operator's first call where it goes on from then: to `counted` if the next one is an allocator's,
/// and otherwise to that, as the code at `caller` sees it. Returns null where no library has such an operator: then this
/// call does as libstdc++'s operator does, and the next call asks again, for its own caller.
fn resolve(
    name: &CStr,
    caller: usize,
    real: &AtomicUsize,
    next: &AtomicPtr<()>,
    counted: *const (),
) -> *mut () {
    let found = objects::find_for(name, caller);
    // libstdc++'s operators jump to each other, so the caller may seem to be this library, which finds itself.
    if found == 0 || objects::is_own(found) {
        return std::ptr::null_mut();
    }
    real.store(found, Ordering::Relaxed);
    let goes_on = if objects::is_allocators(found) { counted.cast_mut() } else { found as *mut () };
    // Release: who is sent to `counted` sees where the real one is.
    next.store(goes_on, Ordering::Release);
    goes_on
}

/// What a `new` that is not granted does: the program's handler makes room and it is tried again, or there is none.
fn make_room(throws: bool, caller: usize) -> bool {
    if !throws {
        return false;
    }
    let handler = objects::find_for(c"_ZSt15get_new_handlerv", caller);
    if handler != 0 {
        // SAFETY: libstdc++'s function of that name: it takes nothing and returns a function, or null.
        let handler = unsafe {
            let get: extern "C" fn() -> Option<extern "C-unwind" fn()> =
                std::mem::transmute(handler);
            get()
        };
        if let Some(handler) = handler {
            handler();
            return true;
        }
    }
    let throw = objects::find_for(c"_ZSt17__throw_bad_allocv", caller);
    if throw != 0 {
        // SAFETY: libstdc++'s function of that name, which takes nothing and does not return.
        unsafe {
            let throw: extern "C-unwind" fn() -> ! = std::mem::transmute(throw);
            throw();
        }
    }
    // Without a C++ library nothing can be thrown: the program gets a null pointer.
    false
}

/// Does what libstdc++'s `operator new` does, for a program in which no library has one: `malloc`, which counts. `align` is 0 for an
/// operator that takes none.
///
/// # Safety
///
/// As the C++ operator.
unsafe fn plain_new(size: usize, align: usize, throws: bool, caller: usize) -> *mut c_void {
    let size = size.max(1);
    loop {
        let block = if align == 0 {
            // SAFETY: malloc takes any size.
            unsafe { libc::malloc(size) }
        } else {
            // SAFETY: C++ passes a power of two; a size that would overflow is refused as any that is too large.
            unsafe {
                libc::aligned_alloc(
                    align,
                    size.checked_next_multiple_of(align).unwrap_or(usize::MAX),
                )
            }
        };
        if !block.is_null() || !make_room(throws, caller) {
            return block;
        }
    }
}

/// Calls the allocator's `operator new` and charges the block.
///
/// # Safety
/// `real` is such an operator, with these arguments.
unsafe fn counted_new(real: usize, a: usize, b: usize, c: usize, throws: bool) -> *mut c_void {
    let caller = thread::get(Word::Caller);
    loop {
        thread::set(Word::Caller, 0);
        let block = {
            // Some call malloc or one of its family themselves, which must not count as well. (An exception drops
            // this, too.)
            let _busy = Busy::enter();
            // SAFETY: the caller's word; a block may be larger than was asked for.
            unsafe {
                let real: New = std::mem::transmute(real);
                real(a.max(WINDOW), b, c)
            }
        };
        if block.is_null() {
            return block;
        }
        // SAFETY: fresh from the allocator; one that is refused is given back by `free`, which takes what its
        // operators made.
        let block = unsafe { alloc::adopt(block, caller, Expected::NOTHING) };
        if !block.is_null() || !make_room(throws, caller) {
            return block;
        }
    }
}

/// Returns the units of a block that the allocator's `operator delete` is about to free.
fn uncounted(block: *mut c_void) {
    if !block.is_null() && NEXT.ready() {
        // SAFETY: a block of the allocator's.
        unsafe { alloc::forget(block) };
    }
}

/// Exports an `operator new`. A jump and not a call where the next one calls malloc, so that an exception unwinds as
/// if this were not here.
macro_rules! export_new {
    ($($symbol:literal $name:ident $throws:literal $aligned:literal;)*) => {$(
        mod $name {
            use super::*;

            const NAME: &CStr = symbol(concat!($symbol, "\0"));
            static NEXT: AtomicPtr<()> = AtomicPtr::new(first as *const () as *mut ());
            static REAL: AtomicUsize = AtomicUsize::new(0);

            /// Runs at the first call: finds out whose the next operator is.
            unsafe extern "C-unwind" fn first(a: usize, b: usize, c: usize) -> *mut c_void {
                // The linker allocates during the look-up for itself.
                let caller = thread::get(Word::Caller);
                thread::set(Word::Caller, 0);
                let goes_on = resolve(NAME, caller, &REAL, &NEXT, counted as *const ());
                thread::set(Word::Caller, caller);
                if goes_on.is_null() {
                    // SAFETY: the arguments of such an operator.
                    return unsafe { plain_new(a, if $aligned { b } else { 0 }, $throws, caller) };
                }
                // SAFETY: an operator new with at most three arguments in registers.
                unsafe {
                    let goes_on: New = std::mem::transmute(goes_on);
                    goes_on(a, b, c)
                }
            }

            unsafe extern "C-unwind" fn counted(a: usize, b: usize, c: usize) -> *mut c_void {
                // SAFETY: `first` stored it.
                unsafe { counted_new(REAL.load(Ordering::Relaxed), a, b, c, $throws) }
            }

            #[doc = concat!("C++'s `", $symbol, "`.")]
            ///
            /// # Safety
            /// As the C++ operator.
            #[unsafe(naked)]
            #[unsafe(export_name = $symbol)]
            pub unsafe extern "C" fn operator() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!(
                    "mov rax, qword ptr [rip + ledgerline_thread_words@GOTTPOFF]",
                    // One operator new calls another (that of arrays calls the plain one): the first one counts.
                    "cmp qword ptr fs:[rax + {caller}], 0",
                    "jne 2f",
                    "mov r11, [rsp]",
                    "mov qword ptr fs:[rax + {caller}], r11",
                    "2:",
                    "jmp qword ptr [rip + {next}]",
                    caller = const Word::Caller as usize,
                    next = sym NEXT,
                );
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    "adrp x16, :gottprel:ledgerline_thread_words",
                    "ldr x16, [x16, #:gottprel_lo12:ledgerline_thread_words]",
                    "mrs x17, tpidr_el0",
                    "add x16, x16, x17",
                    "ldr x17, [x16, #{caller}]",
                    "cbnz x17, 2f",
                    "str x30, [x16, #{caller}]",
                    "2:",
                    "adrp x16, {next}",
                    "add x16, x16, :lo12:{next}",
                    "ldar x16, [x16]",
                    "br x16",
                    caller = const Word::Caller as usize,
                    next = sym NEXT,
                );
            }
        }
    )*};
}

export_new! {
    "_Znwm" new true false;
    "_Znam" new_array true false;
    "_ZnwmRKSt9nothrow_t" new_nothrow false false;
    "_ZnamRKSt9nothrow_t" new_array_nothrow false false;
    "_ZnwmSt11align_val_t" new_aligned true true;
    "_ZnamSt11align_val_t" new_array_aligned true true;
    "_ZnwmSt11align_val_tRKSt9nothrow_t" new_aligned_nothrow false true;
    "_ZnamSt11align_val_tRKSt9nothrow_t" new_array_aligned_nothrow false true;
}

/// Exports an `operator delete`.
macro_rules! export_delete {
    ($($symbol:literal $name:ident $sized:literal;)*) => {$(
        mod $name {
            use super::*;

            const NAME: &CStr = symbol(concat!($symbol, "\0"));
            static NEXT: AtomicPtr<()> = AtomicPtr::new(first as *const () as *mut ());
            static REAL: AtomicUsize = AtomicUsize::new(0);

            /// Runs at the first call: asks with the address that the operator returns to, in the register of a fourth argument.
            #[unsafe(naked)]
            unsafe extern "C" fn first() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!("mov rcx, [rsp]", "jmp {first}", first = sym first_of);
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!("mov x3, x30", "b {first}", first = sym first_of);
            }

            /// Finds out whose the next operator is, as the code at `caller` sees it.
            unsafe extern "C" fn first_of(block: *mut c_void, b: usize, c: usize, caller: usize) {
                let goes_on = resolve(NAME, caller, &REAL, &NEXT, counted as *const ());
                if goes_on.is_null() {
                    // SAFETY: a block of malloc's, since no library has an operator that makes others.
                    return unsafe { libc::free(block) };
                }
                // SAFETY: an operator delete with at most three arguments in registers.
                unsafe {
                    let goes_on: Delete = std::mem::transmute(goes_on);
                    goes_on(block, b, c);
                }
            }

            unsafe extern "C" fn counted(block: *mut c_void, b: usize, c: usize) {
                uncounted(block);
                // `new` asked for no less, and an allocator believes what it is told.
                let b = if $sized { b.max(WINDOW) } else { b };
                // Some call free themselves, which must not return the units again.
                let _busy = Busy::enter();
                // SAFETY: `first` stored it; such an operator delete.
                unsafe {
                    let real: Delete = std::mem::transmute(REAL.load(Ordering::Relaxed));
                    real(block, b, c);
                }
            }

            #[doc = concat!("C++'s `", $symbol, "`.")]
            ///
            /// # Safety
            /// As the C++ operator.
            #[unsafe(naked)]
            #[unsafe(export_name = $symbol)]
            pub unsafe extern "C" fn operator() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!("jmp qword ptr [rip + {next}]", next = sym NEXT);
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    "adrp x16, {next}",
                    "add x16, x16, :lo12:{next}",
                    "ldar x16, [x16]",
                    "br x16",
                    next = sym NEXT,
                );
            }
        }
    )*};
}

export_delete! {
    "_ZdlPv" delete false;
    "_ZdaPv" delete_array false;
    "_ZdlPvm" delete_sized true;
    "_ZdaPvm" delete_array_sized true;
    "_ZdlPvRKSt9nothrow_t" delete_nothrow false;
    "_ZdaPvRKSt9nothrow_t" delete_array_nothrow false;
    "_ZdlPvSt11align_val_t" delete_aligned false;
    "_ZdaPvSt11align_val_t" delete_array_aligned false;
    "_ZdlPvmSt11align_val_t" delete_sized_aligned true;
    "_ZdaPvmSt11align_val_t" delete_array_sized_aligned true;
    "_ZdlPvSt11align_val_tRKSt9nothrow_t" delete_aligned_nothrow false;
    "_ZdaPvSt11align_val_tRKSt9nothrow_t" delete_array_aligned_nothrow false;
}

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
//! Which it is is found out at the first call; from then on each operator is one jump.

use crate::expected::Expected;
use crate::next::{NEXT, WINDOW};
use crate::thread::{self, Busy, Word};
use crate::{alloc, objects, say};
use ledgerline_interpose::{find, symbol};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Any `operator new`: at most three arguments, in registers.
type New = unsafe extern "C-unwind" fn(usize, usize, usize) -> *mut c_void;
/// Any `operator delete`, likewise.
type Delete = unsafe extern "C" fn(*mut c_void, usize, usize);

/// The next operator of a name, as the code at `caller` sees it.
fn next_of(name: &CStr, caller: usize) -> usize {
    let real = objects::find_for(name, caller);
    if real == 0 {
        // Nobody who calls such an operator runs without a library that has it.
        say::say(&[b"no ", name.to_bytes(), b" behind this library"]);
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
    real
}

/// Finds out at an operator's first call where it goes on from then: to `counted` if the next one is an allocator's,
/// and otherwise to that.
fn resolve(
    name: &CStr,
    caller: usize,
    real: &AtomicUsize,
    next: &AtomicPtr<()>,
    counted: *const (),
) -> *mut () {
    let found = next_of(name, caller);
    real.store(found, Ordering::Relaxed);
    let goes_on = if objects::is_allocators(found) { counted.cast_mut() } else { found as *mut () };
    // Release: who is sent to `counted` sees where the real one is.
    next.store(goes_on, Ordering::Release);
    goes_on
}

/// What a `new` that is not granted does: the program's handler makes room and it is tried again, or there is none.
fn make_room(throws: bool) -> bool {
    if !throws {
        return false;
    }
    let handler = find(c"_ZSt15get_new_handlerv");
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
    let throw = find(c"_ZSt17__throw_bad_allocv");
    if throw != 0 {
        // SAFETY: libstdc++'s function of that name, which takes nothing and does not return.
        unsafe {
            let throw: extern "C-unwind" fn() -> ! = std::mem::transmute(throw);
            throw();
        }
    }
    // SAFETY: ends the process, as an exception that nobody can throw would.
    unsafe { libc::abort() }
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
        if !block.is_null() || !make_room(throws) {
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
    ($($symbol:literal $name:ident $throws:literal;)*) => {$(
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
    "_Znwm" new true;
    "_Znam" new_array true;
    "_ZnwmRKSt9nothrow_t" new_nothrow false;
    "_ZnamRKSt9nothrow_t" new_array_nothrow false;
    "_ZnwmSt11align_val_t" new_aligned true;
    "_ZnamSt11align_val_t" new_array_aligned true;
    "_ZnwmSt11align_val_tRKSt9nothrow_t" new_aligned_nothrow false;
    "_ZnamSt11align_val_tRKSt9nothrow_t" new_array_aligned_nothrow false;
}

/// Exports an `operator delete`.
macro_rules! export_delete {
    ($($symbol:literal $name:ident $sized:literal;)*) => {$(
        mod $name {
            use super::*;

            const NAME: &CStr = symbol(concat!($symbol, "\0"));
            static NEXT: AtomicPtr<()> = AtomicPtr::new(first as *const () as *mut ());
            static REAL: AtomicUsize = AtomicUsize::new(0);

            /// Runs at the first call: finds out whose the next operator is.
            unsafe extern "C" fn first(block: *mut c_void, b: usize, c: usize) {
                let goes_on = resolve(NAME, 0, &REAL, &NEXT, counted as *const ());
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

//! Functions that differ between C libraries. Built for glibc, this library serves programs for musl too (x86-64).
//!
//! musl's loader treats glibc's `libc.so.6` as itself, and ignores the versions of symbols. If it lacks a single
//! function of a library, it refuses the library and the program. So the two functions that it lacks have stand-ins
//! that only this library sees, and `build.rs` keeps glibc's loader from being requested by its name. A build for musl,
//! without any glibc, has the same stand-ins: a compiler for glibc may have contributed the unwinder.
//!
//! | function            | user                        | with musl                                   |
//! |---------------------|-----------------------------|---------------------------------------------|
//! | `__register_atfork` | glibc's `pthread_atfork`    | musl's `pthread_atfork`                     |
//! | `_dl_find_object`   | gcc's unwinder              | the same, from `dl_iterate_phdr`'s data     |
//!
//! Names that end in `64`, like `open64`, are musl's own up to 1.2.3. Later its loader takes the name without the
//! suffix for programs that were linked against glibc.
//!
//! musl's loader binds all functions at the start, so `tests/main/musl.rs` fails if another one is missing. All other
//! functions are C's, POSIX's and Linux's: on x86-64 the two libraries agree on the types that this library passes to
//! them, and on the constants that it uses.

use crate::library::Found;
use crate::objects::with_object;
use ledgerline_interpose::find;
use std::arch::{asm, global_asm};
use std::ffi::{c_int, c_void};

type Handler = Option<unsafe extern "C" fn()>;

// Hidden, so that the program and its libraries keep the C library's.
global_asm!(
    ".weak __register_atfork",
    ".pushsection .text.ledgerline_libcs, \"ax\", @progbits",
    ".globl pthread_atfork",
    ".hidden pthread_atfork",
    ".type pthread_atfork, @function",
    "pthread_atfork:",
    "jmp {atfork}",
    ".size pthread_atfork, . - pthread_atfork",
    ".globl _dl_find_object",
    ".hidden _dl_find_object",
    ".type _dl_find_object, @function",
    "_dl_find_object:",
    "jmp {find_object}",
    ".size _dl_find_object, . - _dl_find_object",
    ".popsection",
    atfork = sym atfork,
    find_object = sym find_object,
);

/// Returns the address of glibc's `__register_atfork`; zero if the C library has none.
fn register_atfork() -> usize {
    let address;
    // SAFETY: reads this library's own entry of the global offset table.
    unsafe {
        asm!(
            "mov {address}, qword ptr [rip + __register_atfork@GOTPCREL]",
            address = out(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
    address
}

unsafe extern "C" fn atfork(before: Handler, parent: Handler, child: Handler) -> c_int {
    type OfMusl = unsafe extern "C" fn(Handler, Handler, Handler) -> c_int;
    type OfGlibc = unsafe extern "C" fn(Handler, Handler, Handler, *const c_void) -> c_int;
    let of_glibc = register_atfork();
    if of_glibc != 0 {
        // SAFETY: glibc's function of this type. The last argument names the library that the handlers are removed
        // with. This one stays.
        return unsafe {
            let register: OfGlibc = std::mem::transmute(of_glibc);
            register(before, parent, child, std::ptr::null())
        };
    }
    match find(c"pthread_atfork") {
        0 => libc::ENOSYS,
        // SAFETY: the C library's function of this type.
        of_musl => unsafe {
            let register: OfMusl = std::mem::transmute(of_musl);
            register(before, parent, child)
        },
    }
}

unsafe extern "C" fn find_object(at: *mut c_void, result: *mut c_void) -> c_int {
    let of_glibc = find(c"_dl_find_object");
    if of_glibc != 0 {
        // SAFETY: glibc's function of this type, with the caller's arguments.
        return unsafe {
            let real: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int =
                std::mem::transmute(of_glibc);
            real(at, result)
        };
    }
    let found = with_object(at as usize, |object| object.part(libc::PT_GNU_EH_FRAME));
    let Some(eh_frame) = found.flatten() else { return -1 };
    // SAFETY: the caller's place for the result. The caller reads only this field, the unwind tables.
    unsafe { (&raw mut (*result.cast::<Found>()).eh_frame).write(eh_frame as *mut c_void) };
    0
}

//! The compiler's calls for plain accesses and functions, in the form of gcc and clang with `-fsanitize=thread`.

use crate::format::{LOAD, STORE};
use crate::recorder::operation;
use crate::recorder::touch::{touch, touch_range};
use std::ffi::{c_int, c_void};

/// Exports probes that take the address at which an access begins, and that know its size.
macro_rules! export {
    ($($name:ident $size:literal [$($kind:expr),*];)*) => {$(
        #[doc = concat!("An access to ", stringify!($size), " bytes.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(address: usize) {
            $(touch(address, $size, $kind);)*
        }
    )*};
}

export! {
    __tsan_read1 1 [LOAD]; __tsan_read2 2 [LOAD]; __tsan_read4 4 [LOAD]; __tsan_read8 8 [LOAD];
    __tsan_read16 16 [LOAD];
    __tsan_write1 1 [STORE]; __tsan_write2 2 [STORE]; __tsan_write4 4 [STORE]; __tsan_write8 8 [STORE];
    __tsan_write16 16 [STORE];
    __tsan_unaligned_read2 2 [LOAD]; __tsan_unaligned_read4 4 [LOAD]; __tsan_unaligned_read8 8 [LOAD];
    __tsan_unaligned_read16 16 [LOAD];
    __tsan_unaligned_write2 2 [STORE]; __tsan_unaligned_write4 4 [STORE]; __tsan_unaligned_write8 8 [STORE];
    __tsan_unaligned_write16 16 [STORE];
    // clang calls these if it is told to join a read and the write that follows.
    __tsan_read_write1 1 [LOAD, STORE]; __tsan_read_write2 2 [LOAD, STORE];
    __tsan_read_write4 4 [LOAD, STORE]; __tsan_read_write8 8 [LOAD, STORE];
    __tsan_read_write16 16 [LOAD, STORE];
    __tsan_unaligned_read_write2 2 [LOAD, STORE]; __tsan_unaligned_read_write4 4 [LOAD, STORE];
    __tsan_unaligned_read_write8 8 [LOAD, STORE]; __tsan_unaligned_read_write16 16 [LOAD, STORE];
    // These distinguish volatile accesses (gcc's --param tsan-distinguish-volatile).
    __tsan_volatile_read1 1 [LOAD]; __tsan_volatile_read2 2 [LOAD]; __tsan_volatile_read4 4 [LOAD];
    __tsan_volatile_read8 8 [LOAD]; __tsan_volatile_read16 16 [LOAD];
    __tsan_volatile_write1 1 [STORE]; __tsan_volatile_write2 2 [STORE]; __tsan_volatile_write4 4 [STORE];
    __tsan_volatile_write8 8 [STORE]; __tsan_volatile_write16 16 [STORE];
    __tsan_unaligned_volatile_read2 2 [LOAD]; __tsan_unaligned_volatile_read4 4 [LOAD];
    __tsan_unaligned_volatile_read8 8 [LOAD]; __tsan_unaligned_volatile_read16 16 [LOAD];
    __tsan_unaligned_volatile_write2 2 [STORE]; __tsan_unaligned_volatile_write4 4 [STORE];
    __tsan_unaligned_volatile_write8 8 [STORE]; __tsan_unaligned_volatile_write16 16 [STORE];
    // The table pointer of a C++ object: read by a virtual call, written by constructors and destructors.
    __tsan_vptr_read 8 [LOAD]; __tsan_vptr_update 8 [STORE];
    // These also have the address of the code in the second register, which is not read.
    __tsan_read1_pc 1 [LOAD]; __tsan_read2_pc 2 [LOAD]; __tsan_read4_pc 4 [LOAD]; __tsan_read8_pc 8 [LOAD];
    __tsan_read16_pc 16 [LOAD];
    __tsan_write1_pc 1 [STORE]; __tsan_write2_pc 2 [STORE]; __tsan_write4_pc 4 [STORE];
    __tsan_write8_pc 8 [STORE]; __tsan_write16_pc 16 [STORE];
}

/// Counts the reading of a structure.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_read_range(address: usize, size: usize) {
    touch_range(address, size, LOAD);
}

/// Counts the writing of a structure.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_write_range(address: usize, size: usize) {
    touch_range(address, size, STORE);
}

/// Exports clang's replacements of the functions that copy.
macro_rules! export_copy {
    ($($name:ident $copy:ident;)*) => {$(
        #[doc = concat!("clang calls it in place of `", stringify!($copy), "`.")]
        ///
        /// # Safety
        /// The same as for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            to: *mut c_void,
            from: *const c_void,
            size: usize,
        ) -> *mut c_void {
            touch_range(from as usize, size, LOAD);
            touch_range(to as usize, size, STORE);
            // SAFETY: R5.
            unsafe { libc::$copy(to, from, size) }
        }
    )*};
}

export_copy! { __tsan_memcpy memcpy; __tsan_memmove memmove; }

/// clang calls it in place of `memset`.
///
/// # Safety
/// The same as for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tsan_memset(to: *mut c_void, byte: c_int, size: usize) -> *mut c_void {
    touch_range(to as usize, size, STORE);
    // SAFETY: R5.
    unsafe { libc::memset(to, byte, size) }
}

/// Notes the entry of a function: the one that this returns to. The argument is the caller of that function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_func_entry(_caller: usize) {
    std::arch::naked_asm!(
        "mov rdi, [rsp]",
        "mov rsi, rsp",
        "jmp {entered}",
        entered = sym function_entered,
    );
}

extern "C" fn function_entered(function: usize, stack: usize) {
    operation::entered(function, stack);
}

/// Notes the return of a function. Compilers often jump here instead of calling, so the function is not known.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_func_exit() {
    operation::left();
}

/// Each object file with probes calls this when it is loaded; the library has started by then.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_init() {}

/// Exports the calls that inform a race detector of locks. They do nothing here.
macro_rules! export_nothing {
    ($($name:ident)*) => {$(
        /// Reports synchronisation, which this library does not follow.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> usize {
            0
        }
    )*};
}

export_nothing! {
    __tsan_acquire __tsan_release __tsan_ignore_thread_begin __tsan_ignore_thread_end
    __tsan_mutex_create __tsan_mutex_destroy __tsan_mutex_pre_lock __tsan_mutex_post_lock
    __tsan_mutex_pre_unlock __tsan_mutex_post_unlock __tsan_mutex_pre_signal __tsan_mutex_post_signal
    __tsan_mutex_pre_divert __tsan_mutex_post_divert
}

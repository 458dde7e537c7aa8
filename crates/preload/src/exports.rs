//! The C symbols. Each passes one more argument to its body: its return address. That identifies the caller, which
//! `--by library` charges.

use crate::thread::Busy;
use crate::{alloc, behind, elsewhere, mapped, next, objects, process, realloc};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::blind::Blind;
use std::ffi::{c_int, c_void};

/// Replaces C's `malloc`. One jump further than the others, to the path for the allocator's kind of blocks.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(_size: usize) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rsi, [rsp]", "jmp qword ptr [rip + {way}]", way = sym alloc::MALLOC);
    // The load is an acquire load: on arm64 a jump does not order the loads of its target. The same holds in
    // `operators`.
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "mov x1, x30",
        "adrp x16, {way}",
        "add x16, x16, :lo12:{way}",
        "ldar x16, [x16]",
        "br x16",
        way = sym alloc::MALLOC,
    );
}

ledgerline_interpose::export! {
    calloc(_count: usize, _size: usize) -> *mut c_void, "rdx", "x2", alloc::calloc;
    realloc(_block: *mut c_void, _size: usize) -> *mut c_void, "rdx", "x2", realloc::realloc;
    memalign(_align: usize, _size: usize) -> *mut c_void, "rdx", "x2", alloc::memalign;
    aligned_alloc(_align: usize, _size: usize) -> *mut c_void, "rdx", "x2", alloc::aligned_alloc;
    posix_memalign(_into: *mut *mut c_void, _align: usize, _size: usize) -> c_int,
        "rcx", "x3", alloc::posix_memalign;
    reallocarray(_block: *mut c_void, _count: usize, _size: usize) -> *mut c_void,
        "rcx", "x3", reallocarray_body;
    valloc(_size: usize) -> *mut c_void, "rsi", "x1", valloc_body;
    pvalloc(_size: usize) -> *mut c_void, "rsi", "x1", pvalloc_body;

    munmap(_at: *mut c_void, _length: usize) -> c_int, "rdx", "x2", mapped::munmap;
    mprotect(_at: *mut c_void, _length: usize, _protection: c_int) -> c_int,
        "rcx", "x3", mapped::mprotect;
    pkey_mprotect(_at: *mut c_void, _length: usize, _protection: c_int, _key: c_int) -> c_int,
        "r8", "x4", mapped::pkey_mprotect;
    madvise(_at: *mut c_void, _length: usize, _advice: c_int) -> c_int,
        "rcx", "x3", mapped::madvise;
    mremap(_at: *mut c_void, _old: usize, _new: usize, _flags: c_int, _to: *mut c_void)
        -> *mut c_void, "r9", "x5", mapped::mremap;
    sbrk(_increment: isize) -> *mut c_void, "rsi", "x1", mapped::sbrk;
    brk(_end: *mut c_void) -> c_int, "rsi", "x1", mapped::brk;
}

/// Exports `name` as `mmap`. On x86-64 its arguments take all registers for arguments, so the return address goes on
/// the stack.
macro_rules! export_mmap {
    ($($name:ident)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            _at: *mut c_void,
            _length: usize,
            _protection: c_int,
            _flags: c_int,
            _file: c_int,
            _offset: i64,
        ) -> *mut c_void {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push qword ptr [rsp]",
                ".cfi_adjust_cfa_offset 8",
                "call {body}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                body = sym mapped::mmap,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!("mov x6, x30", "b {body}", body = sym mapped::mmap);
        }
    )*};
}

export_mmap! { mmap mmap64 }

/// Replaces C's `free`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's contract, passed on.
    unsafe { alloc::free(block) }
}

/// Replaces the old name of `free`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the caller's contract, passed on.
    unsafe { alloc::free(block) }
}

/// Replaces glibc's `malloc_usable_size`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller's contract, passed on.
    unsafe { alloc::usable_size(block) }
}

unsafe extern "C" fn reallocarray_body(
    block: *mut c_void,
    count: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's contract, passed on.
        Some(bytes) => unsafe { realloc::realloc(block, bytes, caller) },
        None => alloc::fail(),
    }
}

fn page() -> usize {
    // SAFETY: sysconf takes a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

unsafe extern "C" fn valloc_body(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: the caller's contract, passed on.
    unsafe { alloc::memalign(page(), size, caller) }
}

unsafe extern "C" fn pvalloc_body(size: usize, caller: usize) -> *mut c_void {
    let whole = size.checked_next_multiple_of(page()).unwrap_or(usize::MAX);
    // SAFETY: the caller's contract, passed on.
    unsafe { alloc::memalign(page(), whole, caller) }
}

/// Runs when the library is loaded, so that a program that never allocates has a row too.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // A program may look at `errno` before its first call.
    let before = errno();
    objects::resolve();
    behind::start();
    elsewhere::start();
    // Under a filter that may forbid it, only the program's own requests are allocated. The allocator is tested, and
    // the thread gets its row, with the first block.
    if !process::is_filtered()
        && next::NEXT.look_up()
        && let Some(_busy) = Busy::enter()
        && process::attached().is_some()
        && alloc::is_passed_by(objects::own_malloc())
    {
        process::blind(Blind::OwnMalloc);
    }
    set_errno(before);
}

/// Runs when the program ends by `exit`, or returns from `main`.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    process::note_end();
}

/// Exports a function that ends the process at once.
macro_rules! export_exit {
    ($($name:ident)*) => {$(
        #[doc = concat!("C's `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(status: c_int) -> ! {
            process::note_end();
            loop {
                // SAFETY: ends the process; nothing runs after it. A filter may refuse it once.
                unsafe { libc::syscall(libc::SYS_exit_group, status) };
            }
        }
    )*};
}

export_exit! { _exit _Exit }

//! The functions by which a program names a thread (`pthread_setname_np`, `prctl`), puts itself under a filter
//! (filter.rs: `prctl`, `syscall`), or loads and unloads a library (`dlopen`, `dlmopen`, `dlclose`). This library
//! observes each call and passes it to the next function.
//!
//! `dlopen` finds a library by its caller: by the caller's search path, and by its namespace. So the next function is
//! jumped to, and returns to the program.
//!
//! | loaded by the program                         | accounted                                                           |
//! |-----------------------------------------------|---------------------------------------------------------------------|
//! | a library                                     | yes                                                                 |
//! | one that is bound to itself (`RTLD_DEEPBIND`) | no: it calls the C library's malloc and not this one's              |
//! | one in another namespace (`dlmopen`)          | no: a second C library serves it. This library cannot be in there, too: a process has one account, one row and one thread area |
//!
//! In the last two cases the process is marked as not accounted in its row and, if there is a limit, reported at once.

use crate::process;
use crate::thread::{self, Busy};
use crate::{alloc, behind, elsewhere, filter, library, operators, shadow, vouch};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::By;
use ledgerline_protocol::blind::Blind;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// Replaces C's `pthread_setname_np`: a thread that names itself is charged under its new name.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(of: libc::pthread_t, name: *const c_char) -> c_int {
    // SAFETY: the caller's contract, passed on.
    let result = unsafe { behind::pthread_setname_np(of, name) };
    // SAFETY: pthread_self has no preconditions.
    if of == unsafe { libc::pthread_self() } {
        thread::forget_slot();
    }
    result
}

/// Replaces C's `prctl`, for `PR_SET_SECCOMP` and for `PR_SET_NAME`, the other way to name a thread.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: the caller's contract, passed on.
    let call = || unsafe { behind::prctl(option, a, b, c, d) }.into();
    watched(Some(option), call) as c_int
}

/// Replaces C's `dlopen`.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _mode: c_int) -> *mut c_void {
    // keep the arguments; before_dlopen; restore them; jump to its result
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "push rdi", "push rsi", "push rax",
        "call {before}",
        "pop rcx", "pop rsi", "pop rdi",
        "jmp rax",
        before = sym before_dlopen,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {before}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        before = sym before_dlopen,
    );
}

/// Prepares for a library that is about to be loaded. Returns the function that loads it.
extern "C" fn before_dlopen(_file: *const c_char, mode: c_int) -> usize {
    let before = errno();
    operators::settle();
    if mode & DEEPBIND != 0 {
        process::blind(Blind::OwnScope);
    }
    set_errno(before);
    match behind::opener(false) {
        0 => no_opener as *const () as usize,
        next => next,
    }
}

/// `RTLD_DEEPBIND` (dlfcn.h); musl has none and ignores it.
const DEEPBIND: c_int = if cfg!(target_env = "gnu") { 8 } else { 0 };

/// Stands in for a loading function that does not exist.
extern "C" fn no_opener() -> *mut c_void {
    std::ptr::null_mut()
}

/// Replaces glibc's `dlmopen`.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen(
    _namespace: c_long,
    _file: *const c_char,
    _mode: c_int,
) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "call {before}",
        "pop rdx", "pop rsi", "pop rdi",
        "jmp rax",
        before = sym before_dlmopen,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "bl {before}",
        "mov x16, x0",
        "ldr x2, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        "br x16",
        before = sym before_dlmopen,
    );
}

/// Prepares for a library that is about to be loaded into a namespace. Returns the function that loads it.
///
/// # Safety
/// The file's name ends in zero, or is null.
unsafe extern "C" fn before_dlmopen(namespace: c_long, file: *const c_char, mode: c_int) -> usize {
    if namespace == OWN_NAMESPACE {
        before_dlopen(file, mode);
    } else {
        // SAFETY: by the caller's contract.
        let is_path = !file.is_null() && unsafe { CStr::from_ptr(file) }.to_bytes().contains(&b'/');
        if is_path && behind::opener(true) != 0 {
            return into_namespace as *const () as usize;
        }
        // A name without a slash is searched in the caller's path, so the call must appear to come from the caller.
        process::blind(Blind::Namespace);
    }
    match behind::opener(true) {
        0 => no_opener as *const () as usize,
        next => next,
    }
}

/// The namespace of the program (dlfcn.h).
const OWN_NAMESPACE: c_long = 0;

/// Loads a library by its path into another namespace, and marks the process if that succeeds.
///
/// # Safety
/// As for glibc's `dlmopen`.
unsafe extern "C" fn into_namespace(
    namespace: c_long,
    file: *const c_char,
    mode: c_int,
) -> *mut c_void {
    // SAFETY: by the caller's contract.
    let handle = unsafe { behind::dlmopen(namespace, file, mode) };
    if !handle.is_null() {
        process::blind(Blind::Namespace);
    }
    handle
}

/// Replaces C's `dlclose`: the next library may be loaded at the address of the one that is unloaded.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    // SAFETY: the caller's contract, passed on.
    let result = unsafe { behind::dlclose(handle) };
    library::forget();
    result
}

/// Replaces C's `syscall`, for the calls that are `prctl` and `seccomp`, and those that leave the ledger's path. It
/// takes up to six numbers or addresses, in the registers of a function with as many parameters. Arguments that the
/// caller did not pass have arbitrary values.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's contract, passed on.
    let call = || unsafe { behind::syscall(number, a, b, c, d, e, f) };
    match number {
        libc::SYS_prctl => watched(Some(a as c_int), call),
        // The other operations of seccomp are queries.
        libc::SYS_seccomp if a as u32 <= libc::SECCOMP_SET_MODE_FILTER => watched(None, call),
        _ => {
            // SAFETY: by the caller's contract.
            unsafe { elsewhere::called(number, a, b) };
            call()
        }
    }
}

/// Makes a call of `prctl` with this option, or one of `seccomp` that installs a filter.
fn watched(option: Option<c_int>, call: impl FnOnce() -> c_long) -> c_long {
    match option {
        Some(libc::PR_SET_NAME) => {
            let result = call();
            thread::forget_slot();
            result
        }
        None | Some(libc::PR_SET_SECCOMP) => install(call),
        Some(_) => call(),
    }
}

/// Installs a filter, after the work that cannot be done under one.
fn install(call: impl FnOnce() -> c_long) -> c_long {
    let before = errno();
    let notes = filter::is_on() || prepare();
    set_errno(before);
    if !notes {
        vouch::doubt();
        return call();
    }
    // Counted before the call, since a filter may be for all threads at once.
    filter::add();
    let result = call();
    if result < 0 {
        filter::take_back();
    }
    result
}

/// Prepares the process for a filter: it attaches, the thread finds its row, and spans of several owners get their
/// shadow. Returns `false` in a child that shares its parent's memory (`vfork`), since the parent will be under no
/// filter.
fn prepare() -> bool {
    if let Some(busy) = Busy::enter() {
        let names = process::attached().is_some_and(|run| run.by != By::Library);
        drop(busy);
        if names {
            alloc::owner(0);
        }
    }
    let Some(own) = process::attached_as() else { return true };
    shadow::prepare();
    // SAFETY: getpid has no preconditions.
    own.pid() == unsafe { libc::getpid() }.unsigned_abs()
}

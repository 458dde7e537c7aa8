//! The functions by which a program names a thread (`pthread_setname_np`, `prctl`), puts itself under a filter (filter.rs:
//! `prctl`, `syscall`), or loads and unloads a library (`dlopen`, `dlmopen`, `dlclose`). This library looks on, and hands
//! everything to the function behind it.
//!
//! `dlopen` finds a library by its caller: by the caller's search path, and by its namespace. So the function behind is jumped
//! to, and returns to the program.
//!
//! | what a program loads                          | is accounted                                                        |
//! |-----------------------------------------------|---------------------------------------------------------------------|
//! | a library                                     | yes                                                                 |
//! | one that is bound to itself (`RTLD_DEEPBIND`) | no: it calls the C library's malloc and not this one's              |
//! | one in another namespace (`dlmopen`)          | no: a second C library serves it. This library cannot be in there, too: a process has one account, one row and one thread area |
//!
//! The process is named as not accounted for the last two, in its row and, where there is a limit, at once.

use crate::process;
use crate::thread::{self, Busy};
use crate::{alloc, behind, elsewhere, filter, library, operators, shadow, vouch};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::By;
use ledgerline_protocol::blind::Blind;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// C's `pthread_setname_np`: a thread that names itself is charged under its new name.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(of: libc::pthread_t, name: *const c_char) -> c_int {
    // SAFETY: handed on.
    let result = unsafe { behind::pthread_setname_np(of, name) };
    // SAFETY: pthread_self has no preconditions.
    if of == unsafe { libc::pthread_self() } {
        thread::forget_slot();
    }
    result
}

/// C's `prctl`, for `PR_SET_NAME` (the other way for a thread to name itself) and `PR_SET_SECCOMP`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: handed on.
    let call = || unsafe { behind::prctl(option, a, b, c, d) }.into();
    watched(Some(option), call) as c_int
}

/// C's `dlopen`.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _mode: c_int) -> *mut c_void {
    // keep the arguments; before_dlopen; restore them; jump to what that returned
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

/// Stands for a function that loads and is nowhere.
extern "C" fn no_opener() -> *mut c_void {
    std::ptr::null_mut()
}

/// glibc's `dlmopen`.
///
/// # Safety
/// As the C function.
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
        // SAFETY: as the caller says.
        let is_path = !file.is_null() && unsafe { CStr::from_ptr(file) }.to_bytes().contains(&b'/');
        if is_path && behind::opener(true) != 0 {
            return into_namespace as *const () as usize;
        }
        // A name without a slash is looked for by the caller's search path, so it must seem to be the caller's.
        process::blind(Blind::Namespace);
    }
    match behind::opener(true) {
        0 => no_opener as *const () as usize,
        next => next,
    }
}

/// The namespace of the program (dlfcn.h).
const OWN_NAMESPACE: c_long = 0;

/// Loads a library by its path into another namespace, and names the process if that is done.
///
/// # Safety
/// As glibc's `dlmopen`.
unsafe extern "C" fn into_namespace(
    namespace: c_long,
    file: *const c_char,
    mode: c_int,
) -> *mut c_void {
    // SAFETY: as the caller says.
    let handle = unsafe { behind::dlmopen(namespace, file, mode) };
    if !handle.is_null() {
        process::blind(Blind::Namespace);
    }
    handle
}

/// C's `dlclose`: what is loaded next may lie where this library lay, and is another.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    // SAFETY: handed on.
    let result = unsafe { behind::dlclose(handle) };
    library::forget();
    result
}

/// C's `syscall`, for the two that are `prctl` and `seccomp`, and those that lead elsewhere. (It takes up to six numbers or addresses, in the places
/// where a function with as many parameters has them. What a caller did not pass is whatever stands there.)
///
/// # Safety
/// As the C function.
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
    // SAFETY: handed on.
    let call = || unsafe { behind::syscall(number, a, b, c, d, e, f) };
    match number {
        libc::SYS_prctl => watched(Some(a as c_int), call),
        // The others of its operations ask, and install nothing.
        libc::SYS_seccomp if a as u32 <= libc::SECCOMP_SET_MODE_FILTER => watched(None, call),
        _ => {
            // SAFETY: as the caller says.
            unsafe { elsewhere::called(number, a, b) };
            call()
        }
    }
}

/// Makes a call of `prctl` with this option, or one of `seccomp` that installs something.
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

/// Installs a filter, having done before what cannot be done under one.
fn install(call: impl FnOnce() -> c_long) -> c_long {
    let before = errno();
    let notes = filter::is_on() || prepare();
    set_errno(before);
    if !notes {
        vouch::doubt();
        return call();
    }
    // Before the call, since a filter may be for all threads at once.
    filter::add();
    let result = call();
    if result < 0 {
        filter::take_back();
    }
    result
}

/// The process attaches, the thread finds its row, and blocks of several owners get their bytes of shadow. `false` in a
/// child that has its parent's memory (`vfork`): the parent will be under no filter.
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

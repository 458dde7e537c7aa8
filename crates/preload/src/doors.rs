//! `prctl`, `pthread_setname_np`, `syscall` and `dlclose`: the doors by which a program names a thread, puts itself under
//! a filter (filter.rs), or gives a library's place to another. The library looks on, and hands everything to the function behind it.

use crate::process;
use crate::thread::{self, Busy};
use crate::{alloc, behind, elsewhere, filter, library, shadow, vouch};
use ledgerline_interpose::{errno, set_errno};
use ledgerline_protocol::By;
use std::ffi::{c_char, c_int, c_long, c_void};

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

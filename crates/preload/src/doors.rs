//! `prctl`, `pthread_setname_np`, `syscall` and `dlclose`: the doors by which a program names a thread, puts itself under
//! a filter (filter.rs), or gives a library's place to another. The library looks on, and hands everything to the function behind it.

use crate::objects::find;
use crate::process;
use crate::say::{errno, set_errno};
use crate::thread::{self, Busy};
use crate::{alloc, elsewhere, filter, library, shadow, vouch};
use ledgerline_protocol::By;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function behind this library; zero before it is looked up, or where there is none.
struct Behind(AtomicUsize, &'static CStr);

static PRCTL: Behind = Behind(AtomicUsize::new(0), c"prctl");
static SETNAME: Behind = Behind(AtomicUsize::new(0), c"pthread_setname_np");
static SYSCALL: Behind = Behind(AtomicUsize::new(0), c"syscall");
static DLCLOSE: Behind = Behind(AtomicUsize::new(0), c"dlclose");

impl Behind {
    fn look_up(&self) {
        self.0.store(find(self.1), Ordering::Relaxed);
    }

    fn known(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&address| address != 0)
    }
}

/// Looks them up. Once, before the program's first instruction. (Not at the first call: an allocator that comes by
/// `syscall` while it holds its own lock must not come back to itself through `dlsym`.)
pub(crate) fn start() {
    [&PRCTL, &SETNAME, &SYSCALL, &DLCLOSE].into_iter().for_each(Behind::look_up);
}

/// C's `pthread_setname_np`: a thread that names itself is charged under its new name.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(of: libc::pthread_t, name: *const c_char) -> c_int {
    if SETNAME.known().is_none() {
        SETNAME.look_up();
    }
    let Some(real) = SETNAME.known() else { return libc::ENOSYS };
    // SAFETY: the C library's function of this type; arguments handed on.
    let result = unsafe {
        let real: unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int =
            std::mem::transmute(real);
        real(of, name)
    };
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
    let call = || {
        // SAFETY: the C library's prctl, which takes up to four numbers or addresses, or the kernel's; handed on.
        unsafe {
            match PRCTL.known() {
                Some(real) => {
                    let real: unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int =
                        std::mem::transmute(real);
                    real(option, a, b, c, d).into()
                }
                None => kernel(libc::SYS_prctl, [option as usize, a, b, c, d, 0]),
            }
        }
    };
    watched(Some(option), call) as c_int
}

/// C's `dlclose`: what is loaded next may lie where this library lay, and is another.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    if DLCLOSE.known().is_none() {
        DLCLOSE.look_up();
    }
    let Some(real) = DLCLOSE.known() else { return -1 };
    // SAFETY: the C library's function of this type; the argument handed on.
    let result = unsafe {
        let real: unsafe extern "C" fn(*mut c_void) -> c_int = std::mem::transmute(real);
        real(handle)
    };
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
    let call = || {
        // SAFETY: the C library's syscall, or the same; handed on.
        unsafe {
            match SYSCALL.known() {
                Some(real) => {
                    let real: unsafe extern "C" fn(
                        c_long,
                        usize,
                        usize,
                        usize,
                        usize,
                        usize,
                        usize,
                    ) -> c_long = std::mem::transmute(real);
                    real(number, a, b, c, d, e, f)
                }
                None => kernel(number, [a, b, c, d, e, f]),
            }
        }
    };
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
        let names = process::attached() && process::by() != By::Library;
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

/// A system call as the C library's `syscall` makes it.
///
/// # Safety
/// As the system call.
unsafe fn kernel(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_long {
    let result: isize;
    // SAFETY: the kernel's convention: it changes the result's register and, on x86-64, rcx and r11.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) {
        set_errno(-result as c_int);
        return -1;
    }
    result as c_long
}

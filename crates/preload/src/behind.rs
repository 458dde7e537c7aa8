//! The next functions behind this library, other than the allocator's.
//!
//! They are looked up when the library is started, not at the first call: a look-up might wait for a lock of the loader
//! that is never released.

use crate::say::List;
use ledgerline_interpose::{find, find_each, set_errno, symbol};
use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The actions and the attributes of `posix_spawn`.
pub(crate) type Actions = *const c_void;

/// Declares the functions, and a substitute for each while it is not known, or if there is none.
macro_rules! behind {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $otherwise:expr;)*) => {
        #[expect(non_camel_case_types, reason = "named as the functions are")]
        #[derive(Clone, Copy)]
        enum Function {
            $($name),*
        }

        const NAMES: [&CStr; [$(Function::$name),*].len()] =
            [$(symbol(concat!(stringify!($name), "\0"))),*];

        $(
            #[doc = concat!("The next `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[allow(unused_unsafe, unused_variables, reason = "some do nothing else")]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                let address = REAL[Function::$name as usize].load(Ordering::Relaxed);
                if address == 0 {
                    // SAFETY: by the caller's contract; the kernel's call of that name.
                    return unsafe { $otherwise };
                }
                // SAFETY: dlsym found it under the name of a C function of this type, in a library that stays loaded.
                unsafe {
                    let function: unsafe extern "C" fn($($kind),*) -> $result =
                        std::mem::transmute(address);
                    function($($argument),*)
                }
            }
        )*
    };
}

behind! {
    // Functions that execute programs (exec.rs).
    execve(path: *const c_char, words: List, environment: List) -> c_int, missing();
    execvpe(file: *const c_char, words: List, environment: List) -> c_int, missing();
    fexecve(file: c_int, words: List, environment: List) -> c_int, missing();
    execveat(folder: c_int, path: *const c_char, words: List, environment: List, flags: c_int) -> c_int,
        missing();
    posix_spawn(
        child: *mut libc::pid_t, path: *const c_char, actions: Actions, attributes: Actions, words: List,
        environment: List
    ) -> c_int, missing();
    posix_spawnp(
        child: *mut libc::pid_t, file: *const c_char, actions: Actions, attributes: Actions, words: List,
        environment: List
    ) -> c_int, missing();

    // Functions by which a process leaves the ledger's path (elsewhere.rs).
    unshare(flags: c_int) -> c_int, missing();
    setns(descriptor: c_int, kind: c_int) -> c_int, missing();
    chroot(path: *const c_char) -> c_int, missing();
    pivot_root(root: *const c_char, old: *const c_char) -> c_int, missing();
    mount(
        what: *const c_char, place: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void
    ) -> c_int, missing();

    // Functions that map memory (mapped.rs). Until they are known, the calls go to the kernel.
    mmap(address: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64)
        -> *mut c_void,
        libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset) as *mut c_void;
    munmap(address: *mut c_void, length: usize) -> c_int,
        libc::syscall(libc::SYS_munmap, address, length) as c_int;
    mremap(address: *mut c_void, old: usize, new: usize, flags: c_int, to: *mut c_void) -> *mut c_void,
        libc::syscall(libc::SYS_mremap, address, old, new, flags, to) as *mut c_void;
    mprotect(address: *mut c_void, length: usize, protection: c_int) -> c_int,
        libc::syscall(libc::SYS_mprotect, address, length, protection) as c_int;
    pkey_mprotect(address: *mut c_void, length: usize, protection: c_int, key: c_int) -> c_int,
        libc::syscall(libc::SYS_pkey_mprotect, address, length, protection, key) as c_int;
    madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int,
        libc::syscall(libc::SYS_madvise, address, length, advice) as c_int;
    sbrk(increment: isize) -> *mut c_void, libc::MAP_FAILED;
    brk(end: *mut c_void) -> c_int, -1;

    // Functions that doors.rs watches. Numbers and addresses are both passed in registers, up to as many as are named
    // here. Two of these have no system call, and are looked up if they are called before the library is started.
    prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int,
        kernel(libc::SYS_prctl, [option as usize, a, b, c, d, 0]) as c_int;
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long,
        kernel(number, [a, b, c, d, e, f]);
    pthread_setname_np(of: libc::pthread_t, name: *const c_char) -> c_int,
        if is_found(Function::pthread_setname_np) { pthread_setname_np(of, name) } else { libc::ENOSYS };
    dlmopen(namespace: c_long, file: *const c_char, mode: c_int) -> *mut c_void, std::ptr::null_mut::<c_void>();
    dlclose(handle: *mut c_void) -> c_int,
        if is_found(Function::dlclose) { dlclose(handle) } else { -1 };
}

/// The address of each function; zero before it is looked up, or if there is none.
static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Looks all functions up. Called once, before the program's first instruction.
pub(crate) fn start() {
    find_each(&NAMES, &REAL);
}

/// Returns whether the functions were looked up.
pub(crate) fn is_started() -> bool {
    REAL[Function::mmap as usize].load(Ordering::Relaxed) != 0
}

/// Returns the address of the next `dlopen` or `dlmopen`, which are jumped to; zero if there is none. Looked up at the
/// first call, since few programs make one.
pub(crate) fn opener(into_namespace: bool) -> usize {
    static OPENERS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    const NAMES: [&CStr; 2] = [c"dlopen", c"dlmopen"];
    let (place, name) = (&OPENERS[usize::from(into_namespace)], NAMES[usize::from(into_namespace)]);
    match place.load(Ordering::Relaxed) {
        0 => {
            let found = find(name);
            place.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    }
}

/// Looks one function up and returns whether it exists.
fn is_found(function: Function) -> bool {
    let address = find(NAMES[function as usize]);
    REAL[function as usize].store(address, Ordering::Relaxed);
    address != 0
}

/// Stands in for a function that does not exist.
pub(crate) extern "C" fn missing() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// Makes a system call like the C library's `syscall`.
///
/// # Safety
/// As for the system call.
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

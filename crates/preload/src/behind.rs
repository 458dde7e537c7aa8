//! The functions behind this library's by which a process executes programs, or goes where the ledger has no path.

use crate::objects::find;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The functions behind this library's. They are looked up when the library is started: where they are called, a lookup
/// might wait for a lock of the linker's that nobody returns.
static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
const NAMES: [&CStr; 11] = [
    c"execve",
    c"execvpe",
    c"fexecve",
    c"execveat",
    c"posix_spawn",
    c"posix_spawnp",
    c"unshare",
    c"setns",
    c"chroot",
    c"pivot_root",
    c"mount",
];

/// Looks the functions up. Once, before the program's first instruction.
pub(crate) fn start() {
    for (address, name) in REAL.iter().zip(NAMES) {
        address.store(find(name), Ordering::Relaxed);
    }
}

/// Calls a function behind this library's, or fails with `ENOSYS`.
macro_rules! real {
    ($which:literal, fn($($kind:ty),*), $($argument:expr),*) => {{
        let address = crate::behind::address($which);
        if address == 0 {
            crate::say::set_errno(libc::ENOSYS);
            return -1;
        }
        // SAFETY: dlsym found it under the name of a C function of this type, in a library that stays loaded.
        unsafe {
            let function: unsafe extern "C" fn($($kind),*) -> c_int = std::mem::transmute(address);
            function($($argument),*)
        }
    }};
}
pub(crate) use real;

/// Where one of them lies; 0 where there is none.
pub(crate) fn address(which: usize) -> usize {
    REAL[which].load(Ordering::Relaxed)
}

//! The remote fences: `membarrier(PRIVATE_EXPEDITED_RSEQ)` makes every CPU that runs a thread of
//! this process abort the section it is in, and orders memory on all of them. `membarrier(PRIVATE_EXPEDITED)` only orders
//! memory, and is older (Linux 4.14 and 5.10).

use crate::sync::are_calls_forbidden;

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;

#[cfg(test)]
std::thread_local! {
    /// The number of fences of this thread.
    pub(crate) static FENCES: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

fn membarrier(command: libc::c_int) -> bool {
    #[cfg(test)]
    FENCES.set(FENCES.get() + 1);
    // SAFETY: the system call takes three integers and touches no memory of ours.
    #[cfg(target_os = "linux")]
    return unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 };
    #[cfg(not(target_os = "linux"))]
    return command < 0;
}

/// Registers this process with the kernel for fences. That is needed once per process; a forked child inherits it.
pub(crate) fn register() -> bool {
    membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ)
}

/// Fences all sections of the process. After this returns `true`, every section that was running anywhere in the
/// process when it was called has either committed or been aborted, its committed store is visible here, and every
/// section that starts later sees the caller's earlier stores.
///
/// Costs one system call and an interrupt for each CPU that runs a thread of the process, a few microseconds.
/// Async-signal-safe. If a sandbox forbids the call after start-up, the thread runs on each CPU in turn, which takes
/// some ten microseconds per idle CPU and more per busy one (`visit.rs`). Returns `false` only if that is not possible
/// either, or this process no longer makes system calls.
pub(crate) fn fence() -> bool {
    if are_calls_forbidden() {
        return false;
    }
    #[cfg(rseq)]
    return fence_sections() || super::visit::every_cpu();
    #[cfg(not(rseq))]
    return fence_sections();
}

/// Like [`fence`], but only by the system call.
pub(crate) fn fence_sections() -> bool {
    !are_calls_forbidden() && membarrier(PRIVATE_EXPEDITED_RSEQ)
}

/// Like [`register`], but for [`fence_memory`].
pub(crate) fn register_memory() -> bool {
    membarrier(REGISTER_PRIVATE_EXPEDITED)
}

/// Fences the memory of all threads. After this returns `true`, every thread of the process has passed a full memory
/// barrier during the call: its earlier stores are visible here, and its later loads see the caller's earlier stores.
///
/// Costs one system call like [`fence`], and returns `false` if that is refused. Async-signal-safe.
pub(crate) fn fence_memory() -> bool {
    !are_calls_forbidden() && membarrier(PRIVATE_EXPEDITED)
}

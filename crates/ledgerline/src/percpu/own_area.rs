//! The area that this library registers for each thread, where the C library registers none: musl.
//!
//! Four parties take part instead of three (`registration.rs`): the **linker** puts the area among the thread-local
//! variables, at one distance from the thread pointer in all threads. So sections find it as they find glibc's.
//!
//! ```text
//! a thread's state:   UNKNOWN --join--> REGISTERED --the thread ends--> STRANGER
//!                        \------------> STRANGER                        somebody else registered an area of his
//! ```
//!
//! * A thread **joins** at its first step on a slow path. Before, its `fast` is zero, and that sends every fast path
//!   to the slow one. So no thread is in a section that is not registered, and nobody has to hear of new threads.
//! * What somebody else registered stays: then the kernel refuses, and the thread is a **stranger** to the end. So is
//!   one whose end has begun (below). Strangers add by atomics in a column of their own, behind those of the CPUs, in
//!   which no section ever runs (`machine::STRANGERS`).
//! * A thread's end takes its memory away while the thread still runs, and the kernel would write to it. So a key of
//!   the C library unregisters the area before. What runs in the thread after that, other destructors and signal
//!   handlers, finds a stranger.
//! * A forked child has one thread, and the kernel copies its registration. One that shares its parent's memory
//!   (`vfork`) is not registered and looks as if it were: it must charge nothing, with glibc's area as with this one.
//! * A signal handler may come between any two of these steps. One that finds the area registered (`EBUSY`) says so.
//!
//! An access at a fixed distance makes the linker demand that the library be there when the program starts. That is so
//! in a static program, musl's usual one. A dynamic one may open a library later, which musl then refuses to load. So
//! for those there are sections only if the build says `--cfg ledgerline_initial_exec` (`build.rs`).

use super::linked::{distance_of, of_this_version, thread_local_at_a_distance};
use crate::os::at_end::AtEnd;
use crate::sync::are_calls_forbidden;
use std::arch::asm;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering, compiler_fence};

/// The thread-local variable.
macro_rules! symbol {
    () => {
        of_this_version!("ledgerline_rseq_")
    };
}

// All zeros when a thread starts: unknown, and not fast. See `Mine`, which is as long.
thread_local_at_a_distance!(symbol in ".tbss." "@nobits", "64": ".zero 64");

/// What each thread has.
#[repr(C, align(64))]
struct Mine {
    /// The kernel's `struct rseq`, as it was first: all that sections use lies in it.
    area: UnsafeCell<[u8; AREA]>,
    /// The distance of `rseq_cs` from the thread pointer, once sections with compact ids may use it; zero before.
    fast: AtomicIsize,
    state: AtomicU8,
}

const AREA: usize = 32;
const FAST: usize = 32;
const _: () = assert!(
    size_of::<Mine>() == 64
        && std::mem::offset_of!(Mine, fast) == FAST
        && std::mem::offset_of!(Mine, area) == 0
);

const UNKNOWN: u8 = 0;
const REGISTERED: u8 = 1;
const STRANGER: u8 = 2;

const SIGNATURE: u32 = super::rseq::SIGNATURE;
const UNREGISTER: libc::c_int = 1;

/// Hears that a registered thread ends.
static AT_END: AtEnd = AtEnd::new();

/// The calling thread's `fast`: a load at a fixed distance from the thread pointer. (Not `nomem`: a fiber may have
/// moved to another thread behind any call.)
#[inline(always)]
pub(super) fn fast() -> isize {
    let fast: isize;
    // SAFETY: reads eight bytes of the calling thread's variable. The linker makes one instruction of the first in a
    // program.
    unsafe {
        asm!(
            concat!("mov {fast}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
            "mov {fast}, qword ptr fs:[{fast} + {at}]",
            fast = out(reg) fast,
            at = const FAST,
            options(nostack, readonly, preserves_flags, pure),
        );
    }
    fast
}

/// How far the variable, and the area in it, lies from the thread pointer, in every thread.
pub(super) fn distance() -> isize {
    distance_of!(symbol)
}

fn mine() -> &'static Mine {
    let at = super::thread_pointer().wrapping_add_signed(distance());
    // SAFETY: the calling thread's variable, which lives as long as the thread: no caller passes the reference on. Its
    // zeros are valid.
    unsafe { &*ptr::with_exposed_provenance(at) }
}

fn rseq(mine: &Mine, flags: libc::c_int) -> Result<(), libc::c_int> {
    // SAFETY: the area is the calling thread's, aligned, and is unregistered before its memory goes (`ends`; guarded by
    // `a_thread_that_ends_is_unregistered_before_its_memory_goes`). `errno` is the thread's own, and stays.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let done = libc::syscall(libc::SYS_rseq, mine.area.get(), AREA as u32, flags, SIGNATURE);
        let error = *errno;
        *errno = before;
        if done == 0 { Ok(()) } else { Err(error) }
    }
}

/// Registers the calling thread, if that was not tried before. Says whether it is registered. Async-signal-safe,
/// allocates nothing; makes one system call a thread, and none while those are forbidden.
pub(super) fn join() -> bool {
    let mine = mine();
    // Relaxed, here and below: the thread's own, or its signal handler's.
    match mine.state.load(Ordering::Relaxed) {
        REGISTERED => true,
        UNKNOWN if !are_calls_forbidden() => register(mine),
        _ => false,
    }
}

#[cold]
fn register(mine: &Mine) -> bool {
    // The end is heard of before there is something to end.
    let registered = AT_END.set(ptr::from_ref(mine).cast())
        && matches!(rseq(mine, 0), Ok(()) | Err(libc::EBUSY));
    mine.state.store(if registered { REGISTERED } else { STRANGER }, Ordering::Relaxed);
    registered
}

/// Begins to hear of ends: before the first thread joins, once a process. Says whether that is possible.
pub(super) fn begin() -> bool {
    static BEGUN: OnceLock<bool> = OnceLock::new();
    *BEGUN.get_or_init(|| AT_END.begin(ends))
}

/// From now on the calling thread, which is registered, may take fast paths.
pub(super) fn quicken(area: isize) {
    mine().fast.store(area, Ordering::Relaxed);
}

/// A thread that joined ends, as a stranger or registered.
unsafe extern "C" fn ends(value: *mut c_void) {
    // SAFETY: the key's value is the thread's variable.
    let mine = unsafe { &*value.cast_const().cast::<Mine>() };
    let before = mine.state.load(Ordering::Relaxed);
    mine.state.store(STRANGER, Ordering::Relaxed);
    mine.fast.store(0, Ordering::Relaxed);
    // A signal handler from here on finds a stranger.
    compiler_fence(Ordering::SeqCst);
    // (Under a filter that would kill for the call the area stays: the kernel may write to it until the thread is
    // gone.)
    if before == REGISTERED && !are_calls_forbidden() {
        let done = rseq(mine, UNREGISTER);
        debug_assert_eq!(done, Ok(()));
    }
}

#[cfg(test)]
mod tests;

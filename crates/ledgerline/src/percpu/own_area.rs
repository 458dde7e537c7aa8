//! The area that this library registers for each thread if the C library registers none: with musl.
//!
//! A fourth party joins the three of `registration.rs`: the **linker** puts the area among the thread-local variables,
//! at the same distance from the thread pointer in all threads. So sections find it like glibc's area.
//!
//! ```text
//! a thread's state:   UNKNOWN --join--> REGISTERED --the thread ends--> STRANGER
//!                        \------------> STRANGER                        somebody else registered an area of his
//! ```
//!
//! * A thread **joins** at its first step on a slow path. Before that, its `fast` is zero, which sends every fast path
//!   to the slow one. So no unregistered thread is in a section, and new threads need no notification.
//! * If other code has registered an area, that area stays: the kernel refuses this one, and the thread is a
//!   **stranger** until its end. So is a thread whose end has begun (below). Strangers add by atomics in a separate
//!   column behind those of the CPUs, in which no section ever runs (`machine::STRANGERS`).
//! * A thread's memory is freed while the thread still runs, and the kernel would write to it. So the destructor of a
//!   key of the C library unregisters the area before. Other destructors and signal handlers that run in the thread
//!   after that find a stranger.
//! * A forked child has one thread, and the kernel copies its registration. A child that shares its parent's memory
//!   (`vfork`) is not registered but looks registered: it must charge nothing, with glibc's area as well as with this
//!   one.
//! * A signal handler may come between any two of these steps. A handler that finds the area registered (`EBUSY`)
//!   reports it as registered.
//!
//! An access at a fixed distance requires that the library is loaded when the program starts. That holds in a static
//! program, the usual case with musl. A dynamic program may open a library later, and musl then refuses to load it. So
//! dynamic programs have sections only if they are built with `--cfg ledgerline_initial_exec` (`build.rs`).

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

// All zeros when a thread starts: unknown, and not fast. See `Mine`, which has the same size.
thread_local_at_a_distance!(symbol in ".tbss." "@nobits", "64": ".zero 64");

/// The thread-local variable of each thread.
#[repr(C, align(64))]
struct Mine {
    /// The kernel's `struct rseq` in its first version, which contains everything that sections use.
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

/// Runs `ends` when a registered thread ends.
static AT_END: AtEnd = AtEnd::new();

/// Returns the calling thread's `fast`: a load at a fixed distance from the thread pointer. Not `nomem`, since a fiber
/// may have moved to another thread in any call.
#[inline(always)]
pub(super) fn fast() -> isize {
    let fast: isize;
    // SAFETY: reads eight bytes of the calling thread's variable. In a program the linker turns the first instruction
    // into one with a constant.
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

/// Returns the distance of the variable, and of the area in it, from the thread pointer, the same in every thread.
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
    // SAFETY: the area is the calling thread's, aligned, and is unregistered before its memory is freed (`ends`;
    // guarded by `a_thread_that_ends_is_unregistered_before_its_memory_goes`). `errno` is the thread's own and is
    // restored.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let done = libc::syscall(libc::SYS_rseq, mine.area.get(), AREA as u32, flags, SIGNATURE);
        let error = *errno;
        *errno = before;
        if done == 0 { Ok(()) } else { Err(error) }
    }
}

/// Registers the calling thread, if that was not tried before. Returns whether it is registered. Async-signal-safe and
/// allocates nothing. Makes one system call per thread, and none while system calls are forbidden.
pub(super) fn join() -> bool {
    let mine = mine();
    // Relaxed, here and below: only the thread and its signal handlers access it.
    match mine.state.load(Ordering::Relaxed) {
        REGISTERED => true,
        UNKNOWN if !are_calls_forbidden() => register(mine),
        _ => false,
    }
}

#[cold]
fn register(mine: &Mine) -> bool {
    // The destructor is set up before the registration that it ends.
    let registered = AT_END.set(ptr::from_ref(mine).cast())
        && matches!(rseq(mine, 0), Ok(()) | Err(libc::EBUSY));
    mine.state.store(if registered { REGISTERED } else { STRANGER }, Ordering::Relaxed);
    registered
}

/// Prepares for the ends of threads: once per process, before the first thread joins. Returns whether that is
/// possible.
pub(super) fn begin() -> bool {
    static BEGUN: OnceLock<bool> = OnceLock::new();
    *BEGUN.get_or_init(|| AT_END.begin(ends))
}

/// Lets the calling thread, which is registered, take fast paths from now on.
pub(super) fn quicken(area: isize) {
    mine().fast.store(area, Ordering::Relaxed);
}

/// Unregisters a joined thread, stranger or registered, that ends.
unsafe extern "C" fn ends(value: *mut c_void) {
    // SAFETY: the key's value is the thread's variable.
    let mine = unsafe { &*value.cast_const().cast::<Mine>() };
    let before = mine.state.load(Ordering::Relaxed);
    mine.state.store(STRANGER, Ordering::Relaxed);
    mine.fast.store(0, Ordering::Relaxed);
    // From here on a signal handler finds a stranger.
    compiler_fence(Ordering::SeqCst);
    // Under a filter that would kill the process for the call, the area stays registered: the kernel may write to it
    // until the thread is gone.
    if before == REGISTERED && !are_calls_forbidden() {
        let done = rseq(mine, UNREGISTER);
        debug_assert_eq!(done, Ok(()));
    }
}

#[cfg(test)]
mod tests;

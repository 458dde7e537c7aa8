//! The calling thread's purse: a thread-local variable that sections can read.
//!
//! The **linker** puts it at the same distance from the thread pointer in all threads. So a section needs only that
//! distance, and a fiber that continues on another thread finds that thread's purse. A thread-local variable of Rust
//! may lie anywhere, and the compiler may keep its address across the call that moves a fiber. A library that is opened
//! later gets its eight bytes from the C library's reserve. musl has no such reserve, but there the rseq area has the
//! same requirement (`own_area.rs`).

use super::Purse;
#[cfg(rseq)]
pub(in crate::percpu) use variable::distance;

/// Returns zero: without sections there is no variable, since nothing reads it.
#[cfg(not(rseq))]
pub(super) fn distance() -> isize {
    0
}

/// The purse of a thread that has not got one yet.
static NONE_YET: Purse = Purse::of_none();

/// Returns the calling thread's purse, or one that is never open.
#[inline]
pub(super) fn get() -> &'static Purse {
    #[cfg(rseq)]
    // SAFETY: the calling thread's variable, which points to a purse from the thread's start to its end. It is read at
    // once.
    return unsafe { *variable::place() };
    #[cfg(not(rseq))]
    &NONE_YET
}

/// Makes this the calling thread's purse.
pub(super) fn set(purse: &'static Purse) {
    #[cfg(rseq)]
    // SAFETY: as above. A section of this thread reads it before or after.
    unsafe {
        variable::place().write_volatile(purse);
    }
    #[cfg(not(rseq))]
    let _ = purse;
}

/// Calls `work` while the calling thread has another purse.
#[cfg(all(rseq, test))]
pub(in crate::percpu) fn with<T>(purse: &Purse, work: impl FnOnce() -> T) -> T {
    let before = get();
    // SAFETY: the thread has this purse only until the work is done, and the reference lives that long.
    set(unsafe { &*std::ptr::from_ref(purse) });
    let done = work();
    set(before);
    done
}

#[cfg(rseq)]
mod variable {
    use super::{NONE_YET, Purse};
    use crate::percpu::linked::{distance_of, of_this_version, thread_local_at_a_distance};
    use crate::percpu::thread_pointer;
    use std::ptr;

    macro_rules! purse {
        () => {
            of_this_version!("ledgerline_purse_")
        };
    }

    thread_local_at_a_distance!(purse in ".tdata." "@progbits", "8": ".quad {none}", none = sym NONE_YET);

    /// Returns the distance of the variable from the thread pointer, the same in every thread.
    pub(in crate::percpu) fn distance() -> isize {
        distance_of!(purse)
    }

    pub(super) fn place() -> *mut &'static Purse {
        ptr::with_exposed_provenance_mut(thread_pointer().wrapping_add_signed(distance()))
    }
}

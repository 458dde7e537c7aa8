//! Which purse the calling thread has: a thread-local variable that sections can read.
//!
//! The **linker** puts it at one distance from the thread pointer in all threads, so a section needs that distance alone, and a
//! fiber that goes on on another thread finds that thread's. (A variable of the language may lie anywhere, and the compiler may keep
//! its address over the call that moves a fiber.) A library that is opened later gets its eight bytes from what the C library
//! keeps for that; musl has none, and there the area asks for the same (`own_area.rs`).

use super::Purse;
#[cfg(rseq)]
pub(in crate::percpu) use variable::distance;

/// Without sections nothing reads the variable, and there is none.
#[cfg(not(rseq))]
pub(super) fn distance() -> isize {
    0
}

/// What a thread has before it gets one.
static NONE_YET: Purse = Purse::of_none();

/// The calling thread's purse, or one that is never open.
#[inline]
pub(super) fn get() -> &'static Purse {
    #[cfg(rseq)]
    // SAFETY: the calling thread's variable, which points to a purse from its start to its end. (It is read at once.)
    return unsafe { *variable::place() };
    #[cfg(not(rseq))]
    &NONE_YET
}

/// The calling thread has this purse from now on.
pub(super) fn set(purse: &'static Purse) {
    #[cfg(rseq)]
    // SAFETY: as above; a section of this thread reads it before or after.
    unsafe {
        variable::place().write_volatile(purse);
    }
    #[cfg(not(rseq))]
    let _ = purse;
}

/// Does something while the calling thread has another purse.
#[cfg(all(rseq, test))]
pub(in crate::percpu) fn with<T>(purse: &Purse, work: impl FnOnce() -> T) -> T {
    let before = get();
    // SAFETY: it has that one for as long as the reference lives: until the work is done.
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

    /// How far the variable lies from the thread pointer, in every thread.
    pub(in crate::percpu) fn distance() -> isize {
        distance_of!(purse)
    }

    pub(super) fn place() -> *mut &'static Purse {
        ptr::with_exposed_provenance_mut(thread_pointer().wrapping_add_signed(distance()))
    }
}

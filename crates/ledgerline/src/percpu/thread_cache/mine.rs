//! The calling thread's cache: a thread-local variable that sections can read.
//!
//! The **linker** puts it at the same distance from the thread pointer in all threads. So a section needs only that
//! distance, and a fiber that continues on another thread finds that thread's cache. A thread-local variable of Rust
//! may lie anywhere, and the compiler may keep its address across the call that moves a fiber. A library that is opened
//! later gets its eight bytes from the C library's reserve. musl has no such reserve, but there the rseq area has the
//! same requirement (`own_area.rs`).

use super::ThreadCache;
#[cfg(rseq)]
pub(in crate::percpu) use variable::distance;

/// Returns zero: without sections there is no variable, since nothing reads it.
#[cfg(not(rseq))]
pub(super) fn distance() -> isize {
    0
}

/// The thread cache of a thread that has not got one yet.
static NONE_YET: ThreadCache = ThreadCache::of_none();

/// Returns the calling thread's cache, or one that is never open.
#[inline]
pub(super) fn get() -> &'static ThreadCache {
    #[cfg(rseq)]
    // SAFETY: the calling thread's variable, which points to a thread cache from the thread's start to its end. It is read at
    // once.
    return unsafe { *variable::place() };
    #[cfg(not(rseq))]
    &NONE_YET
}

/// Makes this the calling thread's cache.
pub(super) fn set(thread_cache: &'static ThreadCache) {
    #[cfg(rseq)]
    // SAFETY: as above. A section of this thread reads it before or after.
    unsafe {
        variable::place().write_volatile(thread_cache);
    }
    #[cfg(not(rseq))]
    let _ = thread_cache;
}

/// Calls `work` while the calling thread has another thread cache.
#[cfg(all(rseq, test))]
pub(in crate::percpu) fn with<T>(thread_cache: &ThreadCache, work: impl FnOnce() -> T) -> T {
    let before = get();
    // SAFETY: the thread has this thread cache only until the work is done, and the reference lives that long.
    set(unsafe { &*std::ptr::from_ref(thread_cache) });
    let done = work();
    set(before);
    done
}

#[cfg(rseq)]
mod variable {
    use super::{NONE_YET, ThreadCache};
    use crate::percpu::linked::{distance_of, of_this_version, thread_local_at_a_distance};
    use crate::percpu::thread_pointer;
    use std::ptr;

    macro_rules! thread_cache {
        () => {
            of_this_version!("ledgerline_thread_cache_")
        };
    }

    thread_local_at_a_distance!(thread_cache in ".tdata." "@progbits", "8": ".quad {none}", none = sym NONE_YET);

    /// Returns the distance of the variable from the thread pointer, the same in every thread.
    pub(in crate::percpu) fn distance() -> isize {
        distance_of!(thread_cache)
    }

    pub(super) fn place() -> *mut &'static ThreadCache {
        ptr::with_exposed_provenance_mut(thread_pointer().wrapping_add_signed(distance()))
    }
}

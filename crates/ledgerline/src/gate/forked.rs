//! Reports which threads a forked child does not have.
//!
//! `fork` copies the memory of all threads, but only the calling thread itself. The program's own callbacks run while
//! nothing is locked and may take any time, so no fork waits for them, as it does for slow paths (`lock.rs`). A child
//! may therefore find a callback in progress that never ends. So a thread inside a callback leaves the *number* of its
//! thread there, and a thread that waits for the callback asks whether that thread is here.
//!
//! Numbers are assigned in order and never reused, so a child needs two words: of the numbers that the parent had
//! assigned, only that of the forking thread exists in the child. An address would not do: a new thread of the child
//! may get the address of a lost one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last number that was assigned.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// The last number that was assigned when this process was forked, and the number of the thread that forked it.
/// Relaxed: they are written while there is one thread, which starts all others.
static BEFORE: AtomicU64 = AtomicU64::new(0);
static FORKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// A plain word with nothing to drop; zero until the first call of `thread`.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of the calling thread. It is not zero, is below 2^63, and is never the number of another thread.
#[must_use]
pub fn thread() -> u64 {
    if NUMBER.get() == 0 {
        // Relaxed: it orders nothing.
        NUMBER.set(GIVEN.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

/// Returns whether a thread with this number may be inside a callback, that is, whether no fork left it behind. Returns
/// `false` for zero. A thread that has ended counts as here; no thread ends inside a callback. This relies on fork
/// handlers, which every function that registers a callback installs (`lock::guard_forks`). A child made by the bare
/// system call does not notice the fork.
#[must_use]
pub fn is_here(thread: u64) -> bool {
    thread > BEFORE.load(Ordering::Relaxed)
        || thread != 0 && thread == FORKED.load(Ordering::Relaxed)
}

/// Forgets all threads but the calling one. Called in a child that was just forked.
pub(crate) fn forget_others() {
    FORKED.store(NUMBER.get(), Ordering::Relaxed);
    BEFORE.store(GIVEN.load(Ordering::Relaxed), Ordering::Relaxed);
}

//! Tells which threads a forked child does not have.
//!
//! `fork` copies the memory of all threads, and only the thread that calls it. The program's own functions run while nothing
//! is locked, and may take any time, so no fork waits for them (as it does for slow paths, `lock.rs`). A child finds such a
//! call under way that never ends. So whoever is inside one leaves the *number* of its thread there, and whoever waits for
//! it asks whether that thread is here.
//!
//! Numbers are given in order and never again, so a child needs two words: of those up to the last one that the parent had
//! given, it has the thread that forked. (An address would not do: a child's new thread may have that of a lost one.)

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last number that was given.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// The last number that was given when this process was forked, and the number of the thread that forked it. (Relaxed: they
/// are written while there is one thread, which starts all others.)
static BEFORE: AtomicU64 = AtomicU64::new(0);
static FORKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// A plain word with nothing to drop; zero until somebody asks.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The number of the calling thread. It is not zero, is below 2^63, and no other thread has it, or will.
#[must_use]
pub fn thread() -> u64 {
    if NUMBER.get() == 0 {
        // Relaxed: it orders nothing.
        NUMBER.set(GIVEN.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

/// Whether a thread with this number may be inside of something: it was not left behind by a fork. `false` for zero. (One that
/// has ended counts as here; nobody ends inside.) It takes handlers, which every function that registers a callback
/// has installed (`lock::guard_forks`); a child by the bare system call knows of no fork.
#[must_use]
pub fn is_here(thread: u64) -> bool {
    thread > BEFORE.load(Ordering::Relaxed)
        || thread != 0 && thread == FORKED.load(Ordering::Relaxed)
}

/// In a child that was forked just now: the calling thread is the only one.
pub(crate) fn forget_others() {
    FORKED.store(NUMBER.get(), Ordering::Relaxed);
    BEFORE.store(GIVEN.load(Ordering::Relaxed), Ordering::Relaxed);
}

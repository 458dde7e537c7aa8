//! Maps threads to the columns that they own.
//!
//! A thread finds its *thread slot* by its thread pointer, without a thread-local variable. So the search costs the same in a
//! program and in a shared library, and works from a thread's first instruction to its last. A fiber that moves to
//! another thread finds that thread's slot. A thread slot names the column that its thread owns.
//!
//! ```text
//! own:       the thread slot at the hash of my thread pointer has my thread pointer: its column is mine
//! claim:     the thread slot is free, and a column is free: both are mine, until my thread ends
//! otherwise: another thread has the thread slot, or no column is left: I share columns with others, by atomics
//! ```
//!
//! A thread slot is never taken from a living thread. A dying thread gives it back, in the destructor of a key of the C
//! library. A thread that ends without that leaves its thread slot to the next thread with the same pointer, and its column is
//! lost until there is one.

use super::machine::{possible_cpus, thread_pointer};
use super::owned::Owner;
use super::word::STRIDE_SHIFT;
use crate::os::at_end::AtEnd;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The most columns that threads can own at a time.
pub(crate) const OWNED_MAX: u32 = 64;
/// The number of thread slots, as a shift: many times the number of columns, so that two threads seldom want the same thread
/// slot.
pub(super) const THREAD_SLOTS_SHIFT: u32 = 10;
/// The size of a thread slot, as a shift.
#[cfg(owned_windows)]
pub(super) const THREAD_SLOT_SHIFT: u32 = 7;
#[cfg(owned_windows)]
const _: () = assert!(size_of::<ThreadSlot>() == 1 << THREAD_SLOT_SHIFT);
/// Fibonacci hashing, which spreads addresses at equal distances evenly. It has 32 bits, which fit into an instruction,
/// so stacks that lie a multiple of 4 GiB apart want the same thread slot.
pub(super) const HASH: u32 = 0x9e37_79b1;
/// In a thread slot: its thread is claiming a column. Thread pointers are even, so the bit is free.
const CLAIMS: usize = 1;

/// The place of one thread. It lies on its own lines, since its thread writes it all the time.
#[repr(C, align(128))]
pub(super) struct ThreadSlot {
    /// The thread pointer of the thread slot's thread, with [`CLAIMS`] while its column is not known yet; 0 if the thread slot is
    /// free.
    pub(super) who: AtomicUsize,
    /// Its column's distance from the first column.
    pub(super) offset: AtomicUsize,
    pub(super) owner: Owner,
}

impl ThreadSlot {
    const fn new() -> ThreadSlot {
        ThreadSlot { who: AtomicUsize::new(0), offset: AtomicUsize::new(0), owner: Owner::new() }
    }
}

pub(super) static THREAD_SLOTS: [ThreadSlot; 1 << THREAD_SLOTS_SHIFT] =
    [const { ThreadSlot::new() }; 1 << THREAD_SLOTS_SHIFT];
/// For each column that threads may own, the thread slot that had it last.
static HOLDERS: [AtomicUsize; OWNED_MAX as usize] =
    [const { AtomicUsize::new(0) }; OWNED_MAX as usize];
/// A bit for each column without an owner.
static FREE: AtomicU64 = AtomicU64::new(0);
/// Gives a thread slot back when its thread ends. Active only if threads own columns.
static AT_END: AtEnd = AtEnd::new();

/// Returns how many columns threads may own at a time in `Mode::Owned`.
pub(super) fn owned_columns() -> u32 {
    possible_cpus().clamp(32, OWNED_MAX)
}

/// Lets threads own this many columns, at most [`OWNED_MAX`]. Returns `false` if the C library cannot report the end of
/// a thread, or not without allocating memory. Called once.
pub(super) fn begin(columns: u32) -> bool {
    if !AT_END.begin(ends) {
        return false;
    }
    // Release, partner of the Acquire in `claim`: a thread that finds a column finds the key.
    FREE.store(u64::MAX >> (64 - columns.clamp(1, OWNED_MAX)), Ordering::Release);
    true
}

impl ThreadSlot {
    fn column(&self) -> u32 {
        (self.offset.load(Ordering::Relaxed) >> STRIDE_SHIFT) as u32
    }
}

#[inline(always)]
fn thread_slot_index(pointer: usize) -> usize {
    ((pointer as u32).wrapping_mul(HASH) >> (32 - THREAD_SLOTS_SHIFT)) as usize
}

#[inline(always)]
fn thread_slot(pointer: usize) -> &'static ThreadSlot {
    &THREAD_SLOTS[thread_slot_index(pointer)]
}

/// Returns the calling thread's slot, if it owns a column.
#[inline(always)]
pub(super) fn own() -> Option<&'static ThreadSlot> {
    let pointer = thread_pointer();
    let thread_slot = thread_slot(pointer);
    // Relaxed: if it is this thread's pointer, this thread wrote it.
    (thread_slot.who.load(Ordering::Relaxed) == pointer).then_some(thread_slot)
}

/// Returns the present owner of a column, or the last one.
pub(super) fn owner(column: u32) -> Option<&'static Owner> {
    // Relaxed: after a fence this is the owner that was in a window before (see `claim`).
    let holder = HOLDERS.get(number(column)?)?.load(Ordering::Relaxed);
    Some(&THREAD_SLOTS[holder].owner)
}

/// Returns the number of a column among those that threads may own.
fn number(column: u32) -> Option<usize> {
    column.checked_sub(possible_cpus()).map(|number| number as usize)
}

/// Returns the column that the calling thread owns, and claims one if it has none. Returns `None` if none is left for
/// it, and in a signal handler that interrupted a window. Async-signal-safe.
pub(super) fn column() -> Option<u32> {
    let thread_slot = own().or_else(claim)?;
    thread_slot.owner.is_outside().then(|| thread_slot.column())
}

#[cold]
fn claim() -> Option<&'static ThreadSlot> {
    let pointer = thread_pointer();
    let thread_slot = thread_slot(pointer);
    if thread_slot.who.load(Ordering::Relaxed) != 0 || FREE.load(Ordering::Acquire) == 0 {
        return None;
    }
    // A signal handler that comes from here on, before the thread slot is complete, finds the thread slot unusable. Acquire,
    // partner of the Release in `give_back`.
    let claims = (Ordering::Acquire, Ordering::Relaxed);
    thread_slot.who.compare_exchange(0, pointer | CLAIMS, claims.0, claims.1).ok()?;
    let lowest = |free: u64| (free != 0).then_some(free & free.wrapping_sub(1));
    // Acquire, likewise: the last owner's stores are seen.
    let Ok(free) = FREE.fetch_update(Ordering::Acquire, Ordering::Acquire, lowest) else {
        thread_slot.who.store(0, Ordering::Release);
        return None;
    };
    let number = free.trailing_zeros();
    let index = thread_slot_index(pointer);
    // Stored before the first window, so that a stealer's fence makes it visible to every thread that needs to see that
    // window.
    HOLDERS[number as usize].store(index, Ordering::Relaxed);
    thread_slot
        .offset
        .store(((possible_cpus() + number) as usize) << STRIDE_SHIFT, Ordering::Relaxed);
    if !AT_END.set(ptr::from_ref(thread_slot).cast()) {
        give_back(thread_slot);
        return None;
    }
    thread_slot.who.store(pointer, Ordering::Relaxed);
    Some(thread_slot)
}

/// Gives back the thread slot of a thread that ends. If the thread charges again after this, it claims again, and this runs
/// again, up to four times. After that its column is lost until another thread has its pointer.
extern "C" fn ends(thread_slot: *mut c_void) {
    // SAFETY: the key's value is a thread slot, which is static.
    let thread_slot = unsafe { &*thread_slot.cast_const().cast::<ThreadSlot>() };
    if thread_slot.who.load(Ordering::Relaxed) == thread_pointer() {
        give_back(thread_slot);
    }
}

fn give_back(thread_slot: &ThreadSlot) {
    let number = thread_slot.column() - possible_cpus();
    // A window that a signal handler left by a jump, or by ending the thread, is over now. SAFETY: a thread in a window
    // borrows the ledger and has not returned from the call.
    unsafe { thread_slot.owner.forget() };
    // The thread slot is freed first: a signal handler in between finds none, and claims another column.
    thread_slot.who.store(0, Ordering::Release);
    FREE.fetch_or(1 << number, Ordering::Release);
}

/// Gives back the thread slots of threads that do not exist in this process, a forked child. Its one thread may be in the
/// middle of anything, so its own thread slot stays.
pub(crate) fn forget_other_threads() {
    if !AT_END.has_begun() {
        return;
    }
    let own = thread_pointer();
    for thread_slot in &THREAD_SLOTS {
        let who = thread_slot.who.load(Ordering::Relaxed);
        if who == 0 || who & !CLAIMS == own {
            continue;
        }
        // A thread that was claiming may have no column yet. If it had one, that is lost.
        if who & CLAIMS == 0 {
            give_back(thread_slot);
        } else {
            thread_slot.who.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

//! Maps threads to the columns that they own.
//!
//! A thread finds its *seat* by its thread pointer, without a thread-local variable. So the search costs the same in a
//! program and in a shared library, and works from a thread's first instruction to its last. A fiber that moves to
//! another thread finds that thread's seat. A seat names the column that its thread owns.
//!
//! ```text
//! own:       the seat at the hash of my thread pointer has my thread pointer: its column is mine
//! claim:     the seat is free, and a column is free: both are mine, until my thread ends
//! otherwise: another thread has the seat, or no column is left: I share columns with others, by atomics
//! ```
//!
//! A seat is never taken from a living thread. A dying thread gives it back, in the destructor of a key of the C
//! library. A thread that ends without that leaves its seat to the next thread with the same pointer, and its column is
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
/// The number of seats, as a shift: many times the number of columns, so that two threads seldom want the same seat.
pub(super) const SEATS_SHIFT: u32 = 10;
/// The size of a seat, as a shift.
#[cfg(owned_windows)]
pub(super) const SEAT_SHIFT: u32 = 7;
#[cfg(owned_windows)]
const _: () = assert!(size_of::<Seat>() == 1 << SEAT_SHIFT);
/// Fibonacci hashing, which spreads addresses at equal distances evenly. It has 32 bits, which fit into an instruction,
/// so stacks that lie a multiple of 4 GiB apart want the same seat.
pub(super) const HASH: u32 = 0x9e37_79b1;
/// In a seat: its thread is claiming a column. Thread pointers are even, so the bit is free.
const CLAIMS: usize = 1;

/// The place of one thread. It lies on its own lines, since its thread writes it all the time.
#[repr(C, align(128))]
pub(super) struct Seat {
    /// The thread pointer of the seat's thread, with [`CLAIMS`] while its column is not known yet; 0 if the seat is
    /// free.
    pub(super) who: AtomicUsize,
    /// Its column's distance from the first column.
    pub(super) offset: AtomicUsize,
    pub(super) owner: Owner,
}

impl Seat {
    const fn new() -> Seat {
        Seat { who: AtomicUsize::new(0), offset: AtomicUsize::new(0), owner: Owner::new() }
    }
}

pub(super) static SEATS: [Seat; 1 << SEATS_SHIFT] = [const { Seat::new() }; 1 << SEATS_SHIFT];
/// For each column that threads may own, the seat that had it last.
static HOLDERS: [AtomicUsize; OWNED_MAX as usize] =
    [const { AtomicUsize::new(0) }; OWNED_MAX as usize];
/// A bit for each column without an owner.
static FREE: AtomicU64 = AtomicU64::new(0);
/// Gives a seat back when its thread ends. Active only if threads own columns.
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

impl Seat {
    fn column(&self) -> u32 {
        (self.offset.load(Ordering::Relaxed) >> STRIDE_SHIFT) as u32
    }
}

#[inline(always)]
fn seat_index(pointer: usize) -> usize {
    ((pointer as u32).wrapping_mul(HASH) >> (32 - SEATS_SHIFT)) as usize
}

#[inline(always)]
fn seat(pointer: usize) -> &'static Seat {
    &SEATS[seat_index(pointer)]
}

/// Returns the calling thread's seat, if it owns a column.
#[inline(always)]
pub(super) fn own() -> Option<&'static Seat> {
    let pointer = thread_pointer();
    let seat = seat(pointer);
    // Relaxed: if it is this thread's pointer, this thread wrote it.
    (seat.who.load(Ordering::Relaxed) == pointer).then_some(seat)
}

/// Returns the present owner of a column, or the last one.
pub(super) fn owner(column: u32) -> Option<&'static Owner> {
    // Relaxed: after a fence this is the owner that was in a window before (see `claim`).
    let holder = HOLDERS.get(number(column)?)?.load(Ordering::Relaxed);
    Some(&SEATS[holder].owner)
}

/// Returns the number of a column among those that threads may own.
fn number(column: u32) -> Option<usize> {
    column.checked_sub(possible_cpus()).map(|number| number as usize)
}

/// Returns the column that the calling thread owns, and claims one if it has none. Returns `None` if none is left for
/// it, and in a signal handler that interrupted a window. Async-signal-safe.
pub(super) fn column() -> Option<u32> {
    let seat = own().or_else(claim)?;
    seat.owner.is_outside().then(|| seat.column())
}

#[cold]
fn claim() -> Option<&'static Seat> {
    let pointer = thread_pointer();
    let seat = seat(pointer);
    if seat.who.load(Ordering::Relaxed) != 0 || FREE.load(Ordering::Acquire) == 0 {
        return None;
    }
    // A signal handler that comes from here on, before the seat is complete, finds the seat unusable. Acquire, partner
    // of the Release in `give_back`.
    let claims = (Ordering::Acquire, Ordering::Relaxed);
    seat.who.compare_exchange(0, pointer | CLAIMS, claims.0, claims.1).ok()?;
    let lowest = |free: u64| (free != 0).then_some(free & free.wrapping_sub(1));
    // Acquire, likewise: the last owner's stores are seen.
    let Ok(free) = FREE.fetch_update(Ordering::Acquire, Ordering::Acquire, lowest) else {
        seat.who.store(0, Ordering::Release);
        return None;
    };
    let number = free.trailing_zeros();
    let index = seat_index(pointer);
    // Stored before the first window, so that a taker's fence makes it visible to every thread that needs to see that
    // window.
    HOLDERS[number as usize].store(index, Ordering::Relaxed);
    seat.offset.store(((possible_cpus() + number) as usize) << STRIDE_SHIFT, Ordering::Relaxed);
    if !AT_END.set(ptr::from_ref(seat).cast()) {
        give_back(seat);
        return None;
    }
    seat.who.store(pointer, Ordering::Relaxed);
    Some(seat)
}

/// Gives back the seat of a thread that ends. If the thread charges again after this, it claims again, and this runs
/// again, up to four times. After that its column is lost until another thread has its pointer.
extern "C" fn ends(seat: *mut c_void) {
    // SAFETY: the key's value is a seat, which is static.
    let seat = unsafe { &*seat.cast_const().cast::<Seat>() };
    if seat.who.load(Ordering::Relaxed) == thread_pointer() {
        give_back(seat);
    }
}

fn give_back(seat: &Seat) {
    let number = seat.column() - possible_cpus();
    // A window that a signal handler left by a jump, or by ending the thread, is over now. SAFETY: a thread in a window
    // borrows the ledger and has not returned from the call.
    unsafe { seat.owner.forget() };
    // The seat is freed first: a signal handler in between finds none, and claims another column.
    seat.who.store(0, Ordering::Release);
    FREE.fetch_or(1 << number, Ordering::Release);
}

/// Gives back the seats of threads that do not exist in this process, a forked child. Its one thread may be in the
/// middle of anything, so its own seat stays.
pub(crate) fn forget_other_threads() {
    if !AT_END.has_begun() {
        return;
    }
    let own = thread_pointer();
    for seat in &SEATS {
        let who = seat.who.load(Ordering::Relaxed);
        if who == 0 || who & !CLAIMS == own {
            continue;
        }
        // A thread that was claiming may have no column yet. If it had one, that is lost.
        if who & CLAIMS == 0 {
            give_back(seat);
        } else {
            seat.who.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

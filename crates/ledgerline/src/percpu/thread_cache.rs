//! A thread cache: prepaid units of one group that one thread carries along.
//!
//! A thread that charges one group repeatedly need not find the CPU that it runs on, nor check whether the cell there
//! still serves the group: it has its own word. A drain that wants the units freezes the word, as with cells.
//!
//! ```text
//!  63 62                           32 31 30     18 17            0
//! +--+-------------------------------+--+---------+---------------+
//! |F |             units             |g |uncharges|    charges    |
//! +--+-------------------------------+--+---------+---------------+
//! ```
//!
//! *F* is frozen: a drain takes the units, or has taken them and closed the thread cache. The units are in the uppermost bits. So
//! the difference of a take is negative, as a signed number without overflow, if the units do not suffice or the word is
//! frozen. The sum of a put is larger than `most` if the word is frozen or there would be too many units. A put adds at most
//! [`MOST`] units, so nothing overflows.
//!
//! The counts restart whenever units are fetched or brought back. Only `put` checks whether they are full: the uncharges by
//! their guard, and the charges by bit 16. Between two such checks there are at most [`MOST`] takes, which is 2^16, since
//! each takes at least one unit. So the charges stay below 2^18.
//!
//! ```text
//! take(group, n, label):                      put(number, n):
//!   restart:                                    restart:
//!     area.rseq_cs = &descriptor                  area.rseq_cs = &descriptor
//!     cache = this thread's                       cache = this thread's
//!     if cache.group != group: fail               if cache.number != number: fail
//!     sum = cache.word - n units + CHARGE         sum = first(cache.word) + n units + UNCHARGE
//!     if sum < 0:              fail               if sum > cache.most:       fail
//!     label = cache.number                        if sum & GUARDS != 0:      fail
//!     cache.word = sum         // commit          cache.word = sum           // commit
//! ```
//!
//! All checks are inside the section: a signal handler may open the thread's cache for another group, and a fiber may
//! continue on another thread, which has another thread cache. In both cases the section is restarted. The label is the
//! shadow's entry of a block that no other thread has yet. A section that fails may have written it, so the thread that
//! makes the block then writes it again. All other code that changes a thread cache has the stock lock
//! (`stock/thread_caches.rs`).

#[cfg(not(loom))]
pub(super) mod mine;
#[cfg(not(loom))]
pub(crate) mod places;
#[cfg(not(loom))]
#[cfg_attr(not(rseq), allow(unused, reason = "nothing runs a section"))]
pub(super) mod sections;

#[cfg(not(loom))]
use super::probe;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicIsize, AtomicU16};

/// The most units that a thread cache may hold, and that may move at a time (see above).
pub(crate) const MOST: u64 = 1 << 16;

const UNITS_SHIFT: u32 = 32;
const CHARGE: u64 = 1;
const UNCHARGES_SHIFT: u32 = 18;
const UNCHARGE: u64 = 1 << UNCHARGES_SHIFT;
const CHARGES: u64 = UNCHARGE - 1;
const UNCHARGES: u64 = (1 << (UNITS_SHIFT - UNCHARGES_SHIFT)) - 1;
/// See above.
const GUARDS: u32 = 1 << 31 | 1 << 16;
const FROZEN: u64 = 1 << 63;

/// The distances from the thread pointer at which the sections find the calling thread's data.
#[cfg(not(loom))]
struct Own {
    /// The registration; 0 if thread caches do not serve: no thread has one yet, or the allocator [accounts](serve) for
    /// nothing.
    area: AtomicIsize,
    /// The variable that points to its thread cache (`mine.rs`).
    mine: AtomicIsize,
}

#[cfg(not(loom))]
static OWN: Own = Own { area: AtomicIsize::new(0), mine: AtomicIsize::new(0) };

/// Returns the distances of [`Own`], or `None` if thread caches do not serve.
#[cfg(not(loom))]
#[inline(always)]
fn own() -> Option<(isize, isize)> {
    // Acquire, partner of the SeqCst in `serve`: the other one was stored before.
    let area = OWN.area.load(Ordering::Acquire);
    // With musl each thread has its own area.
    let area = if cfg!(own_area) && area != 0 { probe::fast_area() } else { area };
    (area != 0).then(|| (area, OWN.mine.load(Ordering::Relaxed)))
}

/// Enables or disables thread caches.
#[cfg(not(loom))]
pub(crate) fn serve(serve: bool) {
    OWN.mine.store(mine::distance(), Ordering::Relaxed);
    OWN.area.store(if serve { probe::fast_area() } else { 0 }, Ordering::SeqCst);
}

/// Takes `units`, at most [`MOST`], out of the calling thread's cache, counts a charge, and writes the group's number
/// to `label`, if the thread cache is the group's and has enough. If it returns `false`, it may have written to `label`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn take(group: u64, units: u64, label: &AtomicU16) -> bool {
    debug_assert!(units <= MOST);
    // SAFETY: the distances are the same in all threads, so they are those of the calling thread. Guarded by
    // `tests/alloc/alloc_thread_caches.rs`.
    own().is_some_and(|(area, mine)| unsafe {
        sections::take(area, mine, group, taken(units), label.as_ptr())
    })
}

/// Puts `units`, at most [`MOST`], back into the calling thread's cache and counts an uncharge, if the thread cache belongs to
/// the number's group and has room.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn put(number: u16, units: u64) -> bool {
    debug_assert!(units <= MOST);
    // SAFETY: as above.
    own().is_some_and(|(area, mine)| unsafe {
        sections::put(area, mine, number.into(), put_back(units))
    })
}

/// Returns the amount that `take` subtracts from the word.
#[inline(always)]
pub(crate) const fn taken(units: u64) -> u64 {
    (units << UNITS_SHIFT).wrapping_sub(CHARGE)
}

/// Returns the amount that `put` adds to the word.
#[inline(always)]
pub(crate) const fn put_back(units: u64) -> u64 {
    units << UNITS_SHIFT | UNCHARGE
}

/// Returns the units in a word.
pub(crate) const fn units(word: u64) -> u64 {
    (word & !FROZEN) >> UNITS_SHIFT
}

/// Returns the charges and uncharges that a word counts.
pub(crate) const fn counts(word: u64) -> (u64, u64) {
    (word & CHARGES, word >> UNCHARGES_SHIFT & UNCHARGES)
}

/// Returns whether a drain has the thread cache.
pub(crate) const fn is_frozen(word: u64) -> bool {
    word & FROZEN != 0
}

/// See the module's documentation. It lies on its own lines, since its thread writes it all the time.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ThreadCache {
    word: AtomicU64,
    /// The most units that it may hold, with all the bits below set.
    most: AtomicU64,
    /// The group, packed; 0 before there is one. Only the thread cache's thread writes this and the fields below.
    group: AtomicU64,
    /// The allocator's number of the group; 0 before there is one, which is the number of no block with an owner.
    number: AtomicU64,
    /// The address of the group's table.
    table: AtomicUsize,
    /// The thread pointer of the thread that has it; 0 if it is free.
    who: AtomicUsize,
}

impl ThreadCache {
    /// Makes a closed thread cache without a thread: all zeros, which take no space in a program's file.
    #[cfg(not(loom))]
    const fn new() -> ThreadCache {
        ThreadCache {
            word: AtomicU64::new(0),
            most: AtomicU64::new(0),
            group: AtomicU64::new(0),
            number: AtomicU64::new(0),
            table: AtomicUsize::new(0),
            who: AtomicUsize::new(0),
        }
    }

    /// Like [`new`](Self::new), but with a group that matches none, not even group 0 of unaccounted memory.
    #[cfg(not(loom))]
    const fn of_none() -> ThreadCache {
        ThreadCache { group: AtomicU64::new(u64::MAX), ..ThreadCache::new() }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> ThreadCache {
        let [word, most, group, number] = [0; 4].map(AtomicU64::new);
        let [table, who] = [0; 2].map(AtomicUsize::new);
        ThreadCache { word, most, group, number, table, who }
    }

    /// Returns the group that it was opened for last, packed.
    #[inline(always)]
    pub(crate) fn group(&self) -> u64 {
        self.group.load(Ordering::Relaxed)
    }

    /// Returns whether it is open for a group, packed, and no drain has it.
    #[inline(always)]
    pub(crate) fn is_open_for(&self, group: u64) -> bool {
        self.group() == group && !is_frozen(self.word())
    }

    /// Returns the allocator's number of the group.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Returns the address of the group's table.
    pub(crate) fn table(&self) -> usize {
        self.table.load(Ordering::Relaxed)
    }

    /// Returns the word. Acquire, partner of the Releases below: a thread that sees units sees the usage that includes
    /// them.
    pub(crate) fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Returns the most units that it may hold.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed) >> UNITS_SHIFT
    }

    /// Returns the word that a section would store, or `None` if it stores nothing.
    #[cfg(loom)]
    pub(crate) fn sum(&self, delta: u64, put: bool) -> Option<u64> {
        let word = self.word();
        if put {
            let sum = word.wrapping_add(delta);
            let most = self.most.load(Ordering::Relaxed);
            return (sum <= most && sum as u32 & GUARDS == 0).then_some(sum);
        }
        // A frozen word with too few units overflows: the true difference is still negative.
        (word as i64).checked_sub(delta as i64).filter(|&sum| sum >= 0).map(|sum| sum as u64)
    }

    /// Stores the word of a section. See `models::Cpu` for why this is an exchange.
    #[cfg(loom)]
    pub(crate) fn commit(&self, sum: u64) {
        self.word.swap(sum, Ordering::AcqRel);
    }

    /// Returns whether it belongs to a thread.
    pub(crate) fn is_of(&self, thread: usize) -> bool {
        self.who.load(Ordering::Relaxed) == thread
    }

    /// Replaces group 0 in a place that was never opened, so that comparisons with unaccounted memory cannot match it.
    #[cfg(not(loom))]
    fn forget_group(&self) {
        if self.group() == 0 {
            self.group.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Gives it to a thread, or frees it with 0.
    pub(super) fn give_to(&self, thread: usize) {
        // Release, partner of the Acquire in `places::claim`.
        self.who.store(thread, Ordering::Release);
    }

    /// Opens the thread cache of the calling thread for a group. The caller has the stock lock, and the thread cache is closed.
    pub(crate) fn open(&self, group: u64, number: u64, table: usize, most: u64) {
        self.group.store(group, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.table.store(table, Ordering::Relaxed);
        self.most.store(most << UNITS_SHIFT | u64::from(u32::MAX), Ordering::Relaxed);
        // Release: a thread that reads the open word finds the rest. A thread that takes the thread cache also has the lock.
        self.word.store(0, Ordering::Release);
    }

    /// Freezes the thread cache: the first step of taking another thread's cache, as with a cell. Its own thread needs no
    /// further step.
    pub(crate) fn freeze(&self) {
        self.word.fetch_or(FROZEN, Ordering::AcqRel);
    }

    /// Undoes [`freeze`](Self::freeze).
    pub(crate) fn thaw(&self) {
        self.word.fetch_and(!FROZEN, Ordering::AcqRel);
    }

    /// Closes a thread cache that the caller has taken: it was frozen, and still was after a fence. Returns its word and its
    /// most.
    pub(crate) fn close(&self) -> (u64, u64) {
        let most = self.most();
        self.most.store(0, Ordering::Relaxed);
        (self.word.swap(FROZEN, Ordering::AcqRel), most)
    }

    /// Adds or removes units, if that leaves neither too few nor too many. Takes out and returns the counts: charges
    /// and uncharges. Called by its thread, which has the stock lock. It is one exchange, since a signal handler may
    /// charge in between.
    pub(crate) fn change(&self, units: i64) -> Option<(u64, u64)> {
        let most = self.most();
        let changed = |word: u64| {
            let sum = self::units(word).checked_add_signed(units)?;
            (!is_frozen(word) && sum <= most).then_some(sum << UNITS_SHIFT)
        };
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, changed);
        before.ok().map(counts)
    }
}

#[cfg(all(test, rseq))]
mod tests;

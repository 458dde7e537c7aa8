//! A purse: prepaid units of one group that one thread carries along.
//!
//! A thread that charges one group again and again need not ask which CPU it runs on, nor whether the cell there still
//! serves the group: it has a word of its own, and a drain that wants the units freezes it, as it does with cells.
//!
//! ```text
//!  63 62                           32 31 30     18 17            0
//! +--+-------------------------------+--+---------+---------------+
//! |F |             units             |g |uncharges|    charges    |
//! +--+-------------------------------+--+---------+---------------+
//! ```
//!
//! *F* is frozen: a drain takes the units, or has taken them and closed the purse. The units are uppermost, so that a sum is
//! negative (as a signed number of more bits than it has) where they do not suffice or the word is frozen, and larger than `most`
//! where it is frozen or there would be too many (of at most [`MOST`], so that nothing overflows). The counts begin anew whenever
//! units are fetched or brought back. `put` alone looks whether they are full: the uncharges by their guard, the charges by bit
//! 16. Between two looks each of at most [`MOST`] takes, which are 2^16, has a unit at least, so the charges stay below 2^18.
//!
//! ```text
//! take(group, n, label):                      put(number, n):
//!   restart:                                    restart:
//!     area.rseq_cs = &descriptor                  area.rseq_cs = &descriptor
//!     purse = this thread's                       purse = this thread's
//!     if purse.group != group: fail               if purse.number != number: fail
//!     sum = purse.word - n units + CHARGE         sum = first(purse.word) + n units + UNCHARGE
//!     if sum < 0:              fail               if sum > purse.most:       fail
//!     label = purse.number                        if sum & GUARDS != 0:      fail
//!     purse.word = sum     // commit              purse.word = sum     // commit
//! ```
//!
//! All of that is asked inside the section, since a signal handler may open the thread's purse for another group, and a fiber may
//! go on on another thread, which has another purse; the section starts anew then. (The label is the shadow's entry of a block that
//! nobody else has yet: a section that fails may have written it, so whoever makes the block writes it anew then.) Everything else
//! that changes a purse has the stock lock (`stock/purses.rs`).

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

/// The most units that a purse may hold, and that move at a time (see above).
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

/// Where the sections find what is the calling thread's, as distances from the thread pointer.
#[cfg(not(loom))]
struct Own {
    /// The registration; 0 where purses do not serve: no thread has one yet, or the allocator [accounts](serve) for nothing.
    area: AtomicIsize,
    /// Which purse it has (`mine.rs`).
    mine: AtomicIsize,
}

#[cfg(not(loom))]
static OWN: Own = Own { area: AtomicIsize::new(0), mine: AtomicIsize::new(0) };

/// See [`Own`]; `None` where purses do not serve.
#[cfg(not(loom))]
#[inline(always)]
fn own() -> Option<(isize, isize)> {
    // Acquire, partner of the SeqCst in `serve`: the other one was stored before.
    let area = OWN.area.load(Ordering::Acquire);
    // (With musl each thread has its own.)
    let area = if cfg!(own_area) && area != 0 { probe::fast_area() } else { area };
    (area != 0).then(|| (area, OWN.mine.load(Ordering::Relaxed)))
}

/// Has purses serve, or not.
#[cfg(not(loom))]
pub(crate) fn serve(serve: bool) {
    OWN.mine.store(mine::distance(), Ordering::Relaxed);
    OWN.area.store(if serve { probe::fast_area() } else { 0 }, Ordering::SeqCst);
}

/// Takes `units`, at most [`MOST`], out of the calling thread's purse, counts a charge, and writes the group's number to `label`, if
/// the purse is the group's, and has them. Where it says `false` it may have written to `label`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn take(group: u64, units: u64, label: &AtomicU16) -> bool {
    debug_assert!(units <= MOST);
    // SAFETY: they are the calling thread's, as of all threads. Guarded by `tests/alloc/alloc_purses.rs`.
    own().is_some_and(|(area, mine)| unsafe {
        sections::take(area, mine, group, taken(units), label.as_ptr())
    })
}

/// Puts `units`, at most [`MOST`], back into the calling thread's purse and counts an uncharge, if the purse is that of the number's
/// group, and has room.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn put(number: u16, units: u64) -> bool {
    debug_assert!(units <= MOST);
    // SAFETY: as above.
    own().is_some_and(|(area, mine)| unsafe {
        sections::put(area, mine, number.into(), put_back(units))
    })
}

/// What `take` subtracts from the word.
#[inline(always)]
pub(crate) const fn taken(units: u64) -> u64 {
    (units << UNITS_SHIFT).wrapping_sub(CHARGE)
}

/// What `put` adds to the word.
#[inline(always)]
pub(crate) const fn put_back(units: u64) -> u64 {
    units << UNITS_SHIFT | UNCHARGE
}

/// The units in a word.
pub(crate) const fn units(word: u64) -> u64 {
    (word & !FROZEN) >> UNITS_SHIFT
}

/// The charges and uncharges that a word counts.
pub(crate) const fn counts(word: u64) -> (u64, u64) {
    (word & CHARGES, word >> UNCHARGES_SHIFT & UNCHARGES)
}

/// Whether a drain has the purse.
pub(crate) const fn is_frozen(word: u64) -> bool {
    word & FROZEN != 0
}

/// See the module's documentation. (On lines of its own: its thread writes it all the time.)
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Purse {
    word: AtomicU64,
    /// The most units that it may hold, with all the bits below set.
    most: AtomicU64,
    /// The group, packed; 0 before there is one. Its thread alone writes this and what follows.
    group: AtomicU64,
    /// The allocator's number of the group; 0, which no block with an owner bears, before there is one.
    number: AtomicU64,
    /// The address of the group's table.
    table: AtomicUsize,
    /// The thread pointer of the thread that has it; 0: nobody.
    who: AtomicUsize,
}

impl Purse {
    /// Closed, of nobody: all zeros, which take no room in a program's file.
    #[cfg(not(loom))]
    const fn new() -> Purse {
        Purse {
            word: AtomicU64::new(0),
            most: AtomicU64::new(0),
            group: AtomicU64::new(0),
            number: AtomicU64::new(0),
            table: AtomicUsize::new(0),
            who: AtomicUsize::new(0),
        }
    }

    /// As [`new`](Self::new), and of no group: not even of nobody, which is 0.
    #[cfg(not(loom))]
    const fn of_none() -> Purse {
        Purse { group: AtomicU64::new(u64::MAX), ..Purse::new() }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Purse {
        let [word, most, group, number] = [0; 4].map(AtomicU64::new);
        let [table, who] = [0; 2].map(AtomicUsize::new);
        Purse { word, most, group, number, table, who }
    }

    /// The group that it was opened for last, packed.
    #[inline(always)]
    pub(crate) fn group(&self) -> u64 {
        self.group.load(Ordering::Relaxed)
    }

    /// Whether it has units of a group, packed, and no drain has it.
    #[inline(always)]
    pub(crate) fn is_open_for(&self, group: u64) -> bool {
        self.group() == group && !is_frozen(self.word())
    }

    /// See the field.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// See the field.
    pub(crate) fn table(&self) -> usize {
        self.table.load(Ordering::Relaxed)
    }

    /// The word. Acquire, partner of the Releases below: who sees units sees the usage that holds them.
    pub(crate) fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// The most units that it may hold.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed) >> UNITS_SHIFT
    }

    /// What a section makes of the word; `None` where it stores nothing.
    #[cfg(loom)]
    pub(crate) fn sum(&self, delta: u64, put: bool) -> Option<u64> {
        let word = self.word();
        if put {
            let sum = word.wrapping_add(delta);
            let most = self.most.load(Ordering::Relaxed);
            return (sum <= most && sum as u32 & GUARDS == 0).then_some(sum);
        }
        // (A frozen word with too few units overflows: it is negative all the same.)
        (word as i64).checked_sub(delta as i64).filter(|&sum| sum >= 0).map(|sum| sum as u64)
    }

    /// What a section stores. (See `models::Cpu` for why this is an exchange.)
    #[cfg(loom)]
    pub(crate) fn commit(&self, sum: u64) {
        self.word.swap(sum, Ordering::AcqRel);
    }

    /// Whether it is a thread's.
    pub(crate) fn is_of(&self, thread: usize) -> bool {
        self.who.load(Ordering::Relaxed) == thread
    }

    /// Has a place that never was opened be nobody's no more, which is a group to who compares.
    #[cfg(not(loom))]
    fn forget_group(&self) {
        if self.group() == 0 {
            self.group.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Gives it to a thread, or to nobody.
    pub(super) fn give_to(&self, thread: usize) {
        // Release, partner of the Acquire in `places::claim`.
        self.who.store(thread, Ordering::Release);
    }

    /// The calling thread, which has the stock lock, opens its purse, which is closed, for a group.
    pub(crate) fn open(&self, group: u64, number: u64, table: usize, most: u64) {
        self.group.store(group, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.table.store(table, Ordering::Relaxed);
        self.most.store(most << UNITS_SHIFT | u64::from(u32::MAX), Ordering::Relaxed);
        // Release: who reads the open word finds the rest. (Whoever takes the purse has the lock besides.)
        self.word.store(0, Ordering::Release);
    }

    /// First step of taking another thread's purse, as with a cell. Its own thread needs no other.
    pub(crate) fn freeze(&self) {
        self.word.fetch_or(FROZEN, Ordering::AcqRel);
    }

    /// Gives up what [`freeze`](Self::freeze) began.
    pub(crate) fn thaw(&self) {
        self.word.fetch_and(!FROZEN, Ordering::AcqRel);
    }

    /// Closes a purse that is the caller's: it is frozen, and after a fence it still was. Returns its word and its most.
    pub(crate) fn close(&self) -> (u64, u64) {
        let most = self.most();
        self.most.store(0, Ordering::Relaxed);
        (self.word.swap(FROZEN, Ordering::AcqRel), most)
    }

    /// Its thread, which has the stock lock, adds units or takes some away, if that leaves neither too few nor too many, and
    /// takes the counts out, which it returns: charges and uncharges. (One exchange, since a signal handler may charge in
    /// between.)
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

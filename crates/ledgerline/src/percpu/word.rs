//! The charge word: everything that a charge changes, in the 64 bits that one store can change.
//!
//! ```text
//!  63            48 47 46       40 39 38       32 31 30                          0
//! +----------------+--+-----------+--+-----------+--+-----------------------------+
//! |   generation   |F | uncharges |g |  charges  |g |            stock            |
//! +----------------+--+-----------+--+-----------+--+-----------------------------+
//! ```
//!
//! | bits  | field      | meaning                                                           |
//! |-------|------------|-------------------------------------------------------------------|
//! | 0-30  | stock      | prepaid units that lie in this cell                               |
//! | 31    | guard      | set by the subtraction when the stock does not suffice            |
//! | 32-38 | charges    | charges since the last fold                                       |
//! | 39    | guard      | set by the addition when the count is full: fold                  |
//! | 40-46 | uncharges  | uncharges since the last fold                                     |
//! | 47    | guard      | count full; in memory it means *frozen*: a drain takes the stock  |
//! | 48-63 | generation | of the row that the cell serves; 0: the cell serves no group      |
//!
//! A charge of `n` adds `CHARGE - n`, an uncharge adds `UNCHARGE + n`: one addition moves the stock and the
//! count together. Every obstacle (too little stock, a full count, a frozen cell, a row that was destroyed
//! and reused) shows in the guards or the generation of the *sum*, so one test decides whether it may be
//! stored. A sum that fails the test is never stored, so only [`FROZEN`] sets bit 47 in memory.

use crate::os;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Columns lie 2^25 bytes apart, with room for 1 Mi cells of 16 bytes and as many counts. The distance is a constant,
/// so that finding a column is a shift. It costs only address space; where that is scarce, there are fewer cells.
pub(crate) const STRIDE_SHIFT: u32 = if os::LARGE_TABLES { 25 } else { 19 };
/// See [`STRIDE_SHIFT`].
pub(crate) const STRIDE: usize = 1 << STRIDE_SHIFT;

/// The most units that a cell can hold, and that one fast charge can move.
pub(crate) const STOCK_MAX: u64 = (1 << 31) - 1;
const STOCK: u64 = STOCK_MAX;
/// Added by a charge, besides the units that it takes.
pub(crate) const CHARGE: u64 = 1 << 32;
/// Added by an uncharge, besides the units that it puts.
pub(crate) const UNCHARGE: u64 = 1 << 40;
const COUNT_MASK: u64 = 0x7f;
const COUNTS: u64 = COUNT_MASK << 32 | COUNT_MASK << 40;
/// The cell belongs to the thread that set this bit, until it is cleared.
pub(crate) const FROZEN: u64 = 1 << 47;
const GUARDS: u64 = 1 << 31 | 1 << 39 | FROZEN;
const GENERATION: u64 = 0xffff << 48;
/// The bits that a sum must share with the group's id to be stored.
pub(crate) const TEST: u64 = GENERATION | GUARDS;
/// [`TEST`] in memory: with the constant in a register, a function of three arguments would have to save other
/// registers.
#[cfg(owned_windows)]
pub(crate) static TESTED: u64 = TEST;

/// Returns a word of the given generation with nothing in it.
pub(crate) const fn empty(generation: u16) -> u64 {
    (generation as u64) << 48
}

/// Returns the generation that the word serves; 0 if it serves no group.
pub(crate) const fn generation(word: u64) -> u16 {
    (word >> 48) as u16
}

/// Returns the prepaid units in the word.
pub(crate) const fn stock(word: u64) -> u64 {
    word & STOCK
}

/// Returns the charges counted in the word since its last fold.
pub(crate) const fn charges(word: u64) -> u64 {
    word >> 32 & COUNT_MASK
}

/// Returns the uncharges counted in the word since its last fold.
pub(crate) const fn uncharges(word: u64) -> u64 {
    word >> 40 & COUNT_MASK
}

/// Returns the word without its counts, which were folded elsewhere.
pub(crate) const fn without_counts(word: u64) -> u64 {
    word & !COUNTS
}

/// Returns whether either count is so full that the next operation would trip its guard.
pub(crate) const fn counts_full(word: u64) -> bool {
    charges(word) == COUNT_MASK || uncharges(word) == COUNT_MASK
}

/// Returns whether a group with this id may store the sum: the generations match, and no guard tripped.
///
/// `id` has the generation in its upper 16 bits and zeros in the places of the guards.
pub(crate) const fn passes(sum: u64, id: u64) -> bool {
    (sum ^ id) & TEST == 0
}

/// One row's cell in one column: 16 bytes, so that four groups share a line *of one CPU* and a
/// thousand groups fit in its first-level cache.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) word: AtomicU64,
    /// The most units that the stock may hold: the ancestors allowed this cell that many idle units.
    /// Written under the stock lock only.
    pub(crate) cap: AtomicU32,
    /// The direction of the last walk that this cell could not avoid (`walks`).
    last_walk: AtomicU32,
}

/// The direction in which units go in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Walk {
    Charge = 1,
    Uncharge = 2,
}

impl Cell {
    /// Adds `delta` to the word unless a guard trips or, for a put, the stock would pass the cap. This is the
    /// portable update; the assembly of `rseq.rs` does the same in plain instructions.
    ///
    /// AcqRel on success pairs with the drain's `freeze` and `open` below: a thread that takes units that another
    /// thread put, or uses a cell that a drain has given back, sees the writes before that.
    pub(crate) fn update(&self, id: u64, delta: u64, put: bool) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let sum = word.wrapping_add(delta);
            if !passes(sum, id) || (put && stock(sum) > u64::from(self.cap.load(Ordering::Relaxed)))
            {
                return false;
            }
            match self.word.compare_exchange_weak(word, sum, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
    }

    /// Notes a walk that the cell could not avoid. Returns whether the last one went in the same direction. If so,
    /// charges or uncharges come in a row, and the caller can leave more units, or more room, in the cell for the
    /// next ones. It is a hint, so the word is written without ordering.
    pub(crate) fn walks(&self, walk: Walk) -> bool {
        let again = self.last_walk.load(Ordering::Relaxed) == walk as u32;
        if !again {
            self.last_walk.store(walk as u32, Ordering::Relaxed);
        }
        again
    }

    /// Freezes the cell. Returns the word that was there before. The caller holds the stock lock.
    ///
    /// AcqRel: in the fallback this alone makes the caller the owner (it orders after the last `update`). Under
    /// rseq it does not: a section that had read the word may still store over it, so the caller fences and checks
    /// again (`columns.rs`).
    pub(crate) fn freeze(&self) -> u64 {
        self.word.fetch_or(FROZEN, Ordering::AcqRel)
    }

    /// Stores a new word in a cell that is frozen or serves no group.
    ///
    /// Release, partner of the Acquire in `update` and of the section's first load: a thread that sees the
    /// open word sees the cap that was written before it.
    pub(crate) fn open(&self, word: u64) {
        self.word.store(word, Ordering::Release);
    }

    #[cfg(any(test, loom))]
    pub(crate) fn new(word: u64, cap: u32) -> Self {
        Cell { word: AtomicU64::new(word), cap: AtomicU32::new(cap), last_walk: AtomicU32::new(0) }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cell>() == 16);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ID: u64 = empty(7) | 12345;

    fn cell(stock: u64) -> Cell {
        Cell::new(empty(7) | stock, 1000)
    }

    #[test]
    fn a_take_moves_stock_and_count_together() {
        let cell = cell(100);
        assert!(cell.update(ID, CHARGE.wrapping_sub(60), false));
        let word = cell.word.load(Ordering::Relaxed);
        assert_eq!((stock(word), charges(word), uncharges(word)), (40, 1, 0));
        assert!(!cell.update(ID, CHARGE.wrapping_sub(41), false));
        assert_eq!(cell.word.load(Ordering::Relaxed), word, "a refused take stores nothing");
        assert!(cell.update(ID, CHARGE.wrapping_sub(40), false));
        assert_eq!(stock(cell.word.load(Ordering::Relaxed)), 0);
    }

    #[test]
    fn a_take_of_the_largest_amount_is_refused_not_wrapped() {
        let cell = cell(0);
        assert!(!cell.update(ID, CHARGE.wrapping_sub(STOCK_MAX), false));
        assert!(!cell.update(ID, CHARGE.wrapping_sub(1), false));
    }

    #[test]
    fn a_put_stops_at_the_cap() {
        let cell = cell(990);
        assert!(cell.update(ID, UNCHARGE + 10, true));
        assert!(!cell.update(ID, UNCHARGE + 1, true));
    }

    #[test]
    fn a_full_count_trips_its_guard_and_spills_nowhere() {
        let cell = cell(1000);
        for _ in 0..127 {
            assert!(cell.update(ID, CHARGE.wrapping_sub(1), false));
        }
        let word = cell.word.load(Ordering::Relaxed);
        assert!(counts_full(word));
        assert!(!cell.update(ID, CHARGE.wrapping_sub(1), false));
        assert!(cell.update(ID, UNCHARGE + 1, true), "the other count is independent");
        cell.open(without_counts(cell.word.load(Ordering::Relaxed)));
        assert!(cell.update(ID, CHARGE.wrapping_sub(1), false));
        assert_eq!(generation(cell.word.load(Ordering::Relaxed)), 7);
    }

    #[test]
    fn a_stale_generation_and_a_frozen_cell_refuse_both_ways() {
        let cell = cell(500);
        let stale = empty(6) | 12345;
        assert!(!cell.update(stale, CHARGE.wrapping_sub(1), false));
        assert!(!cell.update(stale, UNCHARGE + 1, true));
        cell.freeze();
        assert!(!cell.update(ID, CHARGE.wrapping_sub(1), false));
        assert!(!cell.update(ID, UNCHARGE + 1, true));
    }
}

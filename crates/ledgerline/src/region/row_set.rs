//! A set of rows: a bitmap with summaries, so that the few rows in a large set are found quickly.
//!
//! Level 0 has a bit for each row, level 1 a bit for each word of level 0, and level 2 a bit for each word of level 1. Each
//! column has one such set, of the rows whose cell holds a cap there. Only the holder of the stock lock changes it. A
//! reader, such as a snapshot, may look during a change, and then sees a row a moment too early or too late.

use crate::sync::{AtomicU64, Ordering};

/// A view of a set that lives in a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSet<'a> {
    levels: [&'a [AtomicU64]; 3],
    capacity: usize,
}

/// Returns the number of words of each level for `capacity` rows.
const fn words(capacity: usize) -> [usize; 3] {
    let zero = capacity.div_ceil(64);
    let one = zero.div_ceil(64);
    [zero, one, one.div_ceil(64)]
}

impl<'a> RowSet<'a> {
    /// Returns the size in bytes of a set of `capacity` rows.
    pub(crate) const fn size(capacity: usize) -> usize {
        let [zero, one, two] = words(capacity);
        (zero + one + two) * 8
    }

    /// # Safety
    /// `base` is the start of [`size`](Self::size) aligned bytes that stay valid for `'a` and are touched as atomics only.
    pub(crate) unsafe fn new(base: *const AtomicU64, capacity: usize) -> Self {
        let [zero, one, two] = words(capacity);
        // SAFETY: the three slices lie one after the other in the bytes that the caller guarantees.
        unsafe {
            RowSet {
                levels: [
                    std::slice::from_raw_parts(base, zero),
                    std::slice::from_raw_parts(base.add(zero), one),
                    std::slice::from_raw_parts(base.add(zero + one), two),
                ],
                capacity,
            }
        }
    }

    pub(crate) fn insert(self, row: u32) {
        let mut bit = row as usize;
        for level in self.levels {
            level[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
            bit /= 64;
        }
    }

    pub(crate) fn contains(self, row: u32) -> bool {
        let bit = row as usize;
        self.levels[0][bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1 != 0
    }

    pub(crate) fn remove(self, row: u32) {
        let mut bit = row as usize;
        for level in self.levels {
            let gone = 1 << (bit % 64);
            if level[bit / 64].fetch_and(!gone, Ordering::Relaxed) & !gone != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// Removes a row from a set that several processes change, each under its own lock. The summaries stay as they are: a
    /// bit cleared there could hide a row that another process has just added.
    pub(crate) fn remove_shared(self, row: u32) {
        let bit = row as usize;
        self.levels[0][bit / 64].fetch_and(!(1 << (bit % 64)), Ordering::Relaxed);
    }

    /// Iterates over the rows in the set, ascending. The iterator's present row may be removed.
    pub(crate) fn iter(self) -> impl Iterator<Item = u32> + 'a {
        let below = move |level: usize, at: usize| {
            let word = self.levels[level].get(at).map_or(0, |w| w.load(Ordering::Relaxed));
            Bits(word).map(move |bit| at * 64 + bit)
        };
        (0..self.levels[2].len())
            .flat_map(move |at| below(2, at))
            .flat_map(move |at| below(1, at))
            .flat_map(move |at| below(0, at))
            // Another process may have written nonsense behind the last row.
            .filter(move |&row| row < self.capacity)
            .map(|row| row as u32)
    }
}

/// The set bits of a word, ascending.
pub(crate) struct Bits(pub(crate) u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn it_holds_what_a_tree_set_holds(
            steps in prop::collection::vec((any::<bool>(), 0u32..300_000), 0..300),
            capacity in 300_000usize..400_000,
        ) {
            let memory: Vec<AtomicU64> =
                (0..RowSet::size(capacity) / 8).map(|_| AtomicU64::new(0)).collect();
            // SAFETY: the vector has exactly the bytes of such a set.
            let set = unsafe { RowSet::new(memory.as_ptr(), capacity) };
            let mut oracle = BTreeSet::new();
            for (insert, row) in steps {
                if insert { set.insert(row); oracle.insert(row); }
                else { set.remove(row); oracle.remove(&row); }
            }
            prop_assert!(set.iter().eq(oracle.iter().copied()));
            for row in oracle { set.remove(row); }
            prop_assert!(memory.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}

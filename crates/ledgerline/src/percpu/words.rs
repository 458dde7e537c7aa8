//! Words by column: one interface over the sections of `sums.rs` and atomics.

use super::MARK;
use super::machine::{columns_of_cpus, shared_column};
use super::registration::{COMPACT, Registration, by_index};
use super::{probe, rseq, sums};
use crate::sync::{AtomicU64, Ordering};

/// Columns of signed 64-bit words, a constant distance apart, one for each CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    base: *const AtomicU64,
    stride: usize,
    pub(super) columns: u32,
    at: Registration,
}

// SAFETY: the pointer is to memory that is only accessed through atomics and sections. The owner of this
// value keeps it mapped.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// # Safety
    /// `base + column * stride` is the start of a live column for each of [`columns_of_cpus`] columns, and
    /// outlives every use of this value. The words are written only through this interface.
    pub(crate) unsafe fn new(base: *const AtomicU64, stride: usize) -> Words {
        Words { base, stride, columns: columns_of_cpus(), at: probe::registration() }
    }

    /// Returns the word of a column.
    ///
    /// # Safety
    /// `slot` is within a column.
    pub(crate) unsafe fn word(&self, column: u32, slot: usize) -> &AtomicU64 {
        debug_assert!(column < self.columns);
        // SAFETY: both indices are within the columns: by `new` and by the caller.
        unsafe { &*self.base.add(slot).byte_add(column as usize * self.stride) }
    }

    /// Adds `n` to the running column's word, modulo 2^64.
    ///
    /// # Safety
    /// `slot` is within a column.
    #[inline(always)]
    pub(super) unsafe fn add(&self, slot: usize, n: i64) {
        let area = probe::fast_area();
        // SAFETY: there is a word in every column that the kernel can report (P3), by `new`. The slot is
        // valid by the caller.
        unsafe {
            if area != 0 {
                return rseq::add::<COMPACT>(area, self.base.add(slot).cast(), self.stride, n);
            }
            self.add_return_otherwise(slot, n);
        }
    }

    /// Like [`add`](Self::add), but returns the new sum, and the distance of that word from the first
    /// column. [`column`](Self::column) turns the distance into a column, by a division that most callers
    /// do not need.
    ///
    /// # Safety
    /// As for [`add`](Self::add).
    #[inline(always)]
    pub(crate) unsafe fn add_return(&self, slot: usize, n: i64) -> (i64, usize) {
        let area = probe::fast_area();
        if area != 0 {
            // SAFETY: there is a word in every column that the kernel can report (P3), by `new`.
            return unsafe {
                let base = self.base.add(slot).cast();
                sums::add_return::<COMPACT>(area, base, self.stride, n)
            };
        }
        // SAFETY: by the caller.
        unsafe { self.add_return_otherwise(slot, n) }
    }

    /// # Safety
    /// As for [`add_return`](Self::add_return).
    #[cold]
    #[inline(never)]
    unsafe fn add_return_otherwise(&self, slot: usize, n: i64) -> (i64, usize) {
        // SAFETY: as in `add_return`. With compact ids the thread was registered just now.
        let told = unsafe {
            let base = self.base.add(slot).cast();
            by_index!(self.at, |INDEX, area| sums::add_return::<INDEX>(area, base, self.stride, n))
        };
        if let Some(told) = told {
            return told;
        }
        let column = shared_column(self.at.is_some());
        // SAFETY: the column is below the number of columns; the slot is valid by the caller. Relaxed:
        // the word publishes no other data.
        let old = unsafe { self.word(column, slot) }.fetch_add(n as u64, Ordering::Relaxed);
        (old.wrapping_add(n as u64) as i64, column as usize * self.stride)
    }

    /// Returns the column that lies at this distance from the first.
    pub(crate) fn column(&self, distance: usize) -> u32 {
        (distance / self.stride) as u32
    }

    /// Adds `value` to the running column's marked word. Changes nothing and returns `false` if the mark
    /// is missing, the sum would overflow 63 bits, or compact ids are not in use here.
    ///
    /// # Safety
    /// `slot` is within a column, and `value` fits in 63 bits.
    #[inline(always)]
    pub(crate) unsafe fn add_marked_fast(&self, slot: usize, value: i64) -> bool {
        let area = probe::fast_area();
        // SAFETY: there is a word in every column that the kernel can report (P3), by `new`.
        area != 0
            && unsafe {
                let base = self.base.add(slot).cast();
                sums::add_marked::<COMPACT>(area, base, self.stride, value << 1)
            }
    }

    /// Adds `value` to the running column's word in any mode, and sets its mark. Calls `note` with the
    /// column before a mark is stored. Returns `false` if the sum would overflow 63 bits.
    ///
    /// # Safety
    /// As for [`add_marked_fast`](Self::add_marked_fast).
    pub(crate) unsafe fn add_marked(
        &self,
        slot: usize,
        value: i64,
        mut note: impl FnMut(u32),
    ) -> bool {
        loop {
            let column = self.current();
            // SAFETY: `current` is below the number of columns. The slot is valid by the caller.
            let word = unsafe { self.word(column, slot) };
            // Relaxed: the word is all there is to see.
            let seen = word.load(Ordering::Relaxed);
            let Some(sum) = (seen as i64).checked_add(value << 1) else { return false };
            if seen & MARK == 0 {
                note(column);
            }
            // SAFETY: `word` is a word of `column`.
            if unsafe { self.swap(column, word, seen, sum as u64 | MARK) } {
                return true;
            }
        }
    }

    /// Returns the column that the calling thread would use now.
    fn current(&self) -> u32 {
        // SAFETY: the thread is registered.
        let index = unsafe { by_index!(self.at, |INDEX, area| rseq::index::<INDEX>(area)) };
        index.unwrap_or_else(|| shared_column(self.at.is_some()))
    }

    /// Replaces a word of the running column. Fails if the thread has moved or the word has changed.
    ///
    /// # Safety
    /// `word` is a word of `column`.
    unsafe fn swap(&self, column: u32, word: &AtomicU64, expected: u64, new: u64) -> bool {
        let cell = std::ptr::from_ref(word).cast();
        // SAFETY: the section only accesses the eight bytes of the word, and checks that the thread still
        // runs on `column`.
        let done = unsafe {
            by_index!(self.at, |INDEX, area| rseq::compare_store::<INDEX>(
                area, cell, column, expected, new
            ))
        };
        if let Some(done) = done {
            return done;
        }
        if self.at.is_some() && column != self.current() {
            return false;
        }
        // Relaxed: like the sections, which order nothing either.
        word.compare_exchange(expected, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    fn words(region: &Region) -> Words {
        // SAFETY: the regions below hold a column of a page for every possible CPU.
        unsafe { Words::new(region.at(0), 4096) }
    }

    fn region() -> Region {
        Region::anonymous(columns_of_cpus() as usize * 4096).unwrap()
    }

    fn values(words: &Words, slot: usize) -> Vec<i64> {
        (0..words.columns)
            // SAFETY: the slots of these tests are within a page.
            .map(|column| unsafe { words.word(column, slot) }.load(Ordering::Relaxed) as i64)
            .collect()
    }

    #[test]
    fn the_sums_that_all_threads_were_told_are_each_told_once() {
        let region = region();
        let words = words(&region);
        let told: Vec<(u32, i64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        // SAFETY: slot 5 is within a page.
                        let step = || unsafe { words.add_return(5, 1) };
                        (0..50_000)
                            .map(|_| step())
                            .map(|(n, at)| (words.column(at), n))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut told = told;
        told.sort_unstable();
        let expected: Vec<(u32, i64)> = (0..words.columns)
            .zip(values(&words, 5))
            .flat_map(|(column, last)| (1..=last).map(move |n| (column, n)))
            .collect();
        assert_eq!(told.len(), 200_000);
        assert!(told == expected, "a sum was told twice, or never");
    }

    #[test]
    fn a_word_without_its_mark_is_not_touched_until_its_column_is_noted() {
        let region = region();
        let words = words(&region);
        // SAFETY: the slot is within a page, here and below.
        assert!(!unsafe { words.add_marked_fast(3, 7) });
        assert!(values(&words, 3).iter().all(|&word| word == 0));
        let mut noted = Vec::new();
        // SAFETY: as above.
        assert!(unsafe { words.add_marked(3, -7, |column| noted.push(column)) });
        let marked: Vec<u32> = (0..)
            .zip(values(&words, 3))
            .filter_map(|(column, word)| (word != 0).then_some(column))
            .collect();
        assert!(marked.iter().all(|column| noted.contains(column)), "{noted:?}: {marked:?}");
        assert_eq!(values(&words, 3).iter().map(|word| word >> 1).sum::<i64>(), -7);
    }

    #[test]
    fn a_sum_that_would_overflow_changes_nothing() {
        let region = region();
        let words = words(&region);
        let most = i64::MAX >> 1;
        for column in 0..words.columns {
            // SAFETY: the slot is within a page, here and below.
            unsafe { words.word(column, 0) }.store((most as u64) << 1 | MARK, Ordering::Relaxed);
        }
        // SAFETY: as above.
        unsafe {
            assert!(!words.add_marked_fast(0, 1));
            assert!(!words.add_marked(0, 1, |_| panic!("already marked")));
            assert!(words.add_marked(0, -1, |_| panic!("already marked")));
        }
        let sum: i64 = values(&words, 0).iter().map(|word| most - (word >> 1)).sum();
        assert_eq!(sum, 1);
    }
}

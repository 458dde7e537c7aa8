//! The row of one owner: its own words, the words for others, the generation.

use super::Kind;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The most pages that one update moves, in either direction: 2^58 bytes of 4 KiB pages.
pub(super) const MOVE_MAX: i64 = 1 << 46;
/// The first bit of the value in a word for others. The bits below are the generation that it belongs to.
const VALUE: u32 = 16;

/// See the [module](super). 128 bytes, so that two owners never share a pair of lines.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Row {
    /// Written by the one thread of an owner that is not shared.
    own: [AtomicU64; 4],
    /// Odd while an owner has the row. Grows by one whenever the row is taken or given back.
    pub(super) generation: AtomicU32,
    /// The next free row.
    pub(super) next: AtomicU32,
    spare: [u64; 3],
    /// Written by any thread: 48 bits of pages and 16 of the generation, so that pages meant for an owner
    /// that has gone do not reach the next one.
    elsewhere: [AtomicU64; 4],
}

const _: () = assert!(size_of::<Row>() == 128);

impl Row {
    /// Adds to the one thread's own word, in one instruction that cannot be interrupted half-way. If the
    /// sum does not fit in 64 bits, it changes nothing and returns `false`.
    ///
    /// Only one thread calls this at a time. Readers load the word, which is consistent at every moment.
    #[inline(always)]
    pub(super) fn add_own(&self, kind: Kind, n: i64) -> bool {
        let word = &self.own[kind as usize];
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: one naturally aligned word of the row, which is borrowed. The access is a single
            // instruction, so a signal handler of this thread that does the same comes before it or after
            // it (guarded by `tests/main/rss.rs`, `a_signal_handler_adds_between_two_additions…`).
            unsafe {
                std::arch::asm!(
                    "add qword ptr [{word}], {n}",
                    "jo {over}",
                    word = in(reg) word.as_ptr(),
                    n = in(reg) n,
                    over = label { return take_back(word, n) },
                    options(nostack),
                );
            }
            true
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // Relaxed: the word is all there is to see.
            let old = word.fetch_add(n as u64, Ordering::Relaxed) as i64;
            old.checked_add(n).is_some() || take_back(word, n)
        }
    }

    /// Adds to the words for others if the row still has the owner of that generation.
    ///
    /// Returns the amount that did not fit, by which the word was clamped, or `None` if the owner has
    /// gone.
    pub(super) fn add_elsewhere(&self, generation: u32, kind: Kind, n: i64) -> Option<i64> {
        let word = &self.elsewhere[kind as usize];
        let mut left = 0;
        let add = |seen: u64| {
            let sum = (seen as i64 >> VALUE).saturating_add(n);
            let clamped = sum.clamp(i64::MIN >> VALUE, i64::MAX >> VALUE);
            left = sum - clamped;
            (seen as u16 == generation as u16).then(|| elsewhere(clamped, generation))
        };
        // Relaxed: the word is all there is to see.
        word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(|_| left)
    }

    /// Returns the pages of a kind in the row itself.
    pub(super) fn pages(&self, kind: Kind) -> i128 {
        let own = self.own[kind as usize].load(Ordering::Relaxed) as i64;
        let elsewhere = self.elsewhere[kind as usize].load(Ordering::Relaxed) as i64 >> VALUE;
        i128::from(own) + i128::from(elsewhere)
    }

    /// Prepares the row for an owner of that generation. The caller owns the row.
    pub(super) fn open(&self, generation: u32) {
        for word in &self.elsewhere {
            word.store(elsewhere(0, generation), Ordering::Relaxed);
        }
        // Release, partner of the Acquire in `Table::read`: a reader that sees the owner sees empty words.
        self.generation.store(generation, Ordering::Release);
    }

    /// Empties the words of a kind. Returns their pages. `closed` is a generation that no owner has, so
    /// nothing is added to the words for others from here on. The caller owns the row.
    pub(super) fn take(&self, closed: u32, kind: Kind) -> i128 {
        let own = self.own[kind as usize].swap(0, Ordering::Relaxed) as i64;
        let word = &self.elsewhere[kind as usize];
        let others = word.swap(elsewhere(0, closed), Ordering::Relaxed) as i64 >> VALUE;
        i128::from(own) + i128::from(others)
    }
}

const fn elsewhere(pages: i64, generation: u32) -> u64 {
    (pages << VALUE) as u64 | generation as u16 as u64
}

#[cold]
fn take_back(word: &AtomicU64, n: i64) -> bool {
    // Relaxed: the word is all there is to see. Atomic, because a signal handler may come in between.
    word.fetch_sub(n as u64, Ordering::Relaxed);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        // SAFETY: a row consists of atomics and integers, for which zero is a valid value.
        let row: Row = unsafe { std::mem::zeroed() };
        row.open(0x0007_0001);
        row
    }

    #[test]
    fn an_own_word_never_wraps() {
        let row = row();
        assert!(row.add_own(Kind::Swap, i64::MAX));
        assert!(!row.add_own(Kind::Swap, 1));
        assert_eq!(row.pages(Kind::Swap), i64::MAX.into());
        assert!(row.add_own(Kind::Swap, -1));
        assert!(row.add_own(Kind::Anon, i64::MIN));
        assert!(!row.add_own(Kind::Anon, -1));
        assert_eq!(row.pages(Kind::Anon), i64::MIN.into());
    }

    #[test]
    fn the_words_for_others_clamp_and_say_by_how_much() {
        let row = row();
        let half = 1 << 46;
        assert_eq!(row.add_elsewhere(0x0007_0001, Kind::File, half), Some(0));
        assert_eq!(row.add_elsewhere(0x0007_0001, Kind::File, half), Some(1));
        assert_eq!(row.pages(Kind::File), (1 << 47) - 1);
        assert_eq!(row.add_elsewhere(0x0007_0001, Kind::File, 5), Some(5));
        assert_eq!(row.add_elsewhere(0x0007_0001, Kind::File, -5), Some(0));
        assert_eq!(row.pages(Kind::File), (1 << 47) - 6);
        assert_eq!(row.pages(Kind::Anon), 0);
    }

    #[test]
    fn another_generation_adds_nothing() {
        let row = row();
        assert_eq!(row.add_elsewhere(0x0007_0003, Kind::Anon, 3), None);
        assert_eq!(row.add_elsewhere(0x0007_0001, Kind::Anon, 3), Some(0));
        assert_eq!(row.take(0x0007_0002, Kind::Anon), 3);
        assert_eq!(row.add_elsewhere(0x0007_0001, Kind::Anon, 3), None);
        assert_eq!(row.pages(Kind::Anon), 0);
    }
}

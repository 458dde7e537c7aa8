//! The alarms that were rung: a set of numbers. Any code, signal handlers included, adds to it, and one
//! thread empties it.
//!
//! ```text
//! ring(number)                                  take
//!   words[number / 64] |= its bit                 each chunk whose summary is not 0:
//!   summary |= the word's bit                       summary := 0
//!   notify                                          each word that it named: word := 0, its numbers
//! ```
//!
//! Ringing writes the word before the summary, and taking reads the summary before the words. If taking
//! misses a number's summary bit, the notice of that number is still to come, and the set is taken again
//! after it. Ringing a number again writes both words again, so a forked child that finds only one of them
//! written has lost nothing.
//!
//! Taking costs a load for every 4096 numbers in use, and a little for each number that was rung. The set
//! grows by chunks that never move, so ringing needs no lock.

use crate::region::row_set::Bits;
use crate::sync::{AtomicU64, Ordering};
use crate::wake::eventcount::Eventcount;
use std::sync::OnceLock;

/// Words of a chunk. The models have fewer, since they track every atomic.
const WORDS: usize = if cfg!(loom) { 2 } else { 64 };
const NUMBERS: usize = WORDS * 64;
/// Each segment has twice as many chunks as the one before: together, all numbers of 32 bits.
const SEGMENTS: usize = 33 - NUMBERS.ilog2() as usize;

#[derive(Debug)]
struct Chunk {
    /// A bit for each word that may have bits set.
    summary: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// See the module's documentation.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Rung {
    segments: [OnceLock<Box<[Chunk]>>; SEGMENTS],
    /// The thread that takes the numbers sleeps on this.
    pub(crate) eventcount: Eventcount,
}

/// The alarms of this process that were rung.
#[cfg(not(loom))]
pub(crate) static RUNG: Rung = Rung::new();

/// Wakes the future with this alarm. Async-signal-safe.
#[cfg(not(loom))]
pub(crate) fn ring(number: u32) {
    RUNG.ring(number);
}

/// Returns the chunk of a number: its segment and its place there.
fn place(number: u32) -> (usize, usize) {
    let chunk = number as usize / NUMBERS + 1;
    let segment = chunk.ilog2() as usize;
    (segment, chunk - (1 << segment))
}

impl Rung {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Rung { segments: [const { OnceLock::new() }; SEGMENTS], eventcount: Eventcount::new() }
    }

    /// Makes room for a number, before any code can ring it. Allocates.
    pub(crate) fn make_room(&self, number: u32) {
        let (segment, _) = place(number);
        self.segments[segment].get_or_init(|| {
            let chunk = |_| Chunk {
                summary: AtomicU64::new(0),
                words: std::array::from_fn(|_| AtomicU64::new(0)),
            };
            (0..1usize << segment).map(chunk).collect()
        });
    }

    /// Adds a number and notifies the thread that takes them. Async-signal-safe. Ignores a number for
    /// which there is no room.
    pub(crate) fn ring(&self, number: u32) {
        let (segment, chunk) = place(number);
        if let Some(chunks) = self.segments[segment].get() {
            let chunk = &chunks[chunk];
            let bit = number as usize % NUMBERS;
            // Release, partners of the Acquire in `take`: the woken future sees why.
            chunk.words[bit / 64].fetch_or(1 << (bit % 64), Ordering::Release);
            chunk.summary.fetch_or(1 << (bit / 64), Ordering::Release);
            self.eventcount.notify();
        }
    }

    /// Takes all numbers out.
    pub(crate) fn take(&self, mut each: impl FnMut(u32)) {
        let mut first = 0u32;
        for chunk in self.segments.iter().map_while(OnceLock::get).flatten() {
            if chunk.summary.load(Ordering::Relaxed) != 0 {
                for word in Bits(chunk.summary.swap(0, Ordering::Acquire)) {
                    for bit in Bits(chunk.words[word].swap(0, Ordering::Acquire)) {
                        each(first + (word * 64 + bit) as u32);
                    }
                }
            }
            first = first.wrapping_add(NUMBERS as u32);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        let mut last = None;
        for number in (0..1 << 22).step_by(NUMBERS / 2).chain([u32::MAX - 1, u32::MAX]) {
            let (segment, chunk) = place(number);
            assert!(segment < SEGMENTS && chunk < 1 << segment, "{number}");
            assert!(last <= Some((segment, chunk)), "{number}");
            last = Some((segment, chunk));
        }
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn it_gives_back_what_was_rung_once(
            rounds in prop::collection::vec(prop::collection::vec(0u32..40_000, 0..50), 1..10),
        ) {
            let rung = Rung::new();
            // In order, as alarms are numbered: an empty segment ends the set.
            (0..40_000).step_by(NUMBERS).for_each(|number| rung.make_room(number));
            rung.ring(1 << 30); // No alarm has this number.
            for numbers in rounds {
                numbers.iter().for_each(|&number| rung.ring(number));
                let mut taken = Vec::new();
                rung.take(|number| taken.push(number));
                prop_assert_eq!(taken, Vec::from_iter(BTreeSet::from_iter(numbers)));
            }
        }
    }
}

//! Plain per-CPU sums, the cheapest counters.

use super::machine::columns_of_cpus;
use super::{Mode, Words};
use crate::region::Region;
use crate::sync::Ordering;
use std::io;

/// A fixed number of signed 64-bit sums, each with one instance per CPU.
///
/// [`add`](Array::add) only touches the running CPU's instance. It takes about half a nanosecond, without
/// a lock or an atomic, on any number of CPUs. [`sum`](Array::sum) adds up the instances.
///
/// ```
/// let requests = ledgerline::percpu::Array::new(1)?;
/// requests.add(0, 1);
/// requests.add(0, 41);
/// assert_eq!(requests.sum(0), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Array {
    words: Words,
    slots: usize,
    #[allow(dead_code, reason = "keeps the memory mapped")]
    region: Region,
}

impl Array {
    /// Makes an array of `slots` sums, all zero.
    ///
    /// # Errors
    /// When the address space for `slots * 8` bytes per possible CPU cannot be mapped.
    pub fn new(slots: usize) -> io::Result<Array> {
        // The mode must be known before the first addition.
        super::detect();
        // Columns are at least a page apart: two CPUs never share a line, nor a line pair.
        let stride = slots
            .max(1)
            .checked_mul(8)
            .and_then(|bytes| bytes.checked_next_multiple_of(4096))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let size = stride.checked_mul(columns_of_cpus() as usize);
        let region = Region::anonymous(size.ok_or(io::ErrorKind::OutOfMemory)?)?;
        // SAFETY: the region has a column of `stride` bytes for each, and lives as long as the array.
        let words = unsafe { Words::new(region.at(0), stride) };
        Ok(Array { words, slots, region })
    }

    /// Adds `n` to the running CPU's instance of a sum. Wraps silently at 2^63. Async-signal-safe.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline(always)]
    pub fn add(&self, slot: usize, n: i64) {
        assert!(slot < self.slots, "slot {slot} of an array of {}", self.slots);
        // SAFETY: the slot was checked.
        unsafe { self.words.add(slot, n) };
    }

    /// Adds up all CPUs' instances. The sum is exact if no writer is active, otherwise off by additions
    /// during the call. Costs about a nanosecond per CPU, and a line transfer for each that wrote.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn sum(&self, slot: usize) -> i64 {
        assert!(slot < self.slots, "slot {slot} of an array of {}", self.slots);
        (0..self.words.columns)
            // SAFETY: the slot was checked.
            .map(|column| unsafe { self.words.word(column, slot) }.load(Ordering::Relaxed))
            .fold(0i64, |sum, part| sum.wrapping_add(part as i64))
    }

    /// Returns how this array is updated.
    pub fn mode(&self) -> Mode {
        super::detect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_threads_add_is_the_sum() {
        let array = Array::new(3).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8i64 {
                let array = &array;
                scope.spawn(move || {
                    for i in 0..200_000i64 {
                        array.add(1, i % 7 - 3 + thread);
                    }
                });
            }
        });
        let each: i64 = (0..200_000i64).map(|i| i % 7 - 3).sum();
        assert_eq!(array.sum(1), 8 * each + 200_000 * 28);
        assert_eq!((array.sum(0), array.sum(2)), (0, 0));
    }
}

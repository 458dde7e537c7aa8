//! Plain per-CPU sums, the cheapest counters there are.

use super::Mode;
use super::machine::{columns_of_cpus, shared_column};
use super::registration::{COMPACT, by_index};
use super::{probe, rseq};
use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};
use std::io;

/// A fixed number of signed 64-bit sums, each with one instance a CPU.
///
/// [`add`](Array::add) touches the running CPU's instance alone. It takes about half a nanosecond, without
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
    base: *const AtomicU64,
    stride: usize,
    slots: usize,
    columns: u32,
    #[allow(dead_code, reason = "keeps the memory mapped")]
    region: Region,
}

// SAFETY: the memory is touched through sections and atomics only, and mapped as long as `region`.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// Makes an array of `slots` sums, all zero.
    ///
    /// # Errors
    /// When the address space for `slots * 8` bytes a possible CPU cannot be mapped.
    pub fn new(slots: usize) -> io::Result<Array> {
        // The mode is known before the first addition.
        super::detect();
        let columns = columns_of_cpus();
        // Columns are at least a page apart: two CPUs never share a line, nor a line pair.
        let stride = slots
            .max(1)
            .checked_mul(8)
            .and_then(|bytes| bytes.checked_next_multiple_of(4096))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let size = stride.checked_mul(columns as usize).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Region::anonymous(size)?;
        Ok(Array { base: region.at(0), stride, slots, columns, region })
    }

    /// Adds `n` to the running CPU's instance of a sum; wraps silently at 2^63 like the machine.
    /// Async-signal-safe.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline(always)]
    pub fn add(&self, slot: usize, n: i64) {
        assert!(slot < self.slots, "slot {slot} of an array of {}", self.slots);
        // SAFETY: `slot` was checked and the array has a column for every index (P3).
        unsafe {
            let base = self.base.add(slot);
            let area = probe::fast_area();
            if area != 0 {
                return rseq::add::<COMPACT>(area, base.cast(), self.stride, n);
            }
            self.add_otherwise(base, n);
        }
    }

    /// # Safety
    /// `base` is the address of a slot in the first column.
    #[cold]
    #[inline(never)]
    unsafe fn add_otherwise(&self, base: *const AtomicU64, n: i64) {
        // SAFETY: as in `add`. (With compact ids the thread was registered just now.)
        let done = unsafe {
            by_index!(probe::registration(), |INDEX, area| rseq::add::<INDEX>(
                area,
                base.cast(),
                self.stride,
                n
            ))
        };
        if done.is_some() {
            return;
        }
        let column = shared_column(probe::registration().is_some());
        // SAFETY: the column is below the number of columns; the slot by the caller.
        unsafe { &*base.byte_add(column as usize * self.stride) }
            .fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Adds up all CPUs' instances. The sum is exact when writers are still, otherwise off by what was
    /// added during the call. Costs about a nanosecond a CPU, and a line transfer for each that wrote.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn sum(&self, slot: usize) -> i64 {
        assert!(slot < self.slots, "slot {slot} of an array of {}", self.slots);
        (0..self.columns as usize)
            // SAFETY: both indices are within the array.
            .map(|column| unsafe {
                (*self.base.add(slot).byte_add(column * self.stride)).load(Ordering::Relaxed)
            })
            .fold(0i64, |sum, part| sum.wrapping_add(part as i64))
    }

    /// How this array is updated.
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

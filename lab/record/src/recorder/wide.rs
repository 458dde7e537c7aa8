//! Atomic numbers of 128 bits, by the processor's compare-and-swap of 16 bytes.

use std::arch::asm;
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

/// An atomic number like those of the standard library. Every operation is sequentially consistent. A load takes the
/// line like a write, as in the C library, so the memory must be writable.
#[repr(C, align(16))]
pub(crate) struct AtomicU128(UnsafeCell<u128>);

impl AtomicU128 {
    /// Returns the number at an address.
    ///
    /// # Safety
    /// The same as for the standard library's atomics.
    pub(crate) unsafe fn from_ptr<'a>(at: *mut u128) -> &'a AtomicU128 {
        // SAFETY: the caller's contract; the representation is the same.
        unsafe { &*at.cast() }
    }

    pub(crate) fn compare_exchange(
        &self,
        expected: u128,
        new: u128,
        _: Ordering,
        _: Ordering,
    ) -> Result<u128, u128> {
        let (mut low, mut high) = (expected as u64, (expected >> 64) as u64);
        // The instruction needs rbx, which the compiler keeps for itself.
        // SAFETY: the address is aligned and valid by `from_ptr`'s contract; a program that asks for 16 bytes was
        // built for processors that have the instruction. rbx is unchanged at the end.
        unsafe {
            asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b [rdi]",
                "mov rbx, rsi",
                in("rdi") self.0.get(),
                inout("rsi") new as u64 => _,
                in("rcx") (new >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        let found = u128::from(high) << 64 | u128::from(low);
        if found == expected { Ok(found) } else { Err(found) }
    }

    fn update(&self, change: impl Fn(u128) -> u128) -> u128 {
        let mut seen = self.load(Ordering::SeqCst);
        loop {
            match self.compare_exchange(seen, change(seen), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(before) => return before,
                Err(now) => seen = now,
            }
        }
    }

    pub(crate) fn load(&self, _: Ordering) -> u128 {
        match self.compare_exchange(0, 0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(found) | Err(found) => found,
        }
    }

    pub(crate) fn store(&self, value: u128, order: Ordering) {
        self.swap(value, order);
    }

    pub(crate) fn swap(&self, value: u128, _: Ordering) -> u128 {
        self.update(|_| value)
    }

    pub(crate) fn fetch_add(&self, operand: u128, _: Ordering) -> u128 {
        self.update(|now| now.wrapping_add(operand))
    }

    pub(crate) fn fetch_sub(&self, operand: u128, _: Ordering) -> u128 {
        self.update(|now| now.wrapping_sub(operand))
    }

    pub(crate) fn fetch_and(&self, operand: u128, _: Ordering) -> u128 {
        self.update(|now| now & operand)
    }

    pub(crate) fn fetch_or(&self, operand: u128, _: Ordering) -> u128 {
        self.update(|now| now | operand)
    }

    pub(crate) fn fetch_xor(&self, operand: u128, _: Ordering) -> u128 {
        self.update(|now| now ^ operand)
    }

    pub(crate) fn fetch_nand(&self, operand: u128, _: Ordering) -> u128 {
        self.update(|now| !(now & operand))
    }
}

//! The thread's words on arm64: `tpidr_el0` is the thread pointer.

use super::Word;
use std::arch::asm;

#[inline(always)]
pub(crate) fn place() -> usize {
    let place;
    // SAFETY: reads this library's own entry of the global offset table.
    unsafe {
        asm!(
            "adrp {place}, :gottprel:ledgerline_thread_words",
            "ldr {place}, [{place}, #:gottprel_lo12:ledgerline_thread_words]",
            place = out(reg) place,
            options(nostack, readonly, preserves_flags),
        );
    }
    place
}

#[inline(always)]
pub(crate) fn cell(place: usize) -> usize {
    let value;
    // SAFETY: reads the first of the calling thread's own words or, at zero, of its control block.
    unsafe {
        asm!(
            "mrs {at}, tpidr_el0",
            "ldr {value}, [{at}, {place}]",
            at = out(reg) _,
            place = in(reg) place,
            value = lateout(reg) value,
            options(nostack, readonly, preserves_flags),
        );
    }
    value
}

/// Returns the address of a word of the calling thread.
#[inline(always)]
fn at(word: Word) -> *mut usize {
    let pointer: usize;
    // SAFETY: reads the thread pointer's register. Not `pure`: a fiber may continue in another thread.
    unsafe {
        asm!("mrs {pointer}, tpidr_el0", pointer = out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    (pointer + place() + word as usize) as *mut usize
}

#[inline(always)]
pub(crate) fn get(word: Word) -> usize {
    // SAFETY: one of the calling thread's own words.
    unsafe { at(word).read_volatile() }
}

#[inline(always)]
pub(crate) fn set(word: Word, value: usize) {
    // SAFETY: one of the calling thread's own words.
    unsafe { at(word).write_volatile(value) }
}

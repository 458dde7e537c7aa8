//! The sections of purses on arm64.

use super::{GUARDS, Purse};
use crate::percpu::rseq::{abort_count, point, section};
use std::arch::asm;

/// Takes units out of a purse: subtracts `delta` unless that leaves less than none, or the purse is another number's or
/// thread's.
///
/// # Safety
/// `area` is the calling thread's registration.
#[inline(always)]
pub(in crate::percpu) unsafe fn take(area: isize, purse: &Purse, number: u64, delta: u64) -> bool {
    // SAFETY: the section has one store, its last instruction (P1 in `../README.md`), and none where the sum is negative,
    // as that of every frozen word is, whether it overflows or not (P2). Of what others write it loads one word, so there is no order to keep (O1).
    // Guarded by `inject::tests::every_point_of_every_section_restarts`.
    unsafe {
        section!(
            [
                point!(1),
                "ldr {t}, [{purse}, {number_at}]",
                "cmp {t}, {number}",
                "b.ne {no}",
                "mrs {t}, tpidr_el0",
                "ldr {x}, [{purse}, {who_at}]",
                "cmp {t}, {x}",
                "b.ne {no}",
                point!(2),
                "ldr {t}, [{purse}]",
                point!(3),
                "subs {t}, {t}, {delta}",
                "b.lt {no}",
                point!(4),
                "str {t}, [{purse}]",
            ]
            a = out(reg) _,
            t = out(reg) _,
            x = out(reg) _,
            area = in(reg) area,
            purse = in(reg) purse,
            who_at = const std::mem::offset_of!(Purse, who),
            number_at = const std::mem::offset_of!(Purse, number),
            number = in(reg) number,
            delta = in(reg) delta,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

/// Puts units into a purse: adds `delta` unless that makes too many, or a count is full, or the purse is another number's or thread's.
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(in crate::percpu) unsafe fn put(area: isize, purse: &Purse, number: u64, delta: u64) -> bool {
    // SAFETY: as in `take`; a frozen word with so few units more is larger than any `most`. The word comes before that (O2): it is opened last, by a
    // release store.
    unsafe {
        section!(
            [
                point!(1),
                "ldr {t}, [{purse}, {number_at}]",
                "cmp {t}, {number}",
                "b.ne {no}",
                "mrs {t}, tpidr_el0",
                "ldr {x}, [{purse}, {who_at}]",
                "cmp {t}, {x}",
                "b.ne {no}",
                point!(2),
                "ldar {t}, [{purse}]",
                point!(3),
                "ldr {x}, [{purse}, {most_at}]",
                "add {t}, {t}, {delta}",
                "cmp {t}, {x}",
                "b.hi {no}",
                point!(4),
                "tst {t:w}, {guards:w}",
                "b.ne {no}",
                point!(5),
                "str {t}, [{purse}]",
            ]
            a = out(reg) _,
            t = out(reg) _,
            x = out(reg) _,
            area = in(reg) area,
            purse = in(reg) purse,
            who_at = const std::mem::offset_of!(Purse, who),
            number_at = const std::mem::offset_of!(Purse, number),
            most_at = const std::mem::offset_of!(Purse, most),
            number = in(reg) number,
            delta = in(reg) delta,
            guards = in(reg) GUARDS,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

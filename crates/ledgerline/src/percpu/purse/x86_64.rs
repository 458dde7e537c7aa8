//! The sections of purses on x86-64.

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
    // as that of every frozen word is, whether it overflows or not (P2). Guarded by `inject::tests::every_point_of_every_section_restarts`.
    unsafe {
        section!(
            [
                point!(1),
                "cmp qword ptr [{purse} + {number_at}], {number}",
                "jne {no}",
                "mov {t}, qword ptr fs:[0]",
                "cmp qword ptr [{purse} + {who_at}], {t}",
                "jne {no}",
                point!(2),
                "mov {t}, qword ptr [{purse}]",
                point!(3),
                "sub {t}, {delta}",
                "jl {no}",
                point!(4),
                "mov qword ptr [{purse}], {t}",
            ]
            t = out(reg) _,
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
    // SAFETY: as in `take`; a frozen word with so few units more is larger than any `most`. The word is read before that: it is opened last, and x86
    // keeps the order of loads.
    unsafe {
        section!(
            [
                point!(1),
                "cmp qword ptr [{purse} + {number_at}], {number}",
                "jne {no}",
                "mov {t}, qword ptr fs:[0]",
                "cmp qword ptr [{purse} + {who_at}], {t}",
                "jne {no}",
                point!(2),
                "mov {t}, qword ptr [{purse}]",
                point!(3),
                "add {t}, {delta}",
                "cmp {t}, qword ptr [{purse} + {most_at}]",
                "ja {no}",
                point!(4),
                "test {t:e}, {guards}",
                "jne {no}",
                point!(5),
                "mov qword ptr [{purse}], {t}",
            ]
            t = out(reg) _,
            area = in(reg) area,
            purse = in(reg) purse,
            who_at = const std::mem::offset_of!(Purse, who),
            number_at = const std::mem::offset_of!(Purse, number),
            most_at = const std::mem::offset_of!(Purse, most),
            number = in(reg) number,
            delta = in(reg) delta,
            guards = const GUARDS,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

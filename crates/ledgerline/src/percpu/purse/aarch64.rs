//! The sections of purses on arm64.

use super::{GUARDS, Purse};
use crate::percpu::rseq::{abort_count, point, section};
use std::arch::asm;
use std::mem::offset_of;

/// Takes units out of the calling thread's purse and labels their block: subtracts `delta` unless that leaves less than none, or the
/// purse is another group's.
///
/// # Safety
/// `area` and `mine` are the distances of the calling thread's registration and of its purse's address. Nobody else has the
/// label's block.
#[inline(always)]
pub(in crate::percpu) unsafe fn take(
    area: isize,
    mine: isize,
    group: u64,
    delta: u64,
    label: *mut u16,
) -> bool {
    // SAFETY: the section has one store that others can see, its last instruction (P1 in `../README.md`), and none where the sum is
    // negative, as that of every frozen word is, whether it overflows or not (P2). Of what others write it loads one word, so there
    // is no order to keep (O1). Guarded by `inject::tests::every_point_of_every_section_restarts`.
    unsafe {
        section!(
            [
                point!(1),
                "mrs {t}, tpidr_el0",
                "ldr {purse}, [{t}, {mine}]",
                "ldr {t}, [{purse}, {group_at}]",
                "cmp {t}, {group}",
                "b.ne {no}",
                point!(2),
                "ldr {t}, [{purse}]",
                point!(3),
                "subs {t}, {t}, {delta}",
                "b.lt {no}",
                point!(4),
                "ldr {number}, [{purse}, {number_at}]",
                "strh {number:w}, [{label}]",
                point!(5),
                "str {t}, [{purse}]",
            ]
            a = out(reg) _,
            t = out(reg) _,
            purse = out(reg) _,
            number = out(reg) _,
            area = in(reg) area,
            mine = in(reg) mine,
            group = in(reg) group,
            delta = in(reg) delta,
            label = in(reg) label,
            group_at = const offset_of!(Purse, group),
            number_at = const offset_of!(Purse, number),
            no = label { return false },
            options(nostack),
        );
    }
    true
}

/// Puts units into the calling thread's purse: adds `delta` unless that makes too many, or a count is full, or the purse is another
/// number's.
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(in crate::percpu) unsafe fn put(area: isize, mine: isize, number: u64, delta: u64) -> bool {
    // SAFETY: as in `take`; a frozen word with so few units more is larger than any `most`. The word comes before that (O2): it is
    // opened last, by a release store.
    unsafe {
        section!(
            [
                point!(1),
                "mrs {t}, tpidr_el0",
                "ldr {purse}, [{t}, {mine}]",
                "ldr {t}, [{purse}, {number_at}]",
                "cmp {t}, {number}",
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
            purse = out(reg) _,
            area = in(reg) area,
            mine = in(reg) mine,
            number = in(reg) number,
            delta = in(reg) delta,
            number_at = const offset_of!(Purse, number),
            most_at = const offset_of!(Purse, most),
            guards = in(reg) GUARDS,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

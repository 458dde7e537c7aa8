//! The sections of `sums.rs` on arm64. Each loads one word alone, so there is no order to keep (O1 in
//! `../README.md`).

use crate::percpu::MARK;
use crate::percpu::rseq::{abort_count, point, section};
use std::arch::asm;

/// Adds `n` to the running CPU's instance of the word at `base`. Returns the sum and how far behind
/// `base` that instance lies.
///
/// # Safety
/// As [`rseq::add`](crate::percpu::rseq::add): `base + index * stride` is a live, aligned 8-byte word for
/// every column index that the kernel can report, written by these sections alone.
#[inline(always)]
pub(crate) unsafe fn add_return<const INDEX: isize>(
    area: isize,
    base: *const u64,
    stride: usize,
    n: i64,
) -> (i64, usize) {
    let (sum, distance);
    // SAFETY: the caller vouches for the address; the one store is the section's last instruction
    // (P1; guarded by `inject::tests::every_point_of_every_section_restarts`).
    unsafe {
        section!(
            [
                point!(1),
                "ldr {c:w}, [{a}, {index}]",
                point!(2),
                "mul {c}, {c}, {stride}",
                "ldr {t}, [{base}, {c}]",
                point!(3),
                "add {t}, {t}, {n}",
                point!(4),
                "str {t}, [{base}, {c}]",
            ]
            a = out(reg) _,
            t = out(reg) sum,
            c = out(reg) distance,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            base = in(reg) base,
            n = in(reg) n,
            options(nostack),
        );
    }
    (sum, distance)
}

/// Adds `delta` (which leaves the mark alone) to the running CPU's instance of a marked word;
/// `false`, and nothing is changed, if the mark is missing or the sum would overflow.
///
/// # Safety
/// As [`add_return`].
#[inline(always)]
pub(crate) unsafe fn add_marked<const INDEX: isize>(
    area: isize,
    base: *const u64,
    stride: usize,
    delta: i64,
) -> bool {
    // SAFETY: as in `add_return`; a sum that is refused is not stored.
    unsafe {
        section!(
            [
                point!(1),
                "ldr {c:w}, [{a}, {index}]",
                point!(2),
                "mul {c}, {c}, {stride}",
                "ldr {t}, [{base}, {c}]",
                point!(3),
                "tst {t}, {mark}",
                "b.eq {no}",
                "adds {t}, {t}, {delta}",
                "b.vs {no}",
                point!(4),
                "str {t}, [{base}, {c}]",
            ]
            a = out(reg) _,
            t = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            base = in(reg) base,
            delta = in(reg) delta,
            mark = const MARK,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

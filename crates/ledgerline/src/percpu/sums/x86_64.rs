//! The sections of `sums.rs` on x86-64.

use crate::percpu::MARK;
use crate::percpu::rseq::{abort_count, point, section};
use std::arch::asm;

/// Adds `n` to the running CPU's instance of the word at `base`. Returns the sum and how far behind
/// `base` that instance lies.
///
/// # Safety
/// As [`rseq::add`](super::rseq::add): `base + index * stride` is a live, aligned 8-byte word for
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
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "imul {c}, {stride}",
                "mov {t}, qword ptr [{c} + {base}]",
                point!(3),
                "add {t}, {n}",
                point!(4),
                "mov qword ptr [{c} + {base}], {t}",
            ]
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
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "imul {c}, {stride}",
                "mov {t}, qword ptr [{c} + {base}]",
                point!(3),
                "test {t:l}, {mark}",
                "je {no}",
                "add {t}, {delta}",
                "jo {no}",
                point!(4),
                "mov qword ptr [{c} + {base}], {t}",
            ]
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

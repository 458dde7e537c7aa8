//! Two more sections, for sums: one returns the new sum, the other tests a mark. Their instructions are
//! in `instructions/`.
//!
//! ```text
//! add_return(base, stride, n):              add_marked(base, stride, delta):
//!   restart:                                  restart:
//!     area.rseq_cs = &descriptor                area.rseq_cs = &descriptor
//!     word = base + area.index * stride         word = base + area.index * stride
//!     sum  = *word + n                          sum  = *word
//!     *word = sum             // commit         if sum & MARK == 0:      fail
//!     return sum, word - base                   sum += delta
//!                                               if that overflowed:      fail
//!                                               *word = sum              // commit
//! ```
//!
//! As in `rseq.rs`, each has one store that other threads can see, its last instruction (P1).

use super::MARK;

/// Adds `n` to the running CPU's instance of the word at `base`. Returns the sum and the distance of
/// that instance from `base`.
///
/// # Safety
/// As for [`rseq::add`](super::rseq::add): `base + index * stride` is a live, aligned 8-byte word for
/// every column index that the kernel can report, written only by these sections.
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
        section!(add_return:
            t = out(reg) sum,
            c = out(reg) distance,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            base = in(reg) base,
            n = in(reg) n,
        );
    }
    (sum, distance)
}

/// Adds `delta`, which leaves the mark alone, to the running CPU's instance of a marked word. Changes
/// nothing and returns `false` if the mark is missing or the sum would overflow.
///
/// # Safety
/// As for [`add_return`].
#[inline(always)]
pub(crate) unsafe fn add_marked<const INDEX: isize>(
    area: isize,
    base: *const u64,
    stride: usize,
    delta: i64,
) -> bool {
    // SAFETY: as in `add_return`; a sum that is refused is not stored.
    unsafe {
        section!(add_marked:
            t = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            base = in(reg) base,
            delta = in(reg) delta,
            mark = const MARK,
            no = label { return false },
        );
    }
    true
}

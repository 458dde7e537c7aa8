//! The restartable sections of counters: a narrow difference beside the threshold that it may not
//! pass, and a wide one that may not overflow.
//!
//! A *block* lies in every column: two bytes of header, then the differences of one place. The
//! header holds the thresholds; a closed header lets no update through (`../stat/width.rs` says
//! which values do that).
//!
//! ```text
//! up(block, at, stride, n):                 compare_store(block, at, column, header, old, new):
//!   restart:                                  restart:
//!     area.rseq_cs = &descriptor                area.rseq_cs = &descriptor
//!     offset = area.index * stride              if area.index != column:   fail
//!     most = block[offset].most                 if block.header != header: fail
//!     sum  = at[offset] + n                     if *at != old:             fail
//!     if sum > most: fail                       *at = new               // commit
//!     at[offset] = sum        // commit
//!
//! down: likewise, with the least             add(at, stride, n): likewise, without a header;
//!                                              if the sum overflows: fail
//! ```
//!
//! The header is read before the difference. Whoever takes differences away from another CPU closes
//! the header, fences, takes, and opens it again: a section that has read the open header before is
//! aborted by the fence, and one that reads it open afterwards reads the difference after that, which
//! is what the taker left (x86 keeps the order of loads, and of stores).
//!
//! `n` is between -2^16 and 2^16, so that 32 bits hold every sum.

use super::rseq::{abort_count, point, section};
use std::arch::asm;

/// Builds one section that adds to a narrow difference if its limit allows: how the limit and the
/// difference are loaded, which comparison fails, how the sum is stored.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $load_limit:literal, $load:literal, $fail:literal, $store:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// For each column index that the kernel can report, `block + index * stride` is a live
        /// block and `at + index * stride` a difference in it; they are written by these sections,
        /// or by others while the header is closed and fenced.
        #[inline(always)]
        pub(crate) unsafe fn $name<const INDEX: isize>(
            area: isize,
            block: *const u8,
            at: *const u8,
            stride: usize,
            n: i32,
        ) -> bool {
            // SAFETY: the caller vouches for the addresses; one store, the last instruction (P1),
            // and none when the header is closed (P2; both in README.md; guarded by
            // `inject::tests::every_point_of_every_section_restarts`).
            unsafe {
                section!(
                    [
                        point!(1),
                        "mov {c:e}, dword ptr fs:[{area} + {index}]",
                        point!(2),
                        "imul {c}, {stride}",
                        $load_limit,
                        point!(3),
                        $load,
                        "add {t:e}, {n:e}",
                        point!(4),
                        "cmp {t:e}, {x:e}",
                        $fail,
                        point!(5),
                        $store,
                    ]
                    t = out(reg) _,
                    x = out(reg) _,
                    c = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    stride = in(reg) stride,
                    block = in(reg) block,
                    at = in(reg) at,
                    n = in(reg) n,
                    no = label { return false },
                    options(nostack),
                );
            }
            true
        }
    };
}

bounded!(
    /// Adds `n > 0` to an 8-bit difference, unless the sum is above the block's first byte.
    up_i8,
    "movsx {x:e}, byte ptr [{c} + {block}]",
    "movsx {t:e}, byte ptr [{c} + {at}]",
    "jg {no}",
    "mov byte ptr [{c} + {at}], {t:l}"
);
bounded!(
    /// Adds `n < 0` to an 8-bit difference, unless the sum is below the block's second byte.
    down_i8,
    "movsx {x:e}, byte ptr [{c} + {block} + 1]",
    "movsx {t:e}, byte ptr [{c} + {at}]",
    "jl {no}",
    "mov byte ptr [{c} + {at}], {t:l}"
);
bounded!(
    /// Adds `n > 0` to an unsigned 16-bit difference, unless the sum is above the block's header.
    up_u16,
    "movzx {x:e}, word ptr [{c} + {block}]",
    "movzx {t:e}, word ptr [{c} + {at}]",
    "ja {no}",
    "mov word ptr [{c} + {at}], {t:x}"
);

/// Adds `n` to a 64-bit sum, unless that overflows.
///
/// # Safety
/// `at + index * stride` is a live, aligned 8-byte word for each column index that the kernel can
/// report, written by this section alone.
#[inline(always)]
pub(crate) unsafe fn add_i64<const INDEX: isize>(
    area: isize,
    at: *const u8,
    stride: usize,
    n: i64,
) -> bool {
    // SAFETY: as above (P1; a sum that overflows is not stored).
    unsafe {
        section!(
            [
                point!(1),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "imul {c}, {stride}",
                point!(3),
                "mov {t}, qword ptr [{c} + {at}]",
                point!(4),
                "add {t}, {n}",
                "jo {no}",
                point!(5),
                "mov qword ptr [{c} + {at}], {t}",
            ]
            t = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            at = in(reg) at,
            n = in(reg) n,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

/// Replaces a difference in `column`, if that is the running column and the block's header and the
/// difference are as expected: the slow paths' way to let a difference overstep.
macro_rules! compare_store {
    ($name:ident, $type:ty, $compare:literal, $store:literal) => {
        /// Replaces the difference `at` of a block in `column` by `new`, if that is the running
        /// column and header and difference are as expected.
        ///
        /// # Safety
        /// `block` and `at` are a live block and a difference in it, those of `column`; otherwise
        /// as the sections above.
        pub(crate) unsafe fn $name<const INDEX: isize>(
            area: isize,
            block: *const u8,
            at: *const u8,
            column: u32,
            header: u16,
            (old, new): ($type, $type),
        ) -> bool {
            // SAFETY: as above (P1, P2).
            unsafe {
                section!(
                    [
                        point!(1),
                        "cmp {column:e}, dword ptr fs:[{area} + {index}]",
                        "jne {no}",
                        point!(2),
                        "cmp word ptr [{block}], {header:x}",
                        "jne {no}",
                        point!(3),
                        $compare,
                        "jne {no}",
                        point!(4),
                        $store,
                    ]
                    t = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    column = in(reg) column,
                    block = in(reg) block,
                    at = in(reg) at,
                    header = in(reg) header,
                    old = in(reg) i32::from(old),
                    new = in(reg) i32::from(new),
                    no = label { return false },
                    options(nostack),
                );
            }
            true
        }
    };
}

compare_store!(
    compare_store_i8,
    i8,
    "cmp byte ptr [{at}], {old:l}",
    "mov byte ptr [{at}], {new:l}"
);
compare_store!(
    compare_store_u16,
    u16,
    "cmp word ptr [{at}], {old:x}",
    "mov word ptr [{at}], {new:x}"
);

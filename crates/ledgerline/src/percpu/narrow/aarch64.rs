//! The sections of `narrow.rs` on arm64.
//!
//! The limits are loaded by `ldarb` or `ldarh`, so that the word comes after them (O3 in `../README.md`): its
//! partner is the release store that opens a block (`../../stat/fold.rs`).

use super::Lane;
use crate::percpu::rseq::{abort_count, point, section};
use std::arch::asm;

/// Builds a section that adds to a lane if its limit allows: where the limit lies in the block, how it is
/// loaded, how the lane is cut out, which comparison fails.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $at:literal, $load_limit:literal, $cut:literal, $fail:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// For each column index that the kernel can report, `block + index * stride` is a live
        /// block and `word + index * stride` an aligned word in it; they are written by these
        /// sections, or by others while the limits are closed and fenced.
        #[inline(always)]
        pub(crate) unsafe fn $name<const INDEX: isize>(area: isize, lane: Lane, n: i32) -> bool {
            // SAFETY: the caller vouches for the addresses; one store, the last instruction (P1),
            // and none when the limits are closed (P2; both in `../README.md`; guarded by
            // `inject::tests::every_point_of_every_section_restarts`).
            unsafe {
                section!(
                    [
                        point!(1),
                        "ldr {o:w}, [{a}, {index}]",
                        point!(2),
                        "mul {o}, {o}, {stride}",
                        "add {x}, {o}, {limit}",
                        $load_limit,
                        point!(3),
                        "ldr {t}, [{word}, {o}]",
                        "lsr {y}, {t}, {shift:x}",
                        $cut,
                        "add {y:w}, {y:w}, {n:w}",
                        "add {t}, {t}, {shifted}",
                        point!(4),
                        "cmp {y:w}, {x:w}",
                        $fail,
                        point!(5),
                        "str {t}, [{word}, {o}]",
                    ]
                    a = out(reg) _,
                    t = out(reg) _,
                    x = out(reg) _,
                    y = out(reg) _,
                    o = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    stride = in(reg) lane.stride,
                    limit = in(reg) lane.block.wrapping_add($at),
                    word = in(reg) lane.word,
                    shift = in(reg) lane.shift,
                    n = in(reg) n,
                    shifted = in(reg) i64::from(n) << lane.shift,
                    no = label { return false },
                    options(nostack),
                );
            }
            true
        }
    };
}

bounded!(
    /// Adds `n > 0` to an 8-bit lane, unless the sum is above the block's first byte.
    up_u8,
    0,
    "ldarb {x:w}, [{x}]",
    "and {y:w}, {y:w}, 0xff",
    "b.hi {no}"
);
bounded!(
    /// Adds `n < 0` to an 8-bit lane, unless the sum is below the block's second byte.
    down_u8,
    1,
    "ldarb {x:w}, [{x}]",
    "and {y:w}, {y:w}, 0xff",
    "b.lt {no}"
);
bounded!(
    /// Adds `n > 0` to a 16-bit lane, unless the sum is above the block's first two bytes.
    up_u16,
    0,
    "ldarh {x:w}, [{x}]",
    "and {y:w}, {y:w}, 0xffff",
    "b.hi {no}"
);

/// As [`bounded`] for one up or down: the lane itself is compared.
macro_rules! by_one {
    ($(#[$doc:meta])* $name:ident, $at:literal, $one:literal, $fail:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`up_u8`].
        #[inline(always)]
        pub(crate) unsafe fn $name<const INDEX: isize>(area: isize, lane: Lane) -> bool {
            // SAFETY: as above (P1, P2).
            unsafe {
                section!(
                    [
                        point!(1),
                        "ldr {o:w}, [{a}, {index}]",
                        point!(2),
                        "mul {o}, {o}, {stride}",
                        "add {x}, {o}, {limit}",
                        "ldarb {x:w}, [{x}]",
                        point!(3),
                        "ldr {t}, [{word}, {o}]",
                        "lsr {y}, {t}, {shift:x}",
                        "and {y:w}, {y:w}, 0xff",
                        "add {t}, {t}, {one}",
                        point!(4),
                        "cmp {y:w}, {x:w}",
                        $fail,
                        point!(5),
                        "str {t}, [{word}, {o}]",
                    ]
                    a = out(reg) _,
                    t = out(reg) _,
                    x = out(reg) _,
                    y = out(reg) _,
                    o = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    stride = in(reg) lane.stride,
                    limit = in(reg) lane.block.wrapping_add($at),
                    word = in(reg) lane.word,
                    shift = in(reg) lane.shift,
                    one = in(reg) ($one as i64) << lane.shift,
                    no = label { return false },
                    options(nostack),
                );
            }
            true
        }
    };
}

by_one!(
    /// Adds one to an 8-bit lane, unless it is at the block's first byte, or above.
    inc_u8,
    0,
    1,
    "b.hs {no}"
);
by_one!(
    /// Takes one from an 8-bit lane, unless it is at the block's second byte, or below.
    dec_u8,
    1,
    -1,
    "b.ls {no}"
);

/// Adds `n` to a 64-bit sum, unless that overflows.
///
/// # Safety
/// `word + index * stride` is a live, aligned 8-byte word for each column index that the kernel can
/// report, written by this section alone.
#[inline(always)]
pub(crate) unsafe fn add_i64<const INDEX: isize>(
    area: isize,
    word: *const u8,
    stride: usize,
    n: i64,
) -> bool {
    // SAFETY: as above (P1; a sum that overflows is not stored).
    unsafe {
        section!(
            [
                point!(1),
                "ldr {o:w}, [{a}, {index}]",
                point!(2),
                "mul {o}, {o}, {stride}",
                point!(3),
                "ldr {t}, [{word}, {o}]",
                point!(4),
                "adds {t}, {t}, {n}",
                "b.vs {no}",
                point!(5),
                "str {t}, [{word}, {o}]",
            ]
            a = out(reg) _,
            t = out(reg) _,
            o = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            word = in(reg) word,
            n = in(reg) n,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

/// Replaces a word of a block in `column`, if that is the running column and limits and word are as
/// expected: so the slow path lets a difference overstep.
///
/// # Safety
/// `block` is a live block of `column` and `word` an aligned word in it; otherwise as the sections
/// above.
pub(crate) unsafe fn compare_store<const INDEX: isize>(
    area: isize,
    block: *const u8,
    word: *const u8,
    column: u32,
    limits: u16,
    (old, new): (u64, u64),
) -> bool {
    // SAFETY: as above (P1, P2).
    unsafe {
        section!(
            [
                point!(1),
                "ldr {x:w}, [{a}, {index}]",
                "cmp {x:w}, {column:w}",
                "b.ne {no}",
                point!(2),
                "ldarh {x:w}, [{block}]",
                "cmp {x:w}, {limits:w}",
                "b.ne {no}",
                point!(3),
                "ldr {x}, [{word}]",
                "cmp {x}, {old}",
                "b.ne {no}",
                point!(4),
                "stlr {new}, [{word}]",
            ]
            a = out(reg) _,
            x = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            column = in(reg) column,
            block = in(reg) block,
            word = in(reg) word,
            limits = in(reg) u32::from(limits),
            old = in(reg) old,
            new = in(reg) new,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

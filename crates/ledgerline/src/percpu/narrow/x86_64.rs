//! The sections of `narrow.rs` on x86-64.
//!
//! A processor forwards a whole word from a store to the next load at once, and a byte only after many cycles
//! (2.4 ns an update on Zen 4, where a word takes 0.6). The limits are loaded before the word, and loads keep
//! their order here.

use super::Lane;
use crate::percpu::rseq::{abort_count, point, section};
use std::arch::asm;

/// Builds a section that adds to a lane if its limit allows: how the limit is loaded, how the lane is
/// cut out, which comparison fails.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $load_limit:literal, $cut:literal, $fail:literal) => {
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
                        "mov {o:e}, dword ptr fs:[{area} + {index}]",
                        point!(2),
                        "imul {o}, {stride}",
                        $load_limit,
                        point!(3),
                        "mov {t}, qword ptr [{o} + {word}]",
                        "mov {y}, {t}",
                        "shr {y}, cl",
                        $cut,
                        "add {y:e}, {n:e}",
                        "add {t}, {shifted}",
                        point!(4),
                        "cmp {y:e}, {x:e}",
                        $fail,
                        point!(5),
                        "mov qword ptr [{o} + {word}], {t}",
                    ]
                    t = out(reg) _,
                    x = out(reg) _,
                    y = out(reg) _,
                    o = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    stride = in(reg) lane.stride,
                    block = in(reg) lane.block,
                    word = in(reg) lane.word,
                    in("ecx") lane.shift,
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
    "movzx {x:e}, byte ptr [{o} + {block}]",
    "movzx {y:e}, {y:l}",
    "ja {no}"
);
bounded!(
    /// Adds `n < 0` to an 8-bit lane, unless the sum is below the block's second byte.
    down_u8,
    "movzx {x:e}, byte ptr [{o} + {block} + 1]",
    "movzx {y:e}, {y:l}",
    "jl {no}"
);
bounded!(
    /// Adds `n > 0` to a 16-bit lane, unless the sum is above the block's first two bytes.
    up_u16,
    "movzx {x:e}, word ptr [{o} + {block}]",
    "movzx {y:e}, {y:x}",
    "ja {no}"
);

/// As [`bounded`] for one up or down: the lane itself is compared, before the addition.
macro_rules! by_one {
    ($(#[$doc:meta])* $name:ident, $limit:literal, $one:literal, $fail:literal) => {
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
                        "mov {o:e}, dword ptr fs:[{area} + {index}]",
                        point!(2),
                        "imul {o}, {stride}",
                        $limit,
                        point!(3),
                        "mov {t}, qword ptr [{o} + {word}]",
                        "mov {y}, {t}",
                        "shr {y}, cl",
                        "add {t}, {one}",
                        point!(4),
                        "cmp {y:l}, {x:l}",
                        $fail,
                        point!(5),
                        "mov qword ptr [{o} + {word}], {t}",
                    ]
                    t = out(reg) _,
                    x = out(reg) _,
                    y = out(reg) _,
                    o = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    stride = in(reg) lane.stride,
                    block = in(reg) lane.block,
                    word = in(reg) lane.word,
                    in("ecx") lane.shift,
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
    "movzx {x:e}, byte ptr [{o} + {block}]",
    1,
    "jae {no}"
);
by_one!(
    /// Takes one from an 8-bit lane, unless it is at the block's second byte, or below.
    dec_u8,
    "movzx {x:e}, byte ptr [{o} + {block} + 1]",
    -1,
    "jbe {no}"
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
                "mov {o:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "imul {o}, {stride}",
                point!(3),
                "mov {t}, qword ptr [{o} + {word}]",
                point!(4),
                "add {t}, {n}",
                "jo {no}",
                point!(5),
                "mov qword ptr [{o} + {word}], {t}",
            ]
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
                "cmp {column:e}, dword ptr fs:[{area} + {index}]",
                "jne {no}",
                point!(2),
                "cmp word ptr [{block}], {limits:x}",
                "jne {no}",
                point!(3),
                "cmp {old}, qword ptr [{word}]",
                "jne {no}",
                point!(4),
                "mov qword ptr [{word}], {new}",
            ]
            t = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            column = in(reg) column,
            block = in(reg) block,
            word = in(reg) word,
            limits = in(reg) limits,
            old = in(reg) old,
            new = in(reg) new,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

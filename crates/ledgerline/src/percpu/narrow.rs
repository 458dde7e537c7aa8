//! The restartable sections of counters: a narrow difference beside its threshold, and a wide one that may
//! not overflow. Their instructions are in `instructions/`.
//!
//! A *block* lies in every column: a word with the limits, then words with the differences of one place,
//! eight or four to a word (its *lanes*; lane 0 is the lowest). A closed limit admits no update;
//! `../stat/width.rs` defines the closed values.
//!
//! ```text
//! up(block, word, shift, stride, n):        compare_store(block, word, column, limits, old, new):
//!   restart:                                  restart:
//!     area.rseq_cs = &descriptor                area.rseq_cs = &descriptor
//!     offset = area.index * stride              if area.index != column:   fail
//!     most = first(block[offset].most)          if first(block.limits) != limits: fail
//!     sum  = word[offset]                       if *word != old:           fail
//!     if lane(sum >> shift) + n > most: fail    *word = new             // commit
//!     sum += n << shift
//!     word[offset] = sum      // commit       add(word, stride, n): likewise, without limits;
//!                                               if the sum overflows: fail
//! down: likewise, with the least
//! inc, dec: likewise by one; the lane is compared before the addition, which saves two instructions
//! ```
//!
//! See `rseq.rs` for `first`. A whole word is loaded and stored. The limits allow no sum that does not fit
//! its lane, so neighbours are left alone.
//!
//! The limits are read before the word. A thread that takes differences from another CPU closes the limits,
//! fences, takes, and opens the limits again. The fence aborts a section that has read the open limits
//! before. A section that reads them open afterwards reads the word after that, and so finds the word that
//! the stealer left: the stealer's store that opens them is a release, and the section's load of them comes
//! first.
//!
//! `n` is between -2^16 and 2^16, so that 32 bits hold every sum.

/// The position of a lane: its block, its word, and its distance from the word's lowest bit. Both addresses
/// are those of the first column; columns are `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "not public: the module is not")]
pub struct Lane {
    pub block: *const u8,
    pub word: *const u8,
    pub shift: u32,
    pub stride: usize,
}

/// Defines a section that adds to a lane if its limit allows: an amount that is passed, or a fixed one.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $n:ident) => {
        bounded!(@ $(#[$doc])* $name, ($n: i32), $n, [n = in(reg) $n,]);
    };
    ($(#[$doc:meta])* $name:ident by $one:literal) => {
        bounded!(@ $(#[$doc])* $name, (), $one, []);
    };
    (@ $(#[$doc:meta])* $name:ident, ($($n:ident: i32)?), $sum:expr, [$($operand:tt)*]) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// For each column index that the kernel can report, `block + index * stride` is a live block and
        /// `word + index * stride` an aligned word in it; they are written by these sections, or by other
        /// code while the limits are closed and fenced.
        #[inline(always)]
        pub(crate) unsafe fn $name<const INDEX: isize>(area: isize, lane: Lane $(, $n: i32)?) -> bool {
            // SAFETY: the caller vouches for the addresses. The section has one store, its last instruction
            // (P1), and none if the limits are closed (P2; both in `README.md`; guarded by
            // `inject::tests::every_point_of_every_section_restarts`).
            unsafe {
                section!($name(lane):
                    t = out(reg) _,
                    x = out(reg) _,
                    y = out(reg) _,
                    o = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    stride = in(reg) lane.stride,
                    word = in(reg) lane.word,
                    $($operand)*
                    shifted = in(reg) i64::from($sum) << lane.shift,
                    no = label { return false },
                );
            }
            true
        }
    };
}

bounded!(
    /// Adds `n > 0` to an 8-bit lane, unless the sum is above the block's first byte.
    up_u8,
    n
);
bounded!(
    /// Adds `n < 0` to an 8-bit lane, unless the sum is below the block's second byte.
    down_u8,
    n
);
bounded!(
    /// Adds `n > 0` to a 16-bit lane, unless the sum is above the block's first two bytes.
    up_u16,
    n
);
bounded!(
    /// Adds one to an 8-bit lane, unless it is at the block's first byte, or above.
    inc_u8 by 1
);
bounded!(
    /// Subtracts one from an 8-bit lane, unless it is at the block's second byte, or below.
    dec_u8 by -1
);

/// Adds `n` to a 64-bit sum, unless that overflows.
///
/// # Safety
/// `word + index * stride` is a live, aligned 8-byte word for each column index that the kernel can report,
/// written only by this section.
#[inline(always)]
pub(crate) unsafe fn add_i64<const INDEX: isize>(
    area: isize,
    word: *const u8,
    stride: usize,
    n: i64,
) -> bool {
    // SAFETY: as above (P1; a sum that overflows is not stored).
    unsafe {
        section!(add_i64:
            t = out(reg) _,
            o = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            word = in(reg) word,
            n = in(reg) n,
            no = label { return false },
        );
    }
    true
}

/// Replaces a word of a block in `column`, if that is the running column and limits and word are as
/// expected. The slow path uses this for an overstep.
///
/// # Safety
/// `block` is a live block of `column` and `word` an aligned word in it; otherwise as for the sections
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
        section!(compare_store_lane(limits):
            t = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            column = in(reg) column,
            block = in(reg) block,
            word = in(reg) word,
            old = in(reg) old,
            new = in(reg) new,
            no = label { return false },
        );
    }
    true
}

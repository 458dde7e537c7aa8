//! The restartable sections of counters: a narrow difference beside the threshold that it may not
//! pass, and a wide one that may not overflow. Their instructions are in `narrow/x86_64.rs` and
//! `narrow/aarch64.rs`.
//!
//! A *block* lies in every column: a word with the limits, then words with the differences of one
//! place, eight or four to a word (its *lanes*; lane 0 is the lowest). A closed limit lets no update
//! through (`../stat/width.rs` says which values do that).
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
//! (`first`: see `rseq.rs`.) A whole word is loaded and stored. The limits allow no sum that does not fit its lane,
//! so neighbours are left alone.
//!
//! The limits are read before the word. A thread that takes differences from another CPU closes the limits,
//! fences, takes, and opens the limits again. The fence aborts a section that has read the open limits
//! before. A section that reads them open afterwards reads the word after that, and so finds what the taker
//! left: the taker's store that opens them is a release, and the section's load of them comes first.
//!
//! `n` is between -2^16 and 2^16, so that 32 bits hold every sum.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

pub(crate) use machine::{add_i64, compare_store, dec_u8, down_u8, inc_u8, up_u8, up_u16};

/// Where a lane is: its block, its word, and how far it lies from the word's lowest bit. Both
/// addresses are those of the first column; columns are `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "not public: the module is not")]
pub struct Lane {
    pub block: *const u8,
    pub word: *const u8,
    pub shift: u32,
    pub stride: usize,
}

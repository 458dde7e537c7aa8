//! Two more sections, for sums: one returns the new sum, and one tests a mark. Their instructions are in
//! `sums/x86_64.rs` and `sums/aarch64.rs`.
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
//! As in `rseq.rs` each has one store that others can see, its last instruction (P1).

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

pub(crate) use machine::{add_marked, add_return};

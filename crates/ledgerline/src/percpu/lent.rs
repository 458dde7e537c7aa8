//! The sections of charges that come by number: as `take` and `put` of `rseq.rs`, over cells that are only
//! looked for while a word says that they are there. Their instructions are in `lent/x86_64.rs` and
//! `lent/aarch64.rs`.
//!
//! ```text
//! update(lent, number, id, delta):             take away (any thread, no other at the same time)
//!   restart:                                     lent.number = 0
//!     area.rseq_cs = &descriptor                 fence: membarrier(PRIVATE_EXPEDITED_RSEQ)
//!     if first(lent.number) != number: fail      from here on no section has the cells' address
//!     cell = lent.cells + row of id + area.index * STRIDE
//!     as `update` from here on
//! ```
//!
//! The number is looked at *inside* the section. So a section that the fence finds under way is sent back to
//! its start, and one that begins later sees the number gone: after the fence nobody uses the address. That
//! is all of the proof; a writer pays for it with one load and one comparison, and stores nothing.
//!
//! (A page fault inside a section is the one thing that outlasts the fence: the kernel resolves it before it
//! sends the thread back. So the address stays mapped, whatever lies there by then: `region/retired.rs`.)

#[cfg(all(rseq, target_arch = "aarch64"))]
mod aarch64;
#[cfg(all(rseq, target_arch = "x86_64"))]
mod x86_64;

#[cfg(all(rseq, target_arch = "aarch64"))]
use aarch64 as machine;
#[cfg(all(rseq, target_arch = "x86_64"))]
use x86_64 as machine;

#[cfg(rseq)]
pub(crate) use machine::{put, take};

use crate::sync::{AtomicU64, AtomicUsize};

/// What the sections look at: the number under which a ledger's cells are lent, and where the first column is.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) number: AtomicU64,
    pub(crate) cells: AtomicUsize,
}

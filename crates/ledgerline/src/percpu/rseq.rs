//! The restartable sections of cells: what each does. Their instructions are in `rseq/x86_64.rs` and
//! `rseq/aarch64.rs`.
//!
//! Pseudocode first (`README.md` in this folder has the invariants and the proof sketch). `index` is the
//! running CPU's column as the kernel last wrote it into the thread's rseq area (at `INDEX` from `rseq_cs`,
//! see `registration.rs`), and `stride` the distance between columns; `abort` means that the kernel
//! preempted, migrated, signalled or fenced the thread between two instructions of the section, and moved
//! it to the restart. `first` marks a load that comes before all that follow it: on x86-64 every load does,
//! on arm64 a load-acquire does, or one on whose value the next load's address depends.
//!
//! ```text
//! add(base, stride, n):                     update(cell0, id, delta):
//!   restart:                                  restart:
//!     area.rseq_cs = &descriptor                area.rseq_cs = &descriptor
//!     cell = base + area.index * stride         cell = cell0 + area.index * stride
//!     *cell += n              // commit         sum  = first(cell.word) + delta
//!                                               if put and low32(sum) > cell.cap: fail
//!                                               if (sum ^ id) & TEST != 0:        fail
//!                                               cell.word = sum         // commit
//!
//! add_tagged(cell0, stride, tag, offset, n):
//!   restart:
//!     area.rseq_cs = &descriptor
//!     cell = cell0 + area.index * stride
//!     if first(cell.tag) != tag:          fail
//!     *(cell + offset) += n               // commit
//!
//! compare_store(cell, column, expected, new):
//!   restart:
//!     area.rseq_cs = &descriptor
//!     if area.index != column:            fail
//!     if cell.word != expected:           fail
//!     cell.word = new                     // commit
//! ```
//!
//! `take` and `put` are `update` with the running column's prepaid units: `take` never compares the cap.
//! `take_first` and `put_first` are `update` for a row's first group, whose generation is a constant.
//! `spin_until_aborted` stores nothing: the self-test at start waits in it (`probe.rs`).
//!
//! Each has one store that others can see, the last instruction of its section: either the kernel
//! aborts before it and nothing happened, or it happened.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

#[cfg(any(test, own_area))]
pub(crate) use machine::SIGNATURE;
// What every machine's sections are made of.
pub(crate) use machine::{abort_count, point, section};
// The sections.
#[cfg(target_arch = "aarch64")]
pub(crate) use machine::wait_until_aborted;
pub(crate) use machine::{
    add, add_tagged, compare_store, index, put, put_first, spin_until_aborted, take, take_first,
};

//! The restartable sections of cells. Their instructions are in `instructions/x86_64.rs` and
//! `instructions/aarch64.rs`.
//!
//! `README.md` in this folder has the invariants and the proof sketch. In the pseudocode, `index` is the
//! running CPU's column as the kernel last wrote it into the thread's rseq area (at `INDEX` from
//! `rseq_cs`, see `registration.rs`), and `stride` is the distance between columns. An *abort* means
//! that the kernel preempted, migrated, signalled or fenced the thread between two instructions of the
//! section, and moved it to the restart. `first` marks a load that comes before all later loads: on
//! x86-64 every load does; on arm64 it is a load-acquire, or a load on whose value the next load's
//! address depends.
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
//! Each section has one store that other threads can see, its last instruction. If the kernel aborts the
//! section before it, nothing has happened.

#[cfg(all(rseq, target_arch = "aarch64"))]
mod aarch64;
#[cfg(not(rseq))]
mod none;
#[cfg(all(rseq, target_arch = "x86_64"))]
mod x86_64;

#[cfg(all(rseq, target_arch = "aarch64"))]
use aarch64 as machine;
#[cfg(not(rseq))]
use none as machine;
#[cfg(all(rseq, target_arch = "x86_64"))]
use x86_64 as machine;

use super::word::{Cell, STRIDE_SHIFT, TEST};
use std::sync::atomic::AtomicU64;

#[cfg(all(rseq, any(test, own_area)))]
pub(crate) use machine::SIGNATURE;
#[cfg(all(rseq, target_arch = "aarch64"))]
pub(crate) use machine::wait_until_aborted;
pub(crate) use machine::{index, put_first, spin_until_aborted, take_first};

/// Adds `n` to the running CPU's instance of the word at `base`.
///
/// # Safety
/// `base + index * stride` is a live, aligned 8-byte word for every column index that the kernel can
/// report, written only by these sections, or by atomics that tolerate a lost race.
#[inline(always)]
pub(crate) unsafe fn add<const INDEX: isize>(area: isize, base: *const u64, stride: usize, n: i64) {
    // SAFETY: the caller vouches for the address. The section has one store, its last instruction, so an
    // abort leaves nothing behind (P1 in `README.md`; guarded by
    // `inject::tests::every_point_of_every_section_restarts`).
    unsafe {
        section!(add:
            t = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            base = in(reg) base,
            n = in(reg) n,
        );
    }
}

/// Adds `n` to the word `offset` bytes into the running CPU's cell if the cell's first word is `tag`.
///
/// # Safety
/// As for [`add`], with a cell of at least `offset + 8` bytes at `cell + index * stride`.
#[inline(always)]
pub(crate) unsafe fn add_tagged<const INDEX: isize>(
    area: isize,
    cell: *const AtomicU64,
    stride: usize,
    tag: u64,
    offset: usize,
    n: i64,
) -> bool {
    // SAFETY: as in `add` (P1). The one store is the last instruction, and is not reached without the
    // tag.
    unsafe {
        section!(add_tagged:
            t = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            cell = in(reg) cell,
            tag = in(reg) tag,
            offset = in(reg) offset,
            n = in(reg) n,
            no = label { return false },
        );
    }
    true
}

/// Defines `take`, or `put`.
macro_rules! update {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) unsafe fn $name<const INDEX: isize>(
            area: isize,
            cell: *const Cell,
            id: u64,
            delta: u64,
        ) -> bool {
            // SAFETY: as in `add`; additionally a sum that fails the test is not stored (P2).
            unsafe {
                section!($name:
                    t = out(reg) _,
                    x = out(reg) _,
                    c = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    shift = const STRIDE_SHIFT,
                    cell = in(reg) cell,
                    delta = in(reg) delta,
                    id = in(reg) id,
                    test = in(reg) TEST,
                    no = label { return false },
                );
            }
            true
        }
    };
}

update!(
    /// Takes prepaid units: adds `delta` to the charge word unless a guard or the generation forbids it.
    ///
    /// # Safety
    /// `cell + (index << STRIDE_SHIFT)` is a live [`Cell`] for every column index that the kernel can
    /// report, its word written by these sections, or frozen first.
    take
);
update!(
    /// Puts units back: like [`take`], but the stock may not pass the cell's cap.
    ///
    /// # Safety
    /// As for [`take`].
    put
);

/// Replaces the word of the cell in `column` if that is the running column and the word is as expected.
/// Slow paths use this to change a cell that the running CPU owns.
///
/// # Safety
/// As for [`take`], and `cell` is the cell in `column`.
pub(crate) unsafe fn compare_store<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    column: u32,
    expected: u64,
    new: u64,
) -> bool {
    // SAFETY: as in `take` (P1, P2).
    unsafe {
        section!(compare_store:
            t = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            column = in(reg) column,
            expected = in(reg) expected,
            new = in(reg) new,
            cell = in(reg) cell,
            no = label { return false },
        );
    }
    true
}

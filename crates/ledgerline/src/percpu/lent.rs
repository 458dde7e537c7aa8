//! The sections of charges that come by number: as `take` and `put` of `rseq.rs`, over cells that are only
//! looked for while a word says that they are there. Their instructions are in `instructions/`.
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

use super::word::{Cell, STRIDE_SHIFT};
use crate::sync::{AtomicU64, AtomicUsize};

/// What the sections look at: the number under which a ledger's cells are lent, and where the first column is.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) number: AtomicU64,
    pub(crate) cells: AtomicUsize,
}

/// A cell's place in its column is its row, shifted by this.
const CELL_SHIFT: u32 = size_of::<Cell>().trailing_zeros();

/// Defines `take`, or `put`.
macro_rules! update {
    ($(#[$doc:meta])* $name:ident, $section:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) unsafe fn $name<const INDEX: isize>(
            area: isize,
            lent: &Lent,
            number: u64,
            id: u64,
            delta: u64,
        ) -> bool {
            // SAFETY: as in `rseq::take` and `rseq::put` (P1, P2, the order of word and cap), and the number is
            // compared before the address is used. Guarded by
            // `inject::tests::a_section_that_is_held_while_its_cells_are_taken_away_does_not_touch_them`.
            unsafe {
                section!($section(lent):
                    t = out(reg) _,
                    x = out(reg) _,
                    c = out(reg) _,
                    area = in(reg) area,
                    index = const INDEX,
                    shift = const STRIDE_SHIFT,
                    number = in(reg) number,
                    cell_shift = const CELL_SHIFT,
                    delta = in(reg) delta,
                    id = in(reg) id,
                    no = label { return false },
                );
            }
            true
        }
    };
}

update!(
    /// As [`take`](crate::percpu::rseq::take) for the cell of `id`'s row, while `number` is lent.
    ///
    /// # Safety
    /// While `lent.number` is `number`, `lent.cells` is a first column that has that row, and after another number
    /// was stored it stays so until a fence. `area` is the calling thread's registration.
    take,
    take_lent
);
update!(
    /// As [`put`](crate::percpu::rseq::put), while `number` is lent.
    ///
    /// # Safety
    /// As [`take`].
    put,
    put_lent
);

//! The sections of charges by number: like `take` and `put` of `rseq.rs`, but over cells whose address is only
//! used while a word holds the expected number. Their instructions are in `instructions/`.
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
//! The number is checked *inside* the section. So a section that the fence interrupts is sent back to its start,
//! and one that begins later sees the number gone: after the fence no section uses the address. That is the whole
//! proof. It costs a writer one load and one comparison, and no store.
//!
//! Only a page fault inside a section outlasts the fence: the kernel resolves it before it sends the thread back.
//! So the address stays mapped, whatever lies there by then (`region/retired.rs`).

use super::word::{Cell, STRIDE_SHIFT};
use crate::sync::{AtomicU64, AtomicUsize};

/// The words that the sections read: the number under which a ledger's cells are lent, and the address of the
/// first column.
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
    /// Like [`take`](crate::percpu::rseq::take), but for the cell of `id`'s row, while `number` is lent.
    ///
    /// # Safety
    /// While `lent.number` is `number`, `lent.cells` is a first column that has that row. After another number
    /// was stored, this still holds until a fence. `area` is the calling thread's registration.
    take,
    take_lent
);
update!(
    /// Like [`put`](crate::percpu::rseq::put), while `number` is lent.
    ///
    /// # Safety
    /// As for [`take`].
    put,
    put_lent
);

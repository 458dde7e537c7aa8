//! The sections of `lent.rs` on arm64.
//!
//! The number comes before the cells' address (O4 in `../README.md`), by a dependency: the address is loaded
//! from `cells` plus the difference of the numbers, which is zero. That costs nothing, where an acquire would
//! wait for the releases before it.

use super::Lent;
use crate::percpu::rseq::{abort_count, point, section};
use crate::percpu::word::{Cell, STRIDE_SHIFT, TEST};
use std::arch::asm;

/// A cell's place in its column is its row, shifted by this.
const CELL_SHIFT: u32 = size_of::<Cell>().trailing_zeros();

/// As [`take`](crate::percpu::rseq::take) for the cell of `id`'s row, while `number` is lent.
///
/// # Safety
/// While `lent.number` is `number`, `lent.cells` is a first column that has that row, and after another number was
/// stored it stays so until a fence. `area` is the calling thread's registration.
#[inline(always)]
pub(crate) unsafe fn take<const INDEX: isize>(
    area: isize,
    lent: &Lent,
    number: u64,
    id: u64,
    delta: u64,
) -> bool {
    // SAFETY: as in `rseq::take` (P1, P2), and the number is compared before the address is used. Guarded by
    // `inject::tests::a_section_that_is_held_while_its_cells_are_taken_away_does_not_touch_them`.
    unsafe {
        section!(
            [
                point!(1),
                "ldr {x}, [{lent}]",
                "eor {x}, {x}, {number}",
                "cbnz {x}, {no}",
                point!(2),
                "ldr {c:w}, [{a}, {index}]",
                "ldr {t}, [{cells}, {x}]",
                "add {c}, {t}, {c}, lsl {shift}",
                "add {c}, {c}, {id:w}, uxtw {cell_shift}",
                "ldr {t}, [{c}]",
                point!(3),
                "add {t}, {t}, {delta}",
                "eor {x}, {t}, {id}",
                point!(4),
                "tst {x}, {test}",
                "b.ne {no}",
                point!(5),
                "str {t}, [{c}]",
            ]
            a = out(reg) _,
            t = out(reg) _,
            x = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            shift = const STRIDE_SHIFT,
            lent = in(reg) &raw const lent.number,
            cells = in(reg) &raw const lent.cells,
            number = in(reg) number,
            cell_shift = const CELL_SHIFT,
            delta = in(reg) delta,
            id = in(reg) id,
            test = in(reg) TEST,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

/// As [`put`](crate::percpu::rseq::put), while `number` is lent.
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(crate) unsafe fn put<const INDEX: isize>(
    area: isize,
    lent: &Lent,
    number: u64,
    id: u64,
    delta: u64,
) -> bool {
    // SAFETY: as in `take`, and in `rseq::put` (the word comes before the cap, O2).
    unsafe {
        section!(
            [
                point!(1),
                "ldr {x}, [{lent}]",
                "eor {x}, {x}, {number}",
                "cbnz {x}, {no}",
                point!(2),
                "ldr {c:w}, [{a}, {index}]",
                "ldr {t}, [{cells}, {x}]",
                "add {c}, {t}, {c}, lsl {shift}",
                "add {c}, {c}, {id:w}, uxtw {cell_shift}",
                "ldar {t}, [{c}]",
                point!(3),
                "ldr {x:w}, [{c}, 8]",
                "add {t}, {t}, {delta}",
                "cmp {t:w}, {x:w}",
                "b.hi {no}",
                "eor {x}, {t}, {id}",
                point!(4),
                "tst {x}, {test}",
                "b.ne {no}",
                point!(5),
                "str {t}, [{c}]",
            ]
            a = out(reg) _,
            t = out(reg) _,
            x = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            shift = const STRIDE_SHIFT,
            lent = in(reg) &raw const lent.number,
            cells = in(reg) &raw const lent.cells,
            number = in(reg) number,
            cell_shift = const CELL_SHIFT,
            delta = in(reg) delta,
            id = in(reg) id,
            test = in(reg) TEST,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

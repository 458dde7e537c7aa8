//! The sections of `lent.rs` on x86-64.

use super::Lent;
use crate::percpu::rseq::{abort_count, point, section};
use crate::percpu::word::{Cell, STRIDE_SHIFT, TEST};
use std::arch::asm;

/// A cell's place in its column is its row, shifted by this.
const CELL_SHIFT: u32 = size_of::<Cell>().trailing_zeros();
/// See [`TEST`]. In memory: with this in a register, a function of three arguments would have to save others.
static TESTED: u64 = TEST;

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
                "cmp qword ptr [{lent}], {number}",
                "jne {no}",
                point!(2),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                "mov {x:e}, {id:e}",
                "shl {c}, {shift}",
                "shl {x}, {cell_shift}",
                "add {c}, qword ptr [{lent} + 8]",
                "add {c}, {x}",
                "mov {t}, qword ptr [{c}]",
                point!(3),
                "add {t}, {delta}",
                "mov {x}, {t}",
                "xor {x}, {id}",
                point!(4),
                "test {x}, qword ptr [rip + {test}]",
                "jne {no}",
                point!(5),
                "mov qword ptr [{c}], {t}",
            ]
            t = out(reg) _,
            x = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            shift = const STRIDE_SHIFT,
            lent = in(reg) lent,
            number = in(reg) number,
            cell_shift = const CELL_SHIFT,
            delta = in(reg) delta,
            id = in(reg) id,
            test = sym TESTED,
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
    // SAFETY: as in `take`, and in `rseq::put` (the word is read before the cap).
    unsafe {
        section!(
            [
                point!(1),
                "cmp qword ptr [{lent}], {number}",
                "jne {no}",
                point!(2),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                "mov {x:e}, {id:e}",
                "shl {c}, {shift}",
                "shl {x}, {cell_shift}",
                "add {c}, qword ptr [{lent} + 8]",
                "add {c}, {x}",
                "mov {t}, qword ptr [{c}]",
                point!(3),
                "add {t}, {delta}",
                "cmp {t:e}, dword ptr [{c} + 8]",
                "ja {no}",
                "mov {x}, {t}",
                "xor {x}, {id}",
                point!(4),
                "test {x}, qword ptr [rip + {test}]",
                "jne {no}",
                point!(5),
                "mov qword ptr [{c}], {t}",
            ]
            t = out(reg) _,
            x = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            shift = const STRIDE_SHIFT,
            lent = in(reg) lent,
            number = in(reg) number,
            cell_shift = const CELL_SHIFT,
            delta = in(reg) delta,
            id = in(reg) id,
            test = sym TESTED,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

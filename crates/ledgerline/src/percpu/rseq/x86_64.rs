//! Parts of the sections that are specific to x86-64, and a section for the self-test.

use crate::percpu::word::{self, Cell, STRIDE_SHIFT, TEST};
use std::arch::asm;
use std::sync::atomic::AtomicBool;

/// The sections for first groups test a sum after a shift by this much, so that the constants fit into an instruction.
/// The test ignores the uppermost bit of the generation.
const FIRST_SHIFT: u32 = 31;
const FIRST_TEST: u32 = (TEST >> FIRST_SHIFT) as u32;
const FIRST: u32 = (word::empty(1) >> FIRST_SHIFT) as u32;
const _: () = assert!(TEST.trailing_zeros() == FIRST_SHIFT && FIRST & FIRST_TEST == FIRST);

/// The signature that glibc registers with the kernel for x86. It stands before every abort address, so that the kernel
/// can tell a real one from a forged one. It is the operand of a `ud1`, so that running into it traps.
#[cfg(any(test, own_area))]
pub(crate) const SIGNATURE: u32 = 0x5305_3053;

/// Defines a section like `rseq::take` or `rseq::put`, but for a row's first group. It needs two registers less, so an
/// allocator need not save any.
macro_rules! update_first {
    ($name:ident) => {
        /// Like its counterpart for any group, but for a row's first group.
        ///
        /// # Safety
        /// As for `rseq::take`.
        #[inline(always)]
        pub(crate) unsafe fn $name<const INDEX: isize>(
            area: isize,
            cell: *const Cell,
            delta: u64,
        ) -> bool {
            // SAFETY: as in `rseq::take` and `rseq::put` (P1, P2, the order of word and cap).
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
                    first_shift = const FIRST_SHIFT,
                    test = const FIRST_TEST as i32,
                    first = const FIRST,
                    no = label { return false },
                );
            }
            true
        }
    };
}

update_first!(take_first);
update_first!(put_first);

/// Returns the running thread's column index. It is right when it is read, and may be wrong when it is used.
///
/// # Safety
/// `area` is the calling thread's registration.
#[inline(always)]
pub(crate) unsafe fn index<const INDEX: isize>(area: isize) -> u32 {
    let index: u32;
    // SAFETY: reads four bytes of the calling thread's own rseq area.
    unsafe {
        asm!(
            "mov {into:e}, dword ptr fs:[{area} + {index}]",
            into = out(reg) index,
            area = in(reg) area,
            index = const INDEX,
            options(nostack, readonly, preserves_flags),
        );
    }
    index
}

/// Stays inside a section until the kernel aborts it or `turns` turns have passed. Returns whether it was aborted. The
/// self-test at start uses this.
///
/// # Safety
/// `area` is the calling thread's registration.
pub(crate) unsafe fn spin_until_aborted(area: isize, entered: &AtomicBool, turns: u64) -> bool {
    let aborted: u64;
    // SAFETY: the section only stores to `entered`, an atomic that outlives it. Its abort address behind the signature
    // leads to the instruction that reports the abort.
    unsafe {
        asm!(
            descriptor!(),
            ".pushsection .text.rseq_abort, \"ax\", %progbits, unique, .Lledgerline_descriptors",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "5:",
            "mov {aborted:e}, 1",
            "jmp 7f",
            ".popsection",
            "lea {aborted}, [rip + 4b]",
            "mov fs:[{area}], {aborted}",
            "2:",
            "mov byte ptr [{entered}], 1",
            "8:",
            "pause",
            "dec {turns}",
            "jnz 8b",
            "3:",
            "xor {aborted:e}, {aborted:e}",
            "7:",
            aborted = out(reg) aborted,
            area = in(reg) area,
            entered = in(reg) entered,
            turns = inout(reg) turns => _,
            options(nostack),
        );
    }
    aborted != 0
}

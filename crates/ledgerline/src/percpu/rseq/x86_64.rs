//! The sections of `rseq.rs` on x86-64.
//!
//! Loads keep their order here, and so do stores: no section needs more than plain instructions.

use crate::percpu::word::{self, Cell, STRIDE_SHIFT, TEST};
use std::arch::asm;
use std::sync::atomic::AtomicBool;

/// The sections for first groups test a sum after a shift by this much, so that the constants fit into an
/// instruction. The shift loses the uppermost bit of the generation.
const FIRST_SHIFT: u32 = 31;
const FIRST_TEST: u32 = (TEST >> FIRST_SHIFT) as u32;
const FIRST: u32 = (word::empty(1) >> FIRST_SHIFT) as u32;
const _: () = assert!(TEST.trailing_zeros() == FIRST_SHIFT && FIRST & FIRST_TEST == FIRST);

/// The signature that glibc registers with the kernel for x86; it stands before every abort
/// address, so that the kernel can tell a real one from a forged one. (It is the operand of a
/// `ud1`, so that running into it traps.)
#[cfg(any(test, own_area))]
pub(crate) const SIGNATURE: u32 = 0x5305_3053;

/// Builds one restartable section: descriptor, abort trampoline, the section's instructions.
///
/// `{t}` is a scratch register, `{area}` the register with the address of the area's `rseq_cs`
/// relative to the thread pointer. Local labels: 4 descriptor, 2 start, 3 behind the commit,
/// 5 abort address, 6 restart. The restart arms the section anew: the kernel disarms it on abort.
macro_rules! section {
    ([$($body:expr),* $(,)?] $($operands:tt)*) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "4:",
            ".long 0, 0",
            ".quad 2f, 3f - 2f, 5f",
            ".popsection",
            ".pushsection .text.rseq_abort, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "5:",
            abort_count!(),
            "jmp 6f",
            ".popsection",
            "6:",
            "lea {t}, [rip + 4b]",
            "mov fs:[{area}], {t}",
            "2:",
            $($body,)*
            "3:",
            $($operands)*
        )
    };
}

/// A numbered place inside a section at which a test can hold the thread (see `../inject.rs`).
#[cfg(test)]
macro_rules! point {
    ($number:literal) => {
        concat!(
            "cmp dword ptr [rip + ledgerline_inject_point], ",
            $number,
            "\n jne 99f",
            "\n mov dword ptr [rip + ledgerline_inject_reached], ",
            $number,
            "\n 98: pause",
            "\n cmp dword ptr [rip + ledgerline_inject_point], ",
            $number,
            "\n je 98b",
            "\n 99:"
        )
    };
}
#[cfg(not(test))]
macro_rules! point {
    ($number:literal) => {
        ""
    };
}

#[cfg(test)]
macro_rules! abort_count {
    () => {
        "lock inc dword ptr [rip + ledgerline_inject_aborts]\n mov dword ptr [rip + ledgerline_inject_point], 0"
    };
}
#[cfg(not(test))]
macro_rules! abort_count {
    () => {
        ""
    };
}

pub(crate) use {abort_count, point, section};

/// Adds `n` to the running CPU's instance of the word at `base`.
///
/// # Safety
/// `base + index * stride` is a live, aligned 8-byte word for every column index that the kernel
/// can report, written by these sections alone (or by atomics that tolerate a lost race).
#[inline(always)]
pub(crate) unsafe fn add<const INDEX: isize>(area: isize, base: *const u64, stride: usize, n: i64) {
    // SAFETY: the caller vouches for the address; the section has one store, its last
    // instruction, so an abort leaves nothing behind (P1 in `../README.md`; guarded by
    // `inject::tests::every_point_of_every_section_restarts`).
    unsafe {
        section!(
            [
                point!(1),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "imul {c}, {stride}",
                point!(3),
                "add qword ptr [{c} + {base}], {n}",
            ]
            t = out(reg) _,
            c = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            stride = in(reg) stride,
            base = in(reg) base,
            n = in(reg) n,
            options(nostack),
        );
    }
}

/// Adds `n` to the word `offset` bytes into the running CPU's cell if the cell's first word is `tag`.
///
/// # Safety
/// As [`add`], for a cell of more than `offset + 8` bytes at `cell + index * stride`.
#[inline(always)]
pub(crate) unsafe fn add_tagged<const INDEX: isize>(
    area: isize,
    cell: *const std::sync::atomic::AtomicU64,
    stride: usize,
    tag: u64,
    offset: usize,
    n: i64,
) -> bool {
    // SAFETY: as in `add` (P1): one store, the last instruction, and not without the tag.
    unsafe {
        section!(
            [
                point!(1),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "imul {c}, {stride}",
                "add {c}, {cell}",
                "cmp {tag}, qword ptr [{c}]",
                "jne {no}",
                point!(3),
                "add qword ptr [{c} + {offset}], {n}",
            ]
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
            options(nostack),
        );
    }
    true
}

/// Takes prepaid units: adds `delta` to the charge word unless a guard or the generation forbids it.
///
/// # Safety
/// `cell + (index << STRIDE_SHIFT)` is a live [`Cell`] for every column index that the kernel can
/// report, its word written by these sections, or frozen first.
#[inline(always)]
pub(crate) unsafe fn take<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    id: u64,
    delta: u64,
) -> bool {
    // SAFETY: as in `add`; additionally a sum that fails the test is not stored (P2).
    unsafe {
        section!(
            [
                point!(1),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "shl {c}, {shift}",
                "mov {t}, qword ptr [{c} + {cell}]",
                point!(3),
                "add {t}, {delta}",
                "mov {x}, {t}",
                "xor {x}, {id}",
                point!(4),
                "test {x}, {test}",
                "jne {no}",
                point!(5),
                "mov qword ptr [{c} + {cell}], {t}",
            ]
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
            options(nostack),
        );
    }
    true
}

/// Puts units back: as [`take`], and the stock may not pass the cell's cap.
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(crate) unsafe fn put<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    id: u64,
    delta: u64,
) -> bool {
    // SAFETY: as in `take`. The word is read before the cap: an open word is stored after its cap
    // (`Cell::open`), and x86 keeps the order of loads.
    unsafe {
        section!(
            [
                point!(1),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "shl {c}, {shift}",
                "mov {t}, qword ptr [{c} + {cell}]",
                point!(3),
                "add {t}, {delta}",
                "cmp {t:e}, dword ptr [{c} + {cell} + 8]",
                "ja {no}",
                "mov {x}, {t}",
                "xor {x}, {id}",
                point!(4),
                "test {x}, {test}",
                "jne {no}",
                point!(5),
                "mov qword ptr [{c} + {cell}], {t}",
            ]
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
            options(nostack),
        );
    }
    true
}

/// As [`take`] for a row's first group. It needs two registers less, and an allocator that has enough
/// saves none.
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(crate) unsafe fn take_first<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    delta: u64,
) -> bool {
    // SAFETY: as in `take` (P1, P2).
    unsafe {
        section!(
            [
                point!(1),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "shl {c}, {shift}",
                "mov {t}, qword ptr [{c} + {cell}]",
                point!(3),
                "add {t}, {delta}",
                "mov {x}, {t}",
                "shr {x}, {first_shift}",
                point!(4),
                "and {x:e}, {test}",
                "cmp {x:e}, {first}",
                "jne {no}",
                point!(5),
                "mov qword ptr [{c} + {cell}], {t}",
            ]
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
            options(nostack),
        );
    }
    true
}

/// As [`put`] for a row's first group; see [`take_first`].
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(crate) unsafe fn put_first<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    delta: u64,
) -> bool {
    // SAFETY: as in `put` (P1, P2, the order of word and cap).
    unsafe {
        section!(
            [
                point!(1),
                "mov {c:e}, dword ptr fs:[{area} + {index}]",
                point!(2),
                "shl {c}, {shift}",
                "mov {t}, qword ptr [{c} + {cell}]",
                point!(3),
                "add {t}, {delta}",
                "cmp {t:e}, dword ptr [{c} + {cell} + 8]",
                "ja {no}",
                "mov {x}, {t}",
                "shr {x}, {first_shift}",
                point!(4),
                "and {x:e}, {test}",
                "cmp {x:e}, {first}",
                "jne {no}",
                point!(5),
                "mov qword ptr [{c} + {cell}], {t}",
            ]
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
            options(nostack),
        );
    }
    true
}

/// Replaces the word of the cell in `column` if that is the running column and the word is as expected: so
/// slow paths change a cell that the running CPU owns.
///
/// # Safety
/// As [`take`]; `cell` is the cell in `column`.
pub(crate) unsafe fn compare_store<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    column: u32,
    expected: u64,
    new: u64,
) -> bool {
    // SAFETY: as in `take` (P1, P2).
    unsafe {
        section!(
            [
                point!(1),
                "cmp {column:e}, dword ptr fs:[{area} + {index}]",
                "jne {no}",
                point!(2),
                "cmp {expected}, qword ptr [{cell}]",
                "jne {no}",
                point!(3),
                "mov qword ptr [{cell}], {new}",
            ]
            t = out(reg) _,
            area = in(reg) area,
            index = const INDEX,
            column = in(reg) column,
            expected = in(reg) expected,
            new = in(reg) new,
            cell = in(reg) cell,
            no = label { return false },
            options(nostack),
        );
    }
    true
}

/// The running thread's column index. It is right when it is read, and may be wrong when it is used.
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

/// Stays inside a section until the kernel aborts it or `turns` turns have passed. Says whether it was
/// aborted. The self-test at start uses this.
///
/// # Safety
/// `area` is the calling thread's registration.
pub(crate) unsafe fn spin_until_aborted(area: isize, entered: &AtomicBool, turns: u64) -> bool {
    let aborted: u64;
    // SAFETY: the section stores to `entered` alone, an atomic that outlives it; its abort
    // address behind the signature leads to the one instruction that tells the abort.
    unsafe {
        asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "4:",
            ".long 0, 0",
            ".quad 2f, 3f - 2f, 5f",
            ".popsection",
            ".pushsection .text.rseq_abort, \"ax\"",
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

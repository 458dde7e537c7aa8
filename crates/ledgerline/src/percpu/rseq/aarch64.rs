//! The sections of `rseq.rs` on arm64.
//!
//! Other CPUs may see this machine's plain loads and stores in another order than the program has them. What
//! the sections' proof needs is in `../README.md`, place by place: a load that must come before the next is
//! `ldar` (its partner is the release store of whoever opened the word), and a commit is a plain store.
//!
//! The first group of a row needs no sections of its own: registers are plenty, so its id is one more operand.

use crate::percpu::word::{self, Cell, STRIDE_SHIFT, TEST};
use std::arch::asm;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The signature that glibc registers with the kernel for arm64; it stands before every abort address, so
/// that the kernel can tell a real one from a forged one. (It is a `brk`, so that running into it traps.)
#[cfg(test)]
pub(crate) const SIGNATURE: u32 = 0xd428_bc00;

/// Builds one restartable section: descriptor, abort trampoline, the section's instructions.
///
/// `{a}` is a register for the address of the area's `rseq_cs`; `{area}` the register with its distance from
/// the thread pointer. Local labels: 4 descriptor, 2 start, 3 behind the commit, 5 abort address, 6 restart.
/// The restart arms the section anew: the kernel disarms it on abort.
///
/// `x16` and `x17` are the macro's own. (They had to be free in any case: where the trampoline is too far for
/// its branch, the linker inserts a step that may use these two.) Nothing that a body keeps in other
/// registers is lost by the trampoline, but a body computes all it needs anew after a restart.
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
            ".balign 4",
            ".inst 0xd428bc00",
            "5:",
            abort_count!(),
            "b 6f",
            ".popsection",
            "mrs {a}, tpidr_el0",
            "add {a}, {a}, {area}",
            "6:",
            "adrp x16, 4b",
            "add x16, x16, :lo12:4b",
            "str x16, [{a}]",
            "2:",
            $($body,)*
            "3:",
            out("x16") _,
            out("x17") _,
            $($operands)*
        )
    };
}

/// A numbered place inside a section at which a test can hold the thread (see `../inject.rs`). It changes the
/// flags.
#[cfg(test)]
macro_rules! point {
    ($number:literal) => {
        concat!(
            "adrp x16, ledgerline_inject_point",
            "\n add x16, x16, :lo12:ledgerline_inject_point",
            "\n ldr w17, [x16]",
            "\n cmp w17, ",
            $number,
            "\n b.ne 99f",
            "\n adrp x16, ledgerline_inject_reached",
            "\n add x16, x16, :lo12:ledgerline_inject_reached",
            "\n str w17, [x16]",
            "\n adrp x16, ledgerline_inject_point",
            "\n add x16, x16, :lo12:ledgerline_inject_point",
            "\n 98: yield",
            "\n ldr w17, [x16]",
            "\n cmp w17, ",
            $number,
            "\n b.eq 98b",
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

/// Counts an abort, for tests. (Two at once may be counted as one: they ask whether there was any.)
#[cfg(test)]
macro_rules! abort_count {
    () => {
        "adrp x16, ledgerline_inject_aborts\n add x16, x16, :lo12:ledgerline_inject_aborts
         ldr w17, [x16]\n add w17, w17, 1\n str w17, [x16]
         adrp x16, ledgerline_inject_point\n add x16, x16, :lo12:ledgerline_inject_point
         str wzr, [x16]"
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
                "ldr {c:w}, [{a}, {index}]",
                point!(2),
                "mul {c}, {c}, {stride}",
                "ldr {t}, [{base}, {c}]",
                point!(3),
                "add {t}, {t}, {n}",
                point!(4),
                "str {t}, [{base}, {c}]",
            ]
            a = out(reg) _,
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
    cell: *const AtomicU64,
    stride: usize,
    tag: u64,
    offset: usize,
    n: i64,
) -> bool {
    // SAFETY: as in `add` (P1): one store, the last instruction, and not without the tag. The tag comes
    // before the sum (O3): a tag is set by a release store after its sums were taken (`table/sums.rs`).
    unsafe {
        section!(
            [
                point!(1),
                "ldr {c:w}, [{a}, {index}]",
                point!(2),
                "mul {c}, {c}, {stride}",
                "add {c}, {c}, {cell}",
                "ldar {t}, [{c}]",
                "cmp {t}, {tag}",
                "b.ne {no}",
                point!(3),
                "ldr {t}, [{c}, {offset}]",
                "add {t}, {t}, {n}",
                point!(4),
                "str {t}, [{c}, {offset}]",
            ]
            a = out(reg) _,
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
    // SAFETY: as in `add`; additionally a sum that fails the test is not stored (P2). One word is all
    // that is loaded of the cell, so there is no order to keep (O1).
    unsafe {
        section!(
            [
                point!(1),
                "ldr {c:w}, [{a}, {index}]",
                point!(2),
                "add {c}, {cell}, {c}, lsl {shift}",
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
    // SAFETY: as in `take`. The word comes before the cap (O2): an open word is stored after its cap, by a
    // release store (`Cell::open`).
    unsafe {
        section!(
            [
                point!(1),
                "ldr {c:w}, [{a}, {index}]",
                point!(2),
                "add {c}, {cell}, {c}, lsl {shift}",
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

/// As [`take`] for a row's first group.
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(crate) unsafe fn take_first<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    delta: u64,
) -> bool {
    // SAFETY: as the caller says.
    unsafe { take::<INDEX>(area, cell, word::empty(1), delta) }
}

/// As [`put`] for a row's first group.
///
/// # Safety
/// As [`take`].
#[inline(always)]
pub(crate) unsafe fn put_first<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    delta: u64,
) -> bool {
    // SAFETY: as the caller says.
    unsafe { put::<INDEX>(area, cell, word::empty(1), delta) }
}

/// Replaces the word of the cell in `column` if that is the running column and the word is as expected: so
/// slow paths change a cell that the running CPU owns.
///
/// Acquire and release, as the fallback's exchange: a slow path may rely on what it stored before (O5).
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
                "ldr {x:w}, [{a}, {index}]",
                "cmp {x:w}, {column:w}",
                "b.ne {no}",
                point!(2),
                "ldar {x}, [{cell}]",
                "cmp {x}, {expected}",
                "b.ne {no}",
                point!(3),
                "stlr {new}, [{cell}]",
            ]
            a = out(reg) _,
            x = out(reg) _,
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
            "mrs {a}, tpidr_el0",
            "add {a}, {a}, {area}",
            "ldr {into:w}, [{a}, {index}]",
            a = out(reg) _,
            into = lateout(reg) index,
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
    // SAFETY: as the caller says.
    unsafe { wait_until_aborted(area, entered, &AtomicBool::new(false), turns) }
}

/// As [`spin_until_aborted`], and leaves the section by itself, too, when `over` is set.
///
/// # Safety
/// `area` is the calling thread's registration.
pub(crate) unsafe fn wait_until_aborted(
    area: isize,
    entered: &AtomicBool,
    over: &AtomicBool,
    turns: u64,
) -> bool {
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
            ".balign 4",
            ".inst 0xd428bc00",
            "5:",
            "mov {aborted:w}, 1",
            "b 7f",
            ".popsection",
            "mrs x16, tpidr_el0",
            "add x16, x16, {area}",
            "adrp x17, 4b",
            "add x17, x17, :lo12:4b",
            "mov {aborted:w}, 1",
            "str x17, [x16]",
            "2:",
            "strb {aborted:w}, [{entered}]",
            "8:",
            // (A `yield` costs next to nothing, and turns shall take a while.)
            "isb",
            "ldrb {aborted:w}, [{over}]",
            "cbnz {aborted:w}, 3f",
            "subs {turns}, {turns}, 1",
            "b.ne 8b",
            "3:",
            "mov {aborted:w}, 0",
            "7:",
            aborted = out(reg) aborted,
            area = in(reg) area,
            entered = in(reg) entered.as_ptr(),
            over = in(reg) over.as_ptr(),
            turns = inout(reg) turns => _,
            out("x16") _,
            out("x17") _,
            options(nostack),
        );
    }
    aborted != 0
}

//! Parts of the sections that are specific to arm64, and sections for self-tests.
//!
//! The first group of a row needs no separate sections: there are enough registers, so its id is one more
//! operand.

use super::{put, take};
use crate::percpu::word::{self, Cell};
use std::arch::asm;
use std::sync::atomic::AtomicBool;

/// The signature that glibc registers with the kernel for arm64. It stands before every abort address, so
/// that the kernel can tell a real one from a forged one. It is a `brk`, so that running into it traps.
#[cfg(test)]
pub(crate) const SIGNATURE: u32 = 0xd428_bc00;

/// Like [`take`], but for a row's first group.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub(crate) unsafe fn take_first<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    delta: u64,
) -> bool {
    // SAFETY: as the caller says.
    unsafe { take::<INDEX>(area, cell, word::empty(1), delta) }
}

/// Like [`put`], but for a row's first group.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub(crate) unsafe fn put_first<const INDEX: isize>(
    area: isize,
    cell: *const Cell,
    delta: u64,
) -> bool {
    // SAFETY: as the caller says.
    unsafe { put::<INDEX>(area, cell, word::empty(1), delta) }
}

/// Returns the running thread's column index. It is right when it is read, and may be wrong when it is
/// used.
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

/// Stays inside a section until the kernel aborts it or `turns` turns have passed. Returns whether it was
/// aborted. The self-test at start uses this.
///
/// # Safety
/// `area` is the calling thread's registration.
pub(crate) unsafe fn spin_until_aborted(area: isize, entered: &AtomicBool, turns: u64) -> bool {
    // SAFETY: as the caller says.
    unsafe { wait_until_aborted(area, entered, &AtomicBool::new(false), turns) }
}

/// Like [`spin_until_aborted`], but also leaves the section by itself when `over` is set.
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
    // SAFETY: the section only stores to `entered`, an atomic that outlives it. Its abort address behind
    // the signature leads to the instruction that reports the abort.
    unsafe {
        asm!(
            descriptor!(),
            ".pushsection .text.rseq_abort, \"ax\", %progbits, unique, .Lledgerline_descriptors",
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
            // A turn should take a while, and a `yield` takes almost no time.
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

//! The windows on x86-64: [`Owner::update`](crate::percpu::owned::Owner), instruction by instruction.
//!
//! Loads keep their order here, and so do stores. A load may pass an earlier store to another place, which is why
//! stealers fence. `owned.rs` names each fence's partner.

use super::{STANDS, Told};
use crate::percpu::owned::{HANDSHAKES, Owner};
use crate::percpu::thread_slots::{
    HASH, THREAD_SLOT_SHIFT, THREAD_SLOTS, THREAD_SLOTS_SHIFT, ThreadSlot,
};
use crate::percpu::word::{self, Cell, TESTED};
use std::arch::{asm, naked_asm};
use std::mem::offset_of;

/// Marks a numbered place inside a window at which a test can hold the thread (see `../owned/tests.rs`).
#[cfg(test)]
macro_rules! point {
    ($number:literal) => {
        concat!(
            "cmp dword ptr [rip + ledgerline_owned_armed], 0\n je 99f\n push ",
            $number,
            "\n call ledgerline_owned_point\n lea rsp, [rsp + 8]\n 99:"
        )
    };
}
#[cfg(not(test))]
macro_rules! point {
    ($number:literal) => {
        ""
    };
}

/// Defines one window. `r8` is the row's cell in the first column, `r9` the id, and `r10` the delta; afterwards `rax`
/// is the result ([`Told`]). Changes those registers and `rcx`. `$entry` computes the operands from others.
macro_rules! window {
    ($(#[$about:meta])* $name:ident [$($entry:expr),*] [$($cap:expr),*]) => {
        $(#[$about])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name<const ALIGNMENT: usize, const END: usize>() {
            naked_asm!(
                ".cfi_startproc",
                $($entry,)*
                // rax = the thread slot
                "imul eax, dword ptr fs:[0], {hash}",
                "lea rcx, [rip + {thread_slots}]",
                "shr eax, {hash_shift}",
                "shl eax, {thread_slot_shift}",
                "add rax, rcx",
                "mov rcx, qword ptr [rax + {who}]",
                "cmp rcx, qword ptr fs:[0]",
                "jne 3f",
                // rcx = where owned columns end, then r8 = the cell
                "mov rcx, r8",
                "and rcx, {mask}",
                "mov rcx, qword ptr [rcx - {end}]",
                "cmp qword ptr [rax + {offset}], rcx",
                "jae 3f",
                "add r8, qword ptr [rax + {offset}]",
                "cmp qword ptr [rax + {at}], 0",
                "jne 3f",
                point!(1),
                "mov qword ptr [rax + {at}], r8",
                point!(2),
                "mov rcx, qword ptr [r8]",
                point!(3),
                // rcx = the sum
                "add rcx, r10",
                $($cap,)*
                "xor r9, rcx",
                "test qword ptr [rip + {test}], r9",
                "jne 2f",
                point!(4),
                "mov qword ptr [r8], rcx",
                point!(5),
                "cmp qword ptr [rip + {handshakes}], 0",
                "jne 4f",
                point!(6),
                "mov qword ptr [rax + {at}], 0",
                "mov eax, {stands}",
                "ret",
                "2: mov qword ptr [rax + {at}], 0",
                "3: xor eax, eax",
                "ret",
                "4: mov rax, rcx",
                "ret",
                ".cfi_endproc",
                thread_slots = sym THREAD_SLOTS,
                handshakes = sym HANDSHAKES,
                hash = const HASH as i32,
                hash_shift = const 32 - THREAD_SLOTS_SHIFT,
                thread_slot_shift = const THREAD_SLOT_SHIFT,
                who = const offset_of!(ThreadSlot, who),
                offset = const offset_of!(ThreadSlot, offset),
                at = const offset_of!(ThreadSlot, owner) + Owner::AT,
                test = sym TESTED,
                stands = const STANDS,
                mask = const -(ALIGNMENT as i64),
                end = const END,
            )
        }
    };
}

window!(
    /// The window of a charge.
    take_window [] []
);
window!(
    /// The window of an uncharge: the stock may not pass the cap. An open word is stored after its cap (`Cell::open`).
    put_window [] ["cmp ecx, dword ptr [r8 + 8]", "ja 2f"]
);
window!(
    /// Like `put_window`, but for a guard. `r8` is the address of the cell and the id in one word, and `r10` the units.
    put_packed_window [
        "mov r9, r8",
        "shl r8, 16",
        "shr r8, 16",
        "xor r9, r8",
        // STOCK_MAX, UNCHARGE
        "cmp r10, 0x7fffffff",
        "ja 3f",
        "bts r10, 40"
    ] ["cmp ecx, dword ptr [r8 + 8]", "ja 2f"]
);
const _: () = assert!(offset_of!(Cell, word) == 0 && offset_of!(Cell, cap) == 8);
const _: () = assert!(word::STOCK_MAX == 0x7fff_ffff && word::UNCHARGE == 1 << 40);

/// Calls a window. The compiler knows which registers it keeps. The operands are not precomputed by the caller: it
/// would keep them in registers even if sections serve and this is never reached.
macro_rules! call {
    ($window:ident, $($move:literal),+; $($operands:tt)+) => {{
        let told: u64;
        asm!(
            $($move,)+
            "call {window}",
            window = sym $window::<ALIGNMENT, END>,
            $($operands)+
            out("rax") told,
            out("rcx") _,
            out("r8") _,
            out("r9") _,
            out("r10") _,
        );
        Told(told)
    }};
}

/// Calls a window with its three operands, and settles.
macro_rules! update {
    ($window:ident, $first:expr, $id:expr, $delta:expr) => {{
        let delta: u64 = $delta;
        let told = call!(
            $window, "mov r8, {first}", "mov r9, {id}", "mov r10, {delta}";
            first = in(reg) $first,
            id = in(reg) $id,
            delta = in(reg) delta,
        );
        told.stands() || told.settle(delta)
    }};
}

/// Takes `units <= STOCK_MAX` from the stock in the column that the calling thread owns. Changes nothing and returns
/// `false` if the thread owns none yet, in a signal handler that interrupted a window, and in other modes.
///
/// # Safety
/// `first` is a row's cell in the first column of a ledger, and `id` is that of the charged group. `END` bytes before
/// the next lower multiple of `ALIGNMENT` lies the end of the ledger's owned columns, from its first column.
#[inline(always)]
pub(crate) unsafe fn take<const ALIGNMENT: usize, const END: usize>(
    first: *const Cell,
    id: u64,
    units: u64,
) -> bool {
    // SAFETY: the window only changes the cell in the thread's own column, which exists by the caller (W1; guarded by
    // `owned::tests`), and no registers but those named.
    unsafe { update!(take_window, first, id, word::CHARGE.wrapping_sub(units)) }
}

/// Puts `units <= STOCK_MAX` into the stock in the column that the calling thread owns. See [`take`].
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub(crate) unsafe fn put<const ALIGNMENT: usize, const END: usize>(
    first: *const Cell,
    id: u64,
    units: u64,
) -> bool {
    // SAFETY: as in `take`.
    unsafe { update!(put_window, first, id, word::UNCHARGE + units) }
}

/// Like [`put`], but for a guard: `packed` is the address of the cell and the id in one word. `units` may be any
/// number; it fails if that is too large. If the sum does not stand at once, the caller calls [`Told::settle`].
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub(crate) unsafe fn put_packed<const ALIGNMENT: usize, const END: usize>(
    packed: u64,
    units: u64,
) -> Told {
    // SAFETY: as in `take`.
    unsafe {
        call!(
            put_packed_window, "mov r8, {packed}", "mov r10, {units}";
            packed = in(reg) packed,
            units = in(reg) units,
        )
    }
}

/// The target of [`point`]: calls `owned::tests::reach` and keeps all registers.
#[cfg(test)]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn ledgerline_owned_point() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "mov edi, dword ptr [rbp + 16]",
        "sub rsp, 520",
        "and rsp, -16",
        "fxsave64 [rsp]",
        "call {reach}",
        "fxrstor64 [rsp]",
        "lea rsp, [rbp - 72]",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "pop rbp",
        "ret",
        reach = sym crate::percpu::owned::tests::reach_from_window,
    )
}

/// Calls each window, and checks that it keeps the registers that [`call`] does not name.
///
/// # Safety
/// As for [`take`].
#[cfg(test)]
pub(crate) unsafe fn registers_kept<const ALIGNMENT: usize, const END: usize>(
    first: usize,
    id: u64,
    units: u64,
) {
    macro_rules! try_window {
        ($window:ident, $first:expr, $delta:expr) => {{
            let mut seen = [1u64, 2, 3, 4, 5, 6, 7, 8];
            // SAFETY: by the caller. `rbx` and `rbp` may not be operands, so they are saved here.
            unsafe {
                asm!(
                    "push rbx",
                    "push rbp",
                    "mov rbx, 9",
                    "mov rbp, 10",
                    "call {window}",
                    "xor rbx, 9",
                    "xor rbp, 10",
                    "or rbx, rbp",
                    "add r11, rbx",
                    "pop rbp",
                    "pop rbx",
                    window = sym $window::<ALIGNMENT, END>,
                    inout("r8") $first => _,
                    inout("r9") id => _,
                    inout("r10") $delta => _,
                    out("rax") _,
                    out("rcx") _,
                    inout("rdx") seen[0],
                    inout("rsi") seen[1],
                    inout("rdi") seen[2],
                    inout("r11") seen[3],
                    inout("r12") seen[4],
                    inout("r13") seen[5],
                    inout("r14") seen[6],
                    inout("r15") seen[7],
                );
            }
            assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8], stringify!($window));
        }};
    }
    try_window!(take_window, first as u64, word::CHARGE.wrapping_sub(units));
    try_window!(put_window, first as u64, word::UNCHARGE + units);
    try_window!(put_packed_window, first as u64 | id, units);
}

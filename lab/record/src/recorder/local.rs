//! The calling thread's own two words of memory: the place of its block, and whether it is busy. They are declared in
//! assembly, so that finding them costs one instruction.

use std::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 8",
    ".hidden ledgerline_record_words",
    ".globl ledgerline_record_words",
    ".type ledgerline_record_words, @tls_object",
    ".size ledgerline_record_words, 16",
    "ledgerline_record_words:",
    ".zero 16",
    ".popsection",
);

/// The place of the thread's block in the recording.
pub(crate) const BLOCK: usize = 0;
/// Whether the thread is busy.
pub(crate) const BUSY: usize = 8;

/// Returns one of the words.
#[inline(always)]
pub(crate) fn get<const WORD: usize>() -> usize {
    let value;
    // SAFETY: reads one of the calling thread's own two words.
    unsafe {
        asm!(
            "mov {value}, qword ptr [rip + ledgerline_record_words@GOTTPOFF]",
            "mov {value}, qword ptr fs:[{value} + {word}]",
            value = out(reg) value,
            word = const WORD,
            options(nostack, readonly, preserves_flags),
        );
    }
    value
}

/// Sets one of the words.
#[inline(always)]
pub(crate) fn set<const WORD: usize>(value: usize) {
    // SAFETY: writes one of the calling thread's own two words.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + ledgerline_record_words@GOTTPOFF]",
            "mov qword ptr fs:[{at} + {word}], {value}",
            at = out(reg) _,
            word = const WORD,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// While this value exists, the thread changes its tables or the objects. An access of a signal handler that
/// interrupts it is turned away.
pub(crate) struct Busy(());

impl Busy {
    /// Makes the thread busy; returns `None` if it is busy already.
    #[inline(always)]
    pub(crate) fn enter() -> Option<Busy> {
        (get::<BUSY>() == 0).then(|| {
            set::<BUSY>(1);
            Busy(())
        })
    }
}

impl Drop for Busy {
    #[inline(always)]
    fn drop(&mut self) {
        set::<BUSY>(0);
    }
}

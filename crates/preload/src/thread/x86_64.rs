//! The thread's words on x86-64: `fs` is the thread pointer.

use super::Word;
use std::arch::asm;

#[inline(always)]
pub(crate) fn place() -> usize {
    let place;
    // SAFETY: reads this library's own entry of the global offset table.
    unsafe {
        asm!(
            "mov {place}, qword ptr [rip + ledgerline_thread_words@GOTTPOFF]",
            place = out(reg) place,
            options(nostack, readonly, preserves_flags),
        );
    }
    place
}

#[inline(always)]
pub(crate) fn cell(place: usize) -> usize {
    let value;
    // SAFETY: reads the first of the calling thread's own words or, at zero, of its control block.
    unsafe {
        asm!(
            "mov {value}, qword ptr fs:[{place}]",
            place = in(reg) place,
            value = lateout(reg) value,
            options(nostack, readonly, preserves_flags),
        );
    }
    value
}

/// Reads a word. The word is a constant in each arm, so that it is one in the instruction.
#[inline(always)]
pub(crate) fn get(word: Word) -> usize {
    match word {
        Word::Cell => read::<{ Word::Cell as usize }>(),
        Word::Busy => read::<{ Word::Busy as usize }>(),
        Word::Caller => read::<{ Word::Caller as usize }>(),
        Word::Slot => read::<{ Word::Slot as usize }>(),
        Word::AskedSlot => read::<{ Word::AskedSlot as usize }>(),
        Word::AskedCell => read::<{ Word::AskedCell as usize }>(),
    }
}

#[inline(always)]
fn read<const WORD: usize>() -> usize {
    let value;
    // SAFETY: reads one of the calling thread's own words.
    unsafe {
        asm!(
            "mov {value}, qword ptr [rip + ledgerline_thread_words@GOTTPOFF]",
            "mov {value}, qword ptr fs:[{value} + {word}]",
            value = out(reg) value,
            word = const WORD,
            options(nostack, readonly, preserves_flags),
        );
    }
    value
}

#[inline(always)]
pub(crate) fn set(word: Word, value: usize) {
    // SAFETY: writes one of the calling thread's own words.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + ledgerline_thread_words@GOTTPOFF]",
            "mov qword ptr fs:[{at} + {word}], {value}",
            at = out(reg) _,
            word = in(reg) word as usize,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

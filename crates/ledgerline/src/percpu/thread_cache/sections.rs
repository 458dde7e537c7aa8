//! The sections of thread caches. Their pseudocode is in `../thread_cache.rs`, and their instructions are in `../instructions/`.

use super::{GUARDS, ThreadCache};
use std::mem::offset_of;

/// Takes units out of the calling thread's cache and labels their block: subtracts `delta` unless the result is
/// negative, or the thread cache is another group's.
///
/// # Safety
/// `area` and `mine` are the distances of the calling thread's registration and of its thread cache's address. No other thread
/// has the label's block.
#[inline(always)]
pub(in crate::percpu) unsafe fn take(
    area: isize,
    mine: isize,
    group: u64,
    delta: u64,
    label: *mut u16,
) -> bool {
    // SAFETY: the section has one store that other threads can see, its last instruction (P1 in `../README.md`), and
    // none if the sum is negative, as it is for every frozen word, whether it overflows or not (P2). Guarded by
    // `inject::tests::every_point_of_every_section_restarts`.
    unsafe {
        section!(take_from_thread_cache:
            t = out(reg) _,
            thread_cache = out(reg) _,
            number = out(reg) _,
            area = in(reg) area,
            mine = in(reg) mine,
            group = in(reg) group,
            delta = in(reg) delta,
            label = in(reg) label,
            group_at = const offset_of!(ThreadCache, group),
            number_at = const offset_of!(ThreadCache, number),
            no = label { return false },
        );
    }
    true
}

/// Puts units into the calling thread's cache: adds `delta` unless there would be too many, or a count is full, or the
/// thread cache is another number's.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub(in crate::percpu) unsafe fn put(area: isize, mine: isize, number: u64, delta: u64) -> bool {
    // SAFETY: as in `take`. A frozen word plus at most `MOST` units is larger than any `most`. The word is read before
    // `most` (O2), since it is stored last when a thread cache is opened.
    unsafe {
        section!(put_into_thread_cache(GUARDS):
            t = out(reg) _,
            thread_cache = out(reg) _,
            area = in(reg) area,
            mine = in(reg) mine,
            number = in(reg) number,
            delta = in(reg) delta,
            number_at = const offset_of!(ThreadCache, number),
            most_at = const offset_of!(ThreadCache, most),
            no = label { return false },
        );
    }
    true
}

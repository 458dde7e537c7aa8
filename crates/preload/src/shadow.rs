//! The owner of each block: its *slot* (`process.rs`), or zero without an owner.
//!
//! **Spans.** The address space is cut into spans of 64 MiB, the size of the heaps that glibc gives to threads. The
//! first owner that is charged in a span is its *first owner*. While it is the only one, nothing is noted for single
//! blocks: the span's entry holds the cell to charge, so that malloc and free have it in one load, and no memory is
//! spent. Most programs never leave this state.
//!
//! **Bytes.** When another owner comes, the span is *shared*, for good. From then on a byte of shadow
//! for each 32 bytes of heap names the owner of the block that starts there. It holds the owner's slot
//! exclusive-or the first owner's. So zero, the value of unwritten shadow, means the first owner, and all earlier
//! blocks are described already.
//!
//! An allocator's smallest chunk is 32 bytes here: glibc's by nature, others' because this library asks for no less. So
//! a window of 32 aligned bytes holds the start of at most one block. A byte is not zero only while a block of another
//! than the first owner starts in its window.
//!
//! The owner is not stored in the block's slack, where a few bytes often lie unused: a quarter to a half of all sizes
//! have no slack, and would grow by 16; and the end of a block is a line of its own that `free` would not touch
//! otherwise. In this scheme nothing grows, and 64 bytes of shadow serve two KiB of heap.
//!
//! **Fork.** The kernel wipes entries and bytes in a forked child (`MADV_WIPEONFORK`). An inherited block must have no
//! owner there: its account stays with the process that allocated it and still has it; freeing the copy changes no
//! account. So a child records the spans in which its ancestors had blocks ([`CLAIMED`] is not wiped): such a span has
//! no first owner.
//!
//! The bytes lie in a [`Shadow`] of the library `ledgerline`, which uses one for its own allocator as well.

use crate::filter;
use crate::next::NEXT;
use crate::process::{self, SPANS, STATE};
use crate::thread;
use ledgerline::Prepaid;
use ledgerline::shadow::{Shadow, WINDOW_BITS};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const SPAN_BITS: u32 = 26;

/// An entry of `STATE.sole` is a cell ([`ledgerline::Prepaid`]), or one of two numbers that are no cell: zero if
/// nothing was charged there yet, and this number if the bytes name the owners.
pub(crate) const SHARED: usize = 1;

/// Returns the entry of a cell for blocks without a header, whose sizes come from the allocator; and the cell of such
/// an entry. Such an entry is negative as a signed number, since a cell is an address of the lower half.
#[inline(always)]
pub(crate) const fn asked(cell: usize) -> usize {
    cell.wrapping_neg()
}

/// Returns the handle of a cell.
///
/// # Safety
/// A span's entry ([`sole`]) held the cell, or [`asked`] of it.
#[inline(always)]
pub(crate) unsafe fn prepaid(cell: usize) -> Prepaid<'static> {
    // SAFETY: both numbers are a handle's, the second since before the first was entered; an open ledger is never
    // closed.
    unsafe { Prepaid::from_raw(cell, NEXT.area.load(Ordering::Relaxed)) }
}

/// An entry of `STATE.first` holds this bit and the first owner's slot once that is decided.
const DECIDED: u16 = 1 << 8;

/// Spans in which this process or an ancestor had an owner, a bit each. A fork does not wipe them.
#[unsafe(link_section = ".bss.ledgerline_tables")]
static CLAIMED: [AtomicU64; SPANS / 64] = [const { AtomicU64::new(0) }; SPANS / 64];

/// Returns the span of a block. The C library uses no address above [`ADDRESS_BITS`].
#[inline(always)]
fn span(block: *const c_void) -> usize {
    (block as usize >> SPAN_BITS) % SPANS
}

/// Returns the cell of the only owner in a block's span, if it is more than [`SHARED`]; or [`asked`] of one.
///
/// Acquire, partner of the Release in `decide`. A thread that still reads the cell when the span has
/// become shared holds a block of the first owner: a block of another owner would have come to it from
/// a thread, and the entry with it.
#[inline(always)]
pub(crate) fn sole(block: *const c_void) -> usize {
    STATE.sole[span(block)].load(Ordering::Acquire)
}

/// Returns the first owner in a block's span; `None` before there is one.
#[inline(always)]
fn first(block: *const c_void) -> Option<u32> {
    let entry = STATE.first[span(block)].load(Ordering::Relaxed);
    (entry != 0).then_some(u32::from(entry & !DECIDED))
}

/// Returns the slot of a block's owner.
#[inline(always)]
pub(crate) fn owner(block: *const c_void) -> u32 {
    let Some(first) = first(block) else { return 0 };
    first ^ byte(block).map_or(0, |byte| u32::from(byte.load(Ordering::Relaxed)))
}

/// Notes the owner of a new block and returns it. Without memory for a byte, that is the span's first owner, not the
/// wanted one.
#[inline(always)]
pub(crate) fn assign(block: *const c_void, slot: u32) -> u32 {
    let Some(first) = first(block).or_else(|| decide(block, slot)) else { return 0 };
    let difference = (slot ^ first) as u8;
    let Some(byte) = byte(block).or_else(|| if difference == 0 { None } else { make_byte(block) })
    else {
        return first;
    };
    byte.store(difference, Ordering::Relaxed);
    // No thread has the block yet. If `decide` has not entered the cell yet, it will not.
    if difference != 0 && sole(block) != SHARED {
        STATE.sole[span(block)].store(SHARED, Ordering::Relaxed);
    }
    slot
}

/// Forgets a block's owner. This comes before the block is freed, since the next thread may get it at once.
#[inline(always)]
pub(crate) fn clear(block: *const c_void) {
    if let Some(byte) = byte(block)
        && byte.load(Ordering::Relaxed) != 0
    {
        byte.store(0, Ordering::Relaxed);
    }
}

/// Keeps a span from having a first owner, since a block in it has no owner. Also marks a span that is about to have
/// one, for forked children, in which its copies have none. Returns whether it was marked before.
pub(crate) fn claim(address: *const c_void) -> bool {
    let (word, bit) = (span(address) / 64, 1 << (span(address) % 64));
    CLAIMED[word].fetch_or(bit, Ordering::Relaxed) & bit != 0
}

/// Makes an owner the first in a block's span, or decides for none if an ancestor had blocks there. Returns the first
/// owner as it is now. A block without an owner decides nothing: this library's own blocks from the time it attaches
/// lie among the program's blocks, and are never freed.
#[cold]
#[inline(never)]
fn decide(block: *const c_void, slot: u32) -> Option<u32> {
    if slot == 0 {
        return None;
    }
    let chosen = if claim(block) { 0 } else { slot as u16 };
    let entry = &STATE.first[span(block)];
    let decided = entry.compare_exchange(0, DECIDED | chosen, Ordering::Relaxed, Ordering::Relaxed);
    if decided.is_ok()
        && chosen != 0
        // A cell leads to one ledger alone.
        && !process::heap::is_limited()
        && let Some((cell, area)) =
            process::group(slot).and_then(|group| group.prepaid()?.into_raw())
    {
        NEXT.area.store(area, Ordering::Relaxed);
        NEXT.words.store(thread::place(), Ordering::Relaxed);
        let cell = if NEXT.headers() { cell } else { asked(cell) };
        let entry = &STATE.sole[span(block)];
        // Fails if a second owner came in between. Release, partner of the Acquire in `sole`: a thread that reads the
        // cell sees the fields that belong to it.
        let _ = entry.compare_exchange(0, cell, Ordering::Release, Ordering::Relaxed);
    }
    first(block)
}

/// The bytes. A child inherits the maps, wiped.
#[unsafe(link_section = ".bss.ledgerline_tables")]
static BYTES: Shadow<AtomicU8, WINDOW_BITS, true> = Shadow::new();

/// Returns the shadow byte of a block; `None` if its GiB has no map yet.
#[inline(always)]
fn byte(block: *const c_void) -> Option<&'static AtomicU8> {
    BYTES.entry(block as usize)
}

/// Like [`byte`], but makes the map if necessary; `None` without memory for it.
#[cold]
#[inline(never)]
fn make_byte(block: *const c_void) -> Option<&'static AtomicU8> {
    if filter::is_on() { byte(block) } else { BYTES.make(block as usize) }
}

/// Makes the maps of all spans that were claimed so far. A process that comes under a filter cannot make maps later,
/// nor can its forked children, whose blocks lie where their ancestors' did.
#[cold]
pub(crate) fn prepare() {
    for (word, claimed) in CLAIMED.iter().enumerate() {
        let claimed = claimed.load(Ordering::Relaxed);
        for span in (0..64).filter(|bit| claimed >> bit & 1 == 1).map(|bit| word * 64 + bit) {
            make_byte((span << SPAN_BITS) as *const c_void);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next::WINDOW;
    use ledgerline::shadow::ADDRESS_BITS;
    use std::collections::HashMap;

    fn block(address: usize) -> *const c_void {
        address as *const c_void
    }

    #[test]
    fn while_a_span_has_one_owner_no_memory_is_spent() {
        let heap = 0x1234_0000_0000;
        for at in (0..1 << 20).step_by(WINDOW) {
            assert_eq!(assign(block(heap + at), 7), 7);
        }
        assert_eq!(owner(block(heap + 4096)), 7);
        assert!(byte(block(heap)).is_none());
    }

    #[test]
    fn blocks_from_before_a_second_owner_came_keep_theirs() {
        let heap = 0x2345_0000_0000;
        assign(block(heap), 7);
        assert_eq!(assign(block(heap + 64), 8), 8);
        assert_eq!(assign(block(heap + 128), 0), 0);
        assert_eq!(sole(block(heap)), SHARED);
        assert_eq!([0, 64, 128].map(|at| owner(block(heap + at))), [7, 8, 0]);
        // An address is the first owner's again once the other's block is freed.
        clear(block(heap + 64));
        assert_eq!(assign(block(heap + 64), 7), 7);
        assert_eq!(owner(block(heap + 64)), 7);
    }

    #[test]
    fn where_an_ancestor_had_blocks_they_are_nobodys() {
        let heap = 0x3456_0000_0000;
        claim(block(heap));
        assert_eq!(owner(block(heap)), 0);
        assert_eq!(assign(block(heap + 64), 7), 7);
        assert_eq!([0, 64].map(|at| owner(block(heap + at))), [0, 7]);
    }

    #[test]
    fn every_block_has_the_owner_that_it_was_given_last() {
        // Around the ends of spans and maps, with the smallest blocks.
        let bases = [0x5555_0000_0000, 0x7fff_c000_0000 - 4096, 0x4400_0000 - 4096, 64];
        let mut truth = HashMap::new();
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let base = bases[(random >> 8) as usize % bases.len()];
            let at = block(base + (random >> 16) as usize % 256 * WINDOW);
            match truth.remove(&at) {
                Some(slot) => {
                    assert_eq!(owner(at), slot);
                    clear(at);
                }
                None => {
                    let slot = (random >> 40) as u32 % 256;
                    assert_eq!(assign(at, slot), slot);
                    truth.insert(at, slot);
                }
            }
        }
        assert!(truth.len() > 400);
        for (at, slot) in truth {
            assert_eq!(owner(at), slot, "{at:?}");
        }
    }

    #[test]
    fn an_address_of_no_process_has_no_byte() {
        assert!(byte(usize::MAX as *const c_void).is_none());
        assert!(make_byte((1usize << ADDRESS_BITS) as *const c_void).is_none());
    }
}

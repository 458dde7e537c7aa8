//! Who a block belongs to: one byte of shadow for each 32 bytes of heap.
//!
//! An allocator's smallest chunk is 32 bytes here (glibc's by nature, others' by asking for no less),
//! so a window of 32 aligned bytes holds the start of at most one block, and its shadow byte the
//! *slot* of that block's owner (`process.rs`): zero for nobody.
//!
//! Why not in the block's slack, where a few bytes often lie unused: a quarter to a half of all sizes
//! have no slack, and grow by 16; the end of a block is a line of its own that `free` would not touch
//! otherwise. Here nothing grows, 64 bytes of shadow serve two KiB of heap, and it takes a 32nd of the
//! memory that small blocks take.
//!
//! The shadow is wiped in a forked child (`MADV_WIPEONFORK`), by the kernel. So a block that was
//! inherited has no owner there: its account stays with the process that allocated it, which still
//! has it; freeing the copy changes no account.
//!
//! ```text
//! address:  | 46 ... 30 | 29 ...  5 | 4 ... 0 |
//!             directory   byte in a   window
//!                         32-MiB map
//! ```
//!
//! A map is made when the first block of its GiB appears; it costs memory where it is touched.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Smallest distance between two blocks: a window.
pub(crate) const WINDOW: usize = 32;
const WINDOW_BITS: u32 = WINDOW.trailing_zeros();
const SPAN_BITS: u32 = 30;
const MAP: usize = 1 << (SPAN_BITS - WINDOW_BITS);

/// For each GiB of the lower half of the address space: its map's address, less what the GiB's own
/// number would add, so that finding a byte is one addition. Zero: no map yet. A child inherits it.
static DIRECTORY: [AtomicUsize; 1 << (47 - SPAN_BITS)] =
    [const { AtomicUsize::new(0) }; 1 << (47 - SPAN_BITS)];

/// The map that holds a block's shadow byte; `None` if its GiB has none yet.
#[inline(always)]
pub(crate) fn map(block: *const c_void) -> Option<NonZeroUsize> {
    // Acquire: the map is made before it is entered.
    NonZeroUsize::new(DIRECTORY.get(block as usize >> SPAN_BITS)?.load(Ordering::Acquire))
}

/// The shadow byte of a block in its map.
#[inline(always)]
pub(crate) fn byte_in(map: NonZeroUsize, block: *const c_void) -> &'static AtomicU8 {
    let byte = map.get().wrapping_add(block as usize >> WINDOW_BITS);
    // SAFETY: a map has a byte for each window of its GiB and is never unmapped.
    unsafe { &*(byte as *const AtomicU8) }
}

/// The shadow byte of a block; `None` if its GiB has no map yet.
pub(crate) fn byte(block: *const c_void) -> Option<&'static AtomicU8> {
    map(block).map(|map| byte_in(map, block))
}

/// As [`byte`], making the map if need be; `None` when there is no memory for it.
#[cold]
pub(crate) fn make_byte(block: *const c_void) -> Option<&'static AtomicU8> {
    let address = block as usize;
    let entry = DIRECTORY.get(address >> SPAN_BITS)?;
    if entry.load(Ordering::Acquire) == 0 {
        // SAFETY: a new mapping at an address of the kernel's choice; the advice is about it.
        let map = unsafe {
            let map = libc::mmap(
                null_mut(),
                MAP,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if map == libc::MAP_FAILED {
                return None;
            }
            if libc::madvise(map, MAP, libc::MADV_WIPEONFORK) != 0 {
                libc::munmap(map, MAP);
                return None;
            }
            // Small pages, and nothing of it in a core dump: only savings, so refusals do not matter.
            libc::madvise(map, MAP, libc::MADV_NOHUGEPAGE);
            libc::madvise(map, MAP, libc::MADV_DONTDUMP);
            map
        };
        let first = (address >> SPAN_BITS) << (SPAN_BITS - WINDOW_BITS);
        let biased = (map as usize).wrapping_sub(first);
        if entry.compare_exchange(0, biased, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // Another thread was faster.
            // SAFETY: nobody else knows this mapping.
            unsafe { libc::munmap(map, MAP) };
        }
    }
    byte(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_a_window_apart_have_bytes_of_their_own() {
        let at = |address: usize| make_byte(address as *const c_void).unwrap();
        for base in [0x5555_0000_0000, 0x7fff_c000_0000 - 64, 0x4000_0000 - 64, 64] {
            for step in 0..8 {
                at(base + step * WINDOW).store(step as u8 + 1, Ordering::Relaxed);
            }
            for step in 0..8 {
                let block = base + step * WINDOW;
                assert_eq!(at(block).load(Ordering::Relaxed), step as u8 + 1, "{block:x}");
                assert_eq!(at(block + 16).load(Ordering::Relaxed), step as u8 + 1);
            }
        }
    }

    #[test]
    fn an_address_of_no_process_has_no_byte() {
        assert!(byte(usize::MAX as *const c_void).is_none());
        assert!(make_byte((1usize << 47) as *const c_void).is_none());
    }
}

//! A shadow: a small number beside each block of a heap, for allocators.
//!
//! An allocator that charges a block must know the owner to credit when the block is freed, and the block has no place for
//! it: a header would make every block larger and spoil its alignment. A shadow lies apart. It has an entry for each
//! *window* of the address space, and an allocator whose blocks start at least a window apart finds the entry of a block by
//! its address alone.
//!
//! ```text
//! address:  | 46 ... 30 | 29 ...  5 | 4 ... 0 |      (from bit 47 on arm64)
//!             directory   entry in a  window
//!                         map
//! ```
//!
//! A map serves a GiB. It is created when the first entry of its GiB is needed, and costs memory only where it is touched:
//! a page of two-byte entries serves 64 KiB of heap. Entries read zero until they are written.
//!
//! ```
//! use ledgerline::shadow::Shadow;
//! use std::sync::atomic::{AtomicU16, Ordering};
//!
//! static OWNERS: Shadow<AtomicU16> = Shadow::new();
//!
//! let block = Box::new([0u8; 64]);
//! let address = block.as_ptr() as usize;
//! assert!(OWNERS.entry(address).is_none(), "no memory is spent yet");
//! OWNERS.make(address).expect("there is memory").store(7, Ordering::Relaxed);
//! assert_eq!(OWNERS.entry(address).unwrap().load(Ordering::Relaxed), 7);
//! ```

use crate::os::{Advice, Backing, memory};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering};

/// The size of a window in bytes, unless a shadow has its own window size. At most one block starts in each window.
///
/// Blocks satisfy this if their addresses are multiples of 16 and they have 17 bytes or more.
pub const WINDOW: usize = 1 << WINDOW_BITS;
/// How many low bits of an address are its position within a window.
pub const WINDOW_BITS: u32 = 5;

const GIB_BITS: u32 = 30;
/// How many bits an address of a process has: half of the machine's range on x86-64, all of 48 bits on arm64. Linux returns
/// higher addresses only on request, and the C library does not request them.
pub const ADDRESS_BITS: u32 = if cfg!(target_pointer_width = "32") {
    32
} else if cfg!(target_arch = "x86_64") {
    47
} else {
    48
};
const GIBS: usize = 1 << (ADDRESS_BITS - GIB_BITS);

/// The types of an entry: an atomic number of one, two or four bytes.
pub trait Entry: sealed::Sealed + Sync {}

impl Entry for AtomicU8 {}
impl Entry for AtomicU16 {}
impl Entry for AtomicU32 {}

mod sealed {
    /// Limits [`Entry`](super::Entry) to types that are valid when all their bits are zero.
    pub trait Sealed {}
    impl Sealed for super::AtomicU8 {}
    impl Sealed for super::AtomicU16 {}
    impl Sealed for super::AtomicU32 {}
}

/// An entry for each window of `1 << BITS` bytes of the address space. It is meant for a `static`: its maps are never
/// unmapped, and its directory alone has a MiB, on arm64 two. These are zeros, which cost memory only where they are
/// touched.
///
/// In a forked child a shadow is a copy of its parent's. If it is `WIPED`, the child's entries are zero instead: the kernel
/// wipes them (`MADV_WIPEONFORK`).
#[derive(Debug)]
pub struct Shadow<E, const BITS: u32 = WINDOW_BITS, const WIPED: bool = false> {
    /// For each GiB of a process's address space: the address of its map, minus the offset of the GiB's own number, so that
    /// finding an entry takes one addition. Zero means no map yet. A child inherits it.
    directory: [AtomicUsize; GIBS],
    /// The last address of the highest GiB with a map; zero before there is one. This check costs less than one that the
    /// directory has an address.
    last: AtomicUsize,
    entries: PhantomData<E>,
}

impl<E: Entry, const BITS: u32, const WIPED: bool> Shadow<E, BITS, WIPED> {
    const MAP: usize = size_of::<E>() << (GIB_BITS - BITS);

    /// Returns a shadow without a map.
    #[expect(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        // All zeros, so that it takes no room in the program's file.
        let directory = [const { AtomicUsize::new(0) }; GIBS];
        Shadow { directory, last: AtomicUsize::new(0), entries: PhantomData }
    }

    /// Returns the entry of an address, or `None` if its GiB has no map yet. Costs three loads; async-signal-safe.
    #[inline(always)]
    pub fn entry(&self, address: usize) -> Option<&'static E> {
        // Relaxed: a thread got the block from a thread that found its entry, and so saw `last`.
        if address > self.last.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: no higher than an address that the directory covers. Guarded by `an_address_of_no_process_has_no_entry`.
        unsafe { self.entry_within(address) }
    }

    /// Like [`entry`](Self::entry), but also returns `None` for the null address, with a single comparison for both.
    #[inline(always)]
    pub fn entry_unless_null(&self, address: usize) -> Option<&'static E> {
        // The subtraction makes null the highest address. Relaxed, as above.
        if address.wrapping_sub(1) >= self.last.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: as above.
        unsafe { self.entry_within(address) }
    }

    /// Like [`entry`](Self::entry), but does not check the range of the address. Costs two loads.
    ///
    /// # Safety
    /// The address has at most [`ADDRESS_BITS`] bits.
    #[inline(always)]
    pub unsafe fn entry_within(&self, address: usize) -> Option<&'static E> {
        debug_assert!(address >> GIB_BITS < GIBS);
        // SAFETY: the directory covers all addresses of so many bits.
        let slot = unsafe { self.directory.get_unchecked(address >> GIB_BITS) };
        // Acquire, partner of the exchange in `make`: a map is complete before it is entered.
        let map = slot.load(Ordering::Acquire);
        if map == 0 {
            return None;
        }
        let entry = std::ptr::with_exposed_provenance::<E>(map).wrapping_add(address >> BITS);
        // SAFETY: a map has an entry for each window of its GiB, is never unmapped, and holds only atomic numbers
        // (`Sealed`), for which zeros are valid. Guarded by `every_entry_is_its_own`.
        Some(unsafe { NonNull::new_unchecked(entry.cast_mut()).as_ref() })
    }

    /// Like [`entry`](Self::entry), but creates the map if there is none. Returns `None` if there is no memory for it, and
    /// for an address that no process has. Allocates nothing. Creating a map takes three to five system calls, once a GiB.
    /// Async-signal-safe.
    #[cold]
    #[inline(never)]
    pub fn make(&self, address: usize) -> Option<&'static E> {
        let slot = self.directory.get(address >> GIB_BITS)?;
        if slot.load(Ordering::Acquire) == 0 {
            let map = Self::map()?;
            let first = (address >> GIB_BITS) << (GIB_BITS - BITS);
            let biased = map.wrapping_sub(first.wrapping_mul(size_of::<E>()));
            // Release, partner of the Acquire in `entry`.
            if slot.compare_exchange(0, biased, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // Another thread was faster.
                // SAFETY: no other code knows this mapping.
                unsafe { memory::unmap(std::ptr::with_exposed_provenance_mut(map), Self::MAP) };
            }
        }
        // All threads read it at each block, so it is written only when it changes.
        let last = address | ((1 << GIB_BITS) - 1);
        if self.last.load(Ordering::Relaxed) < last {
            self.last.fetch_max(last, Ordering::Relaxed);
        }
        self.entry(address)
    }

    fn map() -> Option<usize> {
        // SAFETY: a new mapping at an address of the system's choice; the advice concerns that mapping, and zeroed entries
        // are valid.
        unsafe {
            let map = memory::map(null_mut(), Self::MAP, Backing::Zeros).ok()?;
            if WIPED && !memory::advise(map, Self::MAP, Advice::WipedInChildren) {
                memory::unmap(map, Self::MAP);
                return None;
            }
            // Small pages, and no core dumps. Both only save memory or space.
            memory::advise(map, Self::MAP, Advice::SmallPages);
            memory::advise(map, Self::MAP, Advice::NoDumps);
            Some(map.expose_provenance())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn no_address_of_this_process_is_beyond_the_directory() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
        let ends = maps.lines().filter(|line| !line.ends_with("[vsyscall]")).map(|line| {
            let (range, _) = line.split_once(' ').expect("a range and more");
            let (_, end) = range.split_once('-').expect("two addresses");
            u64::from_str_radix(end, 16).expect("in hexadecimal")
        });
        assert!(ends.max().expect("this program is mapped") <= 1 << ADDRESS_BITS, "{maps}");
    }

    #[test]
    fn every_entry_is_its_own() {
        static SHADOW: Shadow<AtomicU16> = Shadow::new();
        static FINE: Shadow<AtomicU8, 4> = Shadow::new();
        static WIDE: Shadow<AtomicU32, 4> = Shadow::new();
        // Around the ends of maps and of the address space.
        #[cfg(target_pointer_width = "64")]
        let bases = [0x5555_0000_0000, 0x7fff_c000_0000 - 4096, 0x4000_0000 - 4096, 64];
        #[cfg(target_pointer_width = "32")]
        let bases = [0x5555_0000, 0xc000_0000 - 4096, 0x4000_0000 - 4096, 64];
        let mut truth = HashMap::new();
        let mut random = 88_172_645_463_325_252_u64;
        for turn in 0..20_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = bases[(random >> 8) as usize % bases.len()]
                + (random >> 16) as usize % 512 * WINDOW;
            SHADOW.make(at).unwrap().store(turn as u16, Ordering::Relaxed);
            FINE.make(at).unwrap().store(turn as u8, Ordering::Relaxed);
            FINE.make(at + 16).unwrap().store(!turn as u8, Ordering::Relaxed);
            WIDE.make(at).unwrap().store(turn as u32, Ordering::Relaxed);
            WIDE.make(at + 16).unwrap().store(!turn as u32, Ordering::Relaxed);
            truth.insert(at, turn);
        }
        assert!(truth.len() > 1000);
        for (at, turn) in truth {
            assert_eq!(SHADOW.entry(at + 31).unwrap().load(Ordering::Relaxed), turn as u16);
            assert_eq!(FINE.entry(at).unwrap().load(Ordering::Relaxed), turn as u8);
            assert_eq!(FINE.entry(at + 16).unwrap().load(Ordering::Relaxed), !turn as u8);
            assert_eq!(WIDE.entry(at + 15).unwrap().load(Ordering::Relaxed), turn as u32);
            assert_eq!(WIDE.entry(at + 16).unwrap().load(Ordering::Relaxed), !turn as u32);
        }
    }

    /// With 32 bits there is no such address.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn an_address_of_no_process_has_no_entry() {
        static SHADOW: Shadow<AtomicU8> = Shadow::new();
        assert!(SHADOW.make(1 << ADDRESS_BITS).is_none());
        let highest = (1 << ADDRESS_BITS) - 1;
        for made in [false, true] {
            for beyond in [1 << ADDRESS_BITS, 1 << 56, usize::MAX] {
                assert!(SHADOW.entry(beyond).is_none(), "{beyond:x}");
                assert!(SHADOW.entry_unless_null(beyond).is_none(), "{beyond:x}");
            }
            for (address, made) in [(0, false), (1, made), (highest, made)] {
                assert_eq!(SHADOW.entry_unless_null(address).is_some(), made, "{address:x}");
                assert_eq!(
                    SHADOW.entry(address).is_some(),
                    made || address == 0 && SHADOW.entry(1).is_some()
                );
            }
            assert!(SHADOW.make(highest).is_some() && SHADOW.make(64).is_some());
        }
    }

    #[test]
    fn a_child_has_a_copy_or_zeros() {
        static KEPT: Shadow<AtomicU8> = Shadow::new();
        static WIPED: Shadow<AtomicU8, WINDOW_BITS, true> = Shadow::new();
        let at = 0x1234_5678_0000_u64 as usize;
        KEPT.make(at).unwrap().store(7, Ordering::Relaxed);
        WIPED.make(at).unwrap().store(7, Ordering::Relaxed);
        let [kept, wiped] = [KEPT.entry(at), WIPED.entry(at)].map(Option::unwrap);
        // SAFETY: the child reads two bytes and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(
                    (kept.load(Ordering::Relaxed) << 4 | wiped.load(Ordering::Relaxed)) as i32,
                );
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7 << 4));
        }
        assert_eq!(wiped.load(Ordering::Relaxed), 7);
    }
}

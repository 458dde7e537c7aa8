//! A region is the memory that a table lies in: anonymous memory of the process, or a file that other
//! processes map too.
//!
//! A region is one mapping. Making it costs address space; touching it costs memory. The mapping reserves
//! nothing (`MAP_NORESERVE`), and a file is extended without being filled.
//!
//! Invariant R1: a region's address never changes and stays mapped until the region is dropped.

pub(crate) mod free_list;
mod retired;
#[cfg(not(loom))]
pub(crate) mod row_set;
#[cfg(not(loom))]
pub mod shadow;
pub mod sparse;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// One mapping. It is readable and writable, unless it was mapped [read-only](Region::read_only).
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    size: usize,
    shared: bool,
    /// A descriptor of our own, with which a region that was created here asks for the size of its file; -1
    /// otherwise. (A program that merely joins a ledger keeps its descriptor numbers.)
    file: i32,
    /// Whether the address stays reserved when the region goes (`retired.rs`).
    keeps_address: AtomicBool,
}

/// Says where a region has to lie: its byte at `offset` gets an address that is a multiple of `alignment`.
/// The alignment is a power of two, the offset a multiple of the page size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) alignment: usize,
}

impl Place {
    /// The kernel chooses the address.
    pub(crate) const ANYWHERE: Place = Place { offset: 0, alignment: 1 };
}

/// Address space without access. A region that needs a certain address is mapped inside it.
struct Reservation {
    base: *mut u8,
    length: usize,
    /// Where the region begins.
    start: *mut u8,
}

impl Reservation {
    fn new(size: usize, place: Place) -> io::Result<Reservation> {
        let length = size.checked_add(place.alignment).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast::<u8>();
        let aligned = (base.addr() + place.offset).next_multiple_of(place.alignment);
        let start = base.wrapping_add(aligned - place.offset - base.addr());
        Ok(Reservation { base, length, start })
    }

    /// Unmaps all of the reservation but the region of `size` bytes.
    fn keep(self, size: usize) {
        let before = self.start.addr() - self.base.addr();
        let after = self.length - before - size;
        // SAFETY: both parts are of our own mapping, and nothing lies in them.
        unsafe {
            if before > 0 {
                libc::munmap(self.base.cast(), before);
            }
            if after > 0 {
                libc::munmap(self.start.add(size).cast(), after);
            }
        }
        std::mem::forget(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no region was laid in it.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

// SAFETY: the region hands out addresses and touches nothing itself; its users share the memory
// through atomics and restartable sections only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps zeroed memory that this process alone has. A forked child gets a copy of each page that either
    /// process writes.
    pub(crate) fn anonymous(size: usize) -> io::Result<Region> {
        Region::anonymous_at(size, Place::ANYWHERE)
    }

    /// As [`anonymous`](Self::anonymous), at a given place.
    pub(crate) fn anonymous_at(size: usize, place: Place) -> io::Result<Region> {
        Region::map(size, place, WRITABLE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Extends an empty file to `size` and maps it. Other processes may open the file and map it too.
    pub(crate) fn create_in(file: &File, size: usize, place: Place) -> io::Result<Region> {
        if file.metadata()?.len() != 0 {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the file is not empty; a ledger is made in an empty file",
            ));
        }
        file.set_len(size as u64)?;
        let mut region = Region::shared_at(file, size, place)?;
        // SAFETY: duplicates a descriptor that `file` keeps open during the call.
        region.file = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
        Ok(region)
    }

    /// Maps `size` bytes of a file that holds at least as many.
    pub(crate) fn shared(file: &File, size: usize) -> io::Result<Region> {
        Region::shared_at(file, size, Place::ANYWHERE)
    }

    /// As [`shared`](Self::shared), at a given place.
    pub(crate) fn shared_at(file: &File, size: usize, place: Place) -> io::Result<Region> {
        Region::map(size, place, WRITABLE, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Maps `size` bytes of a file for reading. A write to them kills the process.
    pub(crate) fn read_only(file: &File, size: usize) -> io::Result<Region> {
        Region::map(size, Place::ANYWHERE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(
        size: usize,
        place: Place,
        access: libc::c_int,
        flags: libc::c_int,
        file: i32,
    ) -> io::Result<Region> {
        let flags = flags | libc::MAP_NORESERVE;
        let offset = if file < 0 { sparse::MARK } else { 0 };
        let again = if place.alignment > 1 { retired::take(size, place) } else { None };
        let reserved = match again {
            None if place.alignment > 1 => Some(Reservation::new(size, place)?),
            _ => None,
        };
        let (at, fixed) = match (again, &reserved) {
            (Some(start), _) => (start, libc::MAP_FIXED),
            (None, Some(reservation)) => (reservation.start, libc::MAP_FIXED),
            (None, None) => (std::ptr::null_mut(), 0),
        };
        // SAFETY: a new mapping: at an address of the kernel's choice, or over a reservation or a retired
        // range of ours that no other code uses. It overlaps nothing that is in use.
        let base = unsafe { libc::mmap(at.cast(), size, access, flags | fixed, file, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if let Some(reservation) = reserved {
            reservation.keep(size);
        }
        // Small pages: with huge ones the first cell of each column would cost two megabytes. This is
        // advice, and a kernel without huge pages refuses it, which does no harm. SAFETY: advises about the
        // mapping just made.
        unsafe { libc::madvise(base, size, libc::MADV_NOHUGEPAGE) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region {
            base,
            size,
            shared: flags & libc::MAP_SHARED != 0,
            file: -1,
            keeps_address: AtomicBool::new(false),
        })
    }

    /// The address of a `T` at an offset.
    ///
    /// # Panics
    /// If the `T` would lie outside of the region, or would not be aligned.
    pub(crate) fn at<T>(&self, offset: usize) -> *const T {
        let end = offset.checked_add(size_of::<T>());
        assert!(end.is_some_and(|end| end <= self.size), "offset {offset} outside of the region");
        assert!(offset.is_multiple_of(align_of::<T>()), "offset {offset} is not aligned");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }

    /// Replaces a part of the region by zeroed memory that this process alone has, whatever the rest is.
    /// Both numbers are multiples of the page size.
    pub(crate) fn make_private(&self, offset: usize, size: usize) -> io::Result<()> {
        if !self.shared {
            return Ok(());
        }
        assert!(offset.checked_add(size).is_some_and(|end| end <= self.size));
        // SAFETY: replaces a part of our own mapping, as just checked, by another of the same size; no code
        // has an address into it yet.
        let mapped = unsafe {
            libc::mmap(
                self.base.as_ptr().add(offset).cast(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                sparse::MARK,
            )
        };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// From now on the address stays reserved when the region goes (`retired.rs`). It is a region that
    /// begins where a region had to.
    pub(crate) fn keep_address(&self) {
        // Relaxed: the region is dropped by whoever has the last hold on it.
        self.keeps_address.store(true, Ordering::Relaxed);
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of memory behind the region now: pages of the file, or resident pages of the mapping.
    pub(crate) fn resident(&self) -> u64 {
        if self.file >= 0 {
            // SAFETY: an all-zero stat is a valid value for fstat to write over.
            let mut stat: libc::stat = unsafe { std::mem::zeroed() };
            // SAFETY: the descriptor is ours and the buffer is a stat.
            if unsafe { libc::fstat(self.file, &raw mut stat) } == 0 {
                return stat.st_blocks.max(0) as u64 * 512;
            }
            return 0;
        }
        resident_pages(self.base.as_ptr(), self.size) * page_size() as u64
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping and the descriptor are ours; all that has addresses into the mapping borrows
        // from its owner (R1).
        unsafe {
            if self.keeps_address.load(Ordering::Relaxed) {
                retired::retire(self.base.as_ptr(), self.size);
            } else {
                libc::munmap(self.base.as_ptr().cast(), self.size);
            }
            if self.file >= 0 {
                libc::close(self.file);
            }
        }
    }
}

fn page_size() -> usize {
    // SAFETY: sysconf takes a constant and has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Counts the resident pages of a mapping, one window after the other. Allocates nothing.
fn resident_pages(base: *const u8, size: usize) -> u64 {
    const WINDOW: usize = 4096;
    let page = page_size();
    let mut seen = [0u8; WINDOW];
    let mut resident = 0;
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(WINDOW * page);
        // SAFETY: asks about pages of our own mapping; the buffer has a byte for each.
        let known =
            unsafe { libc::mincore(base.add(offset).cast_mut().cast(), length, seen.as_mut_ptr()) };
        if known == 0 {
            let pages = length.div_ceil(page);
            resident += seen[..pages].iter().filter(|&&page| page & 1 != 0).count() as u64;
        }
        offset += length;
    }
    resident
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_costs_memory_only_where_it_is_touched() {
        let region = Region::anonymous(1 << 34).unwrap();
        assert_eq!(region.resident(), 0);
        // SAFETY: inside the fresh mapping.
        unsafe { region.at::<u64>(1 << 33).cast_mut().write(7) };
        assert!(region.resident() >= 4096);
        assert!(region.resident() <= 64 << 10, "no huge pages");
    }

    #[test]
    fn a_region_lies_where_it_is_to_lie() {
        let place = Place { offset: 3 << 16, alignment: 1 << 24 };
        let region = Region::anonymous_at(5 << 16, place).unwrap();
        assert_eq!(region.at::<u8>(3 << 16).addr() % (1 << 24), 0);
        // SAFETY: inside the fresh mapping.
        unsafe { region.at::<u64>((5 << 16) - 8).cast_mut().write(7) };
    }

    #[test]
    #[should_panic(expected = "outside of the region")]
    fn an_offset_outside_is_refused() {
        Region::anonymous(4096).unwrap().at::<u64>(4096);
    }
}

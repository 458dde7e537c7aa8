//! A region is the memory that a table lies in: anonymous memory of the process, or a file that other processes map too.
//!
//! A region is one mapping, or parts of one (`parts.rs`). Creating it costs address space; touching it costs memory. The
//! mapping reserves nothing (`MAP_NORESERVE`), and a file is extended without being filled.
//!
//! Invariant R1: a region's address never changes and stays mapped until the region is dropped. In a region that is mapped
//! in parts, no offset outside of the parts is used.

pub(crate) mod free_list;
pub(crate) mod parts;
mod retired;
pub(crate) mod row_set;
#[cfg(not(loom))]
pub mod shadow;
pub mod sparse;

use crate::os::{self, Advice, Backing, memory};
use parts::Parts;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The smallest page size of any machine.
const PAGE: usize = 4096;

/// One mapping. It is readable and writable, unless it was mapped [read-only](Region::read_only).
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    size: usize,
    shared: bool,
    /// The mapped parts, unless the whole region is mapped.
    parts: Option<Parts>,
    /// The file of a region that was created here, used to query its size. A program that merely joins a ledger keeps no
    /// descriptor.
    file: Option<File>,
    /// Whether the address stays reserved after the region is dropped (`retired.rs`).
    keeps_address: AtomicBool,
}

/// The constraint on a region's address: the byte at `offset` gets an address that is a multiple of `alignment`. The
/// alignment is a power of two, the offset a multiple of the page size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) alignment: usize,
}

impl Place {
    /// The kernel chooses the address.
    pub(crate) const ANYWHERE: Place = Place { offset: 0, alignment: 1 };
}

/// Inaccessible address space. A region that needs a certain address is mapped inside it.
struct Reservation {
    base: *mut u8,
    length: usize,
    /// The start of the region.
    start: *mut u8,
}

impl Reservation {
    fn new(size: usize, place: Place) -> io::Result<Reservation> {
        let length = size.checked_add(place.alignment).ok_or(io::ErrorKind::OutOfMemory)?;
        let base = memory::reserve(length)?;
        let aligned = (base.addr() + place.offset).next_multiple_of(place.alignment);
        let start = base.wrapping_add(aligned - place.offset - base.addr());
        Ok(Reservation { base, length, start })
    }

    /// Releases all of the reservation but the region of `size` bytes.
    fn keep(self, size: usize) {
        // SAFETY: the reservation is ours, and nothing lies around the region.
        unsafe { memory::trim(self.base, self.length, self.start, size) };
        std::mem::forget(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the reservation is ours, and no region was laid in it.
        unsafe { memory::unmap(self.base, self.length) };
    }
}

// SAFETY: the region hands out addresses and touches nothing itself; its users share the memory through atomics and
// restartable sections only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps zeroed memory that is private to this process. A forked child gets a copy of each page that either process
    /// writes.
    pub(crate) fn anonymous(size: usize) -> io::Result<Region> {
        Region::anonymous_at(size, Place::ANYWHERE)
    }

    /// Like [`anonymous`](Self::anonymous), but at a given place.
    pub(crate) fn anonymous_at(size: usize, place: Place) -> io::Result<Region> {
        Region::map(size, place, Backing::Zeros)
    }

    /// Extends an empty file to `size` and maps it. Other processes may open the file and map it too.
    pub(crate) fn create_in(file: &File, size: usize, place: Place) -> io::Result<Region> {
        Region::extend(file, size, || Region::shared_at(file, size, place))
    }

    /// Like [`create_in`](Self::create_in), but maps only the parts if the system allows it.
    pub(crate) fn create_in_parts(file: &File, parts: Parts, place: Place) -> io::Result<Region> {
        Region::extend(file, parts.size, || Region::shared_in_parts(file, parts, place))
    }

    fn extend(
        file: &File,
        size: usize,
        map: impl FnOnce() -> io::Result<Region>,
    ) -> io::Result<Region> {
        if file.metadata()?.len() != 0 {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the file is not empty; a ledger is made in an empty file",
            ));
        }
        file.set_len(size as u64).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is not open for writing, or is none that can grow (a directory, a device, a pipe)",
            ),
            _ => error,
        })?;
        let mut region = map()?;
        region.file = file.try_clone().ok();
        Ok(region)
    }

    /// Maps `size` bytes of a file, which must have at least as many, at a given place.
    pub(crate) fn shared_at(file: &File, size: usize, place: Place) -> io::Result<Region> {
        Region::map(size, place, Backing::Shared(file))
    }

    /// Like [`shared_at`](Self::shared_at), but maps only the parts if the system allows it.
    pub(crate) fn shared_in_parts(file: &File, parts: Parts, place: Place) -> io::Result<Region> {
        let Some(base) = parts.map(file, place)? else {
            return Region::shared_at(file, parts.size, place);
        };
        Region::over(base, parts.size, true, Some(parts))
    }

    /// Maps `size` bytes of a file read-only. A write to them kills the process.
    pub(crate) fn read_only(file: &File, size: usize) -> io::Result<Region> {
        Region::map(size, Place::ANYWHERE, Backing::ReadOnly(file))
    }

    fn map(size: usize, place: Place, backing: Backing<'_>) -> io::Result<Region> {
        let again = if place.alignment > 1 { retired::take(size, place) } else { None };
        let reserved = match again {
            None if place.alignment > 1 => Some(Reservation::new(size, place)?),
            _ => None,
        };
        let at = again.or(reserved.as_ref().map(|reserved| reserved.start));
        // SAFETY: at an address of the system's choice, or over a reservation or a retired range of ours that no other code
        // uses.
        let base = unsafe { memory::map(at.unwrap_or(std::ptr::null_mut()), size, backing)? };
        if let Some(reservation) = reserved {
            reservation.keep(size);
        }
        Region::over(base, size, !matches!(backing, Backing::Zeros), None)
    }

    /// Returns the region for mappings that were just made.
    fn over(base: *mut u8, size: usize, shared: bool, parts: Option<Parts>) -> io::Result<Region> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        let keeps_address = AtomicBool::new(false);
        let region = Region { base, size, shared, parts, file: None, keeps_address };
        for part in region.mappings() {
            let start = base.as_ptr().wrapping_add(part.start);
            // SAFETY: the advice concerns the mappings just made.
            unsafe { memory::advise(start, part.len(), Advice::SmallPages) };
        }
        Ok(region)
    }

    /// Returns the address of a `T` at an offset.
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

    /// Replaces a part of the region by zeroed memory that is private to this process, even in a shared region. Both numbers
    /// are multiples of the page size.
    pub(crate) fn make_private(&self, offset: usize, size: usize) -> io::Result<()> {
        if !self.shared {
            return Ok(());
        }
        assert!(offset.checked_add(size).is_some_and(|end| end <= self.size));
        // SAFETY: replaces a part of our own mapping, as just checked, by another of the same size; no code has an address
        // into it yet.
        unsafe { memory::map(self.base.as_ptr().add(offset), size, Backing::Zeros) }.map(drop)
    }

    /// Returns the mapped ranges.
    fn mappings(&self) -> impl Iterator<Item = Range<usize>> {
        let whole = self.parts.is_none().then_some(0..self.size);
        whole.into_iter().chain(self.parts.into_iter().flat_map(Parts::ranges))
    }

    /// Returns the number of mapped bytes.
    pub(crate) fn mapped(&self) -> usize {
        self.parts.map_or(self.size, Parts::mapped)
    }

    /// Returns whether the whole region is mapped.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.is_none()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Makes the address stay reserved after the region is dropped (`retired.rs`). The region must begin at its required
    /// place.
    pub(crate) fn keep_address(&self) {
        // Relaxed: the region is dropped with its last reference.
        self.keeps_address.store(true, Ordering::Relaxed);
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the bytes of memory behind the region now: pages of the file, or resident pages of the mapping.
    pub(crate) fn resident(&self) -> u64 {
        match &self.file {
            Some(file) => file.metadata().map_or(0, |metadata| os::bytes_behind(&metadata)),
            None => {
                let at = |offset| self.base.as_ptr().wrapping_add(offset);
                // SAFETY: the mappings are ours.
                let of =
                    |part: Range<usize>| unsafe { memory::resident(at(part.start), part.len()) };
                self.mappings().map(of).sum()
            }
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and all code with addresses into it borrows from its owner (R1).
        unsafe {
            if let Some(parts) = self.parts {
                parts.unmap(self.base.as_ptr());
            } else if self.keeps_address.load(Ordering::Relaxed) {
                retired::retire(self.base.as_ptr(), self.size);
            } else {
                memory::unmap(self.base.as_ptr(), self.size);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
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

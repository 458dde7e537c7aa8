//! Mappings.

use crate::os::MARK;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// What lies behind a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backing<'f> {
    /// Zeros, which this process alone has. They cost memory where they are touched.
    Zeros,
    /// A file that other processes map, too.
    Shared(&'f File),
    /// Likewise, for reading alone: a write kills the process.
    ReadOnly(&'f File),
}

/// What came of a place that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is the caller's.
    Mapped,
    /// Something lies there. (Linux alone says so.)
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    Taken,
    /// The system cannot be asked so: nothing is mapped.
    #[cfg_attr(target_os = "linux", allow(dead_code))]
    CannotTell,
}

const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
const ZEROS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

fn made(base: *mut libc::c_void) -> io::Result<*mut u8> {
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Reserves address space without access.
pub(crate) fn reserve(length: usize) -> io::Result<*mut u8> {
    let flags = ZEROS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing.
    made(unsafe { libc::mmap(null_mut(), length, libc::PROT_NONE, flags, -1, 0) })
}

/// Maps `size` bytes: over what lies at `at`, in one step, or anywhere if that is null.
///
/// # Safety
/// What lies at `at` is a mapping of the caller's, of that size or more, which no code uses.
pub(crate) unsafe fn map(at: *mut u8, size: usize, backing: Backing<'_>) -> io::Result<*mut u8> {
    let (access, flags, file, offset) = match backing {
        Backing::Zeros => (WRITABLE, ZEROS, -1, MARK),
        Backing::Shared(file) => (WRITABLE, libc::MAP_SHARED, file.as_raw_fd(), 0),
        Backing::ReadOnly(file) => (libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0),
    };
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = flags | libc::MAP_NORESERVE | fixed;
    // SAFETY: a new mapping: at an address of the kernel's choice, or over one that is the caller's, as it says.
    made(unsafe { libc::mmap(at.cast(), size, access, flags, file, offset) })
}

/// Maps a part of a file that others map, too, where nothing lies; over nothing that does.
pub(crate) fn map_where_free(
    at: *mut u8,
    size: usize,
    file: &File,
    offset: usize,
) -> io::Result<Found> {
    #[cfg(target_os = "linux")]
    {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let (file, offset) = (file.as_raw_fd(), offset as libc::off_t);
        // SAFETY: over nothing: the kernel refuses a place that is taken, and one that does not know the flag (before
        // Linux 4.17, in some emulators) takes the place for a hint, and goes elsewhere if it is taken.
        let made = made(unsafe { libc::mmap(at.cast(), size, WRITABLE, flags, file, offset) });
        match made {
            Ok(base) if base == at => Ok(Found::Mapped),
            Ok(base) => {
                // SAFETY: just mapped, and nobody knows it.
                unsafe { unmap(base, size) };
                Ok(Found::Taken)
            }
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(Found::Taken),
            Err(error) => Err(error),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (at, size, file, offset);
        Ok(Found::CannotTell)
    }
}

/// Gives back what lies around `size` bytes at `start` of a reservation.
///
/// # Safety
/// The reservation is the caller's, and nothing lies in those parts.
pub(crate) unsafe fn trim(base: *mut u8, length: usize, start: *mut u8, size: usize) {
    let before = start.addr() - base.addr();
    let after = length - before - size;
    // SAFETY: as the caller says.
    unsafe {
        if before > 0 {
            libc::munmap(base.cast(), before);
        }
        if after > 0 {
            libc::munmap(start.add(size).cast(), after);
        }
    }
}

/// Gives a mapping back.
///
/// # Safety
/// It is the caller's, and no code uses it.
pub(crate) unsafe fn unmap(base: *mut u8, size: usize) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(base.cast(), size) };
}

/// Takes small pages: with huge ones the first cell of each column would cost two megabytes. This is advice, and a
/// kernel without huge pages refuses it, which does no harm.
///
/// # Safety
/// It is a mapping of the caller's.
pub(crate) unsafe fn take_small_pages(base: *mut u8, size: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: as the caller says.
    unsafe {
        libc::madvise(base.cast(), size, libc::MADV_NOHUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (base, size);
}

/// Stays out of core dumps. A refusal does not matter.
///
/// # Safety
/// It is a mapping of the caller's.
pub(crate) unsafe fn leave_out_of_dumps(base: *mut u8, size: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: as the caller says.
    unsafe {
        libc::madvise(base.cast(), size, libc::MADV_DONTDUMP);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (base, size);
}

/// Has the kernel make zeros of whole pages in forked children. Says `false` where it does not: pages are larger, or
/// the system cannot.
///
/// # Safety
/// The pages are the caller's, and what lies in them is valid when it is zero.
pub(crate) unsafe fn wipe_in_children(base: *mut u8, size: usize) -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: as the caller says.
    unsafe {
        libc::madvise(base.cast(), size, libc::MADV_WIPEONFORK) == 0
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (base, size);
        false
    }
}

/// Bytes of a mapping that are in memory, counted one window after the other. Allocates nothing.
///
/// # Safety
/// It is a mapping of the caller's.
pub(crate) unsafe fn resident(base: *const u8, size: usize) -> u64 {
    const WINDOW: usize = 4096;
    let page = super::page_size();
    let mut seen = [0u8; WINDOW];
    let mut resident = 0;
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(WINDOW * page);
        let at = base.wrapping_add(offset).cast_mut();
        // SAFETY: asks about pages of the mapping; the buffer has a byte for each.
        let known = unsafe { libc::mincore(at.cast(), length, seen.as_mut_ptr().cast()) };
        if known == 0 {
            let pages = length.div_ceil(page);
            resident += seen[..pages].iter().filter(|&&page| page & 1 != 0).count() as u64;
        }
        offset += length;
    }
    resident * page as u64
}

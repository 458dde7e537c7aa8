//! Mappings.

use crate::os::{Advice, Backing, Found, MARK};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

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

/// Maps `size` bytes: in one step over the mapping at `at`, or anywhere if that is null.
///
/// # Safety
/// At `at` lies a mapping of the caller's, of that size or more, which no code uses.
pub(crate) unsafe fn map(at: *mut u8, size: usize, backing: Backing<'_>) -> io::Result<*mut u8> {
    let (access, flags, file, offset) = match backing {
        Backing::Zeros => (WRITABLE, ZEROS, -1, MARK),
        Backing::Shared(file) => (WRITABLE, libc::MAP_SHARED, file.as_raw_fd(), 0),
        Backing::ReadOnly(file) => (libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0),
    };
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = flags | libc::MAP_NORESERVE | fixed;
    // SAFETY: a new mapping: at an address of the kernel's choice, or over one of the caller's, as required.
    made(unsafe { libc::mmap(at.cast(), size, access, flags, file, offset) })
}

/// Maps a part of a file that other processes map, too, at a free place. Replaces no mapping.
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
        // SAFETY: replaces nothing: the kernel refuses a place that is taken. Before Linux 4.17 and in some emulators, a
        // kernel that does not know the flag treats the place as a hint, and maps elsewhere if it is taken.
        let made = made(unsafe { libc::mmap(at.cast(), size, WRITABLE, flags, file, offset) });
        match made {
            Ok(base) if base == at => Ok(Found::Mapped),
            Ok(base) => {
                // SAFETY: just mapped, and no other code knows it.
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

/// Releases the parts of a reservation around `size` bytes at `start`.
///
/// # Safety
/// The reservation is the caller's, and nothing lies in those parts.
pub(crate) unsafe fn trim(base: *mut u8, length: usize, start: *mut u8, size: usize) {
    let before = start.addr() - base.addr();
    let after = length - before - size;
    // SAFETY: as the caller guarantees.
    unsafe {
        if before > 0 {
            libc::munmap(base.cast(), before);
        }
        if after > 0 {
            libc::munmap(start.add(size).cast(), after);
        }
    }
}

/// Unmaps a mapping.
///
/// # Safety
/// It is the caller's, and no code uses it.
pub(crate) unsafe fn unmap(base: *mut u8, size: usize) {
    // SAFETY: as the caller guarantees.
    unsafe { libc::munmap(base.cast(), size) };
}

/// Advises about a mapping. Returns `false` if the system refuses.
///
/// # Safety
/// It is a mapping of the caller's. For [`Advice::WipedInChildren`], its content is valid when it is zero.
pub(crate) unsafe fn advise(base: *mut u8, size: usize, advice: Advice) -> bool {
    #[cfg(target_os = "linux")]
    {
        let advice = match advice {
            Advice::SmallPages => libc::MADV_NOHUGEPAGE,
            Advice::NoDumps => libc::MADV_DONTDUMP,
            Advice::WipedInChildren => libc::MADV_WIPEONFORK,
        };
        // SAFETY: as the caller guarantees.
        unsafe { libc::madvise(base.cast(), size, advice) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (base, size, advice);
        false
    }
}

/// Returns how many bytes of a mapping are in memory, counted in steps of one window. Allocates nothing.
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

//! Memory that is taken from the system when it is reserved.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::null;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, MEMORY_BASIC_INFORMATION, PAGE_NOACCESS,
    PAGE_READWRITE, VirtualAlloc, VirtualFree, VirtualQuery,
};

/// What lies behind memory.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the files are refused")]
pub(crate) enum Backing<'f> {
    /// Zeros.
    Zeros,
    /// A file that other processes map, too: refused.
    Shared(&'f File),
    /// Likewise.
    ReadOnly(&'f File),
}

/// What came of a place that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "the files are refused")]
pub(crate) enum Found {
    /// It is the caller's.
    Mapped,
    /// Something lies there.
    Taken,
    /// The system cannot be asked so: nothing is mapped.
    CannotTell,
}

fn made(base: *mut c_void) -> io::Result<*mut u8> {
    if base.is_null() { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Reserves address space without access.
pub(crate) fn reserve(length: usize) -> io::Result<*mut u8> {
    // SAFETY: a new reservation at an address of the system's choice.
    made(unsafe { VirtualAlloc(null(), length, MEM_RESERVE, PAGE_NOACCESS) })
}

/// Makes `size` bytes of zeros: of what lies at `at`, or anywhere if that is null.
///
/// # Safety
/// What lies at `at` is a reservation of the caller's, of that size or more, which no code uses.
pub(crate) unsafe fn map(at: *mut u8, size: usize, backing: Backing<'_>) -> io::Result<*mut u8> {
    if !matches!(backing, Backing::Zeros) {
        return Err(crate::os::lacks(
            "ledgers and counters in files need the mappings of a Unix, which are not there",
            "keep the ledger in memory (`LedgerBuilder::anonymous`)",
        ));
    }
    // SAFETY: as the caller says. What was there is given up first, so that zeros come.
    unsafe {
        if at.is_null() {
            return made(VirtualAlloc(null(), size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
        }
        VirtualFree(at.cast(), size, MEM_DECOMMIT);
        made(VirtualAlloc(at.cast(), size, MEM_COMMIT, PAGE_READWRITE))
    }
}

/// Files are not mapped here.
pub(crate) fn map_where_free(_: *mut u8, _: usize, _: &File, _: usize) -> io::Result<Found> {
    Ok(Found::CannotTell)
}

/// What lies around a part of a reservation stays reserved, which costs no memory.
///
/// # Safety
/// None: it is as the other system's.
pub(crate) unsafe fn trim(_: *mut u8, _: usize, _: *mut u8, _: usize) {}

/// Gives back the reservation that begins at `base`, or in which it lies.
///
/// # Safety
/// It is the caller's, and no code uses it.
pub(crate) unsafe fn unmap(base: *mut u8, _: usize) {
    // SAFETY: as the caller says; the query fills a structure of ours, for which zeros are valid.
    unsafe {
        let mut found: MEMORY_BASIC_INFORMATION = std::mem::zeroed();
        let size = size_of::<MEMORY_BASIC_INFORMATION>();
        if VirtualQuery(base.cast(), &raw mut found, size) != 0 {
            VirtualFree(found.AllocationBase, 0, MEM_RELEASE);
        }
    }
}

/// Pages are small.
///
/// # Safety
/// None: it is as the other system's.
pub(crate) unsafe fn take_small_pages(_: *mut u8, _: usize) {}

/// It is not asked for.
///
/// # Safety
/// None: it is as the other system's.
pub(crate) unsafe fn leave_out_of_dumps(_: *mut u8, _: usize) {}

/// Nothing forks, so there is nothing to wipe.
///
/// # Safety
/// None: it is as the other system's.
pub(crate) unsafe fn wipe_in_children(_: *mut u8, _: usize) -> bool {
    true
}

/// All of it was taken.
///
/// # Safety
/// None: it is as the other system's.
pub(crate) unsafe fn resident(_: *const u8, size: usize) -> u64 {
    size as u64
}

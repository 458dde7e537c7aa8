//! Memory that is taken from the system when it is reserved.

use crate::os::{Advice, Backing, Found};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::null;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, MEMORY_BASIC_INFORMATION, PAGE_NOACCESS,
    PAGE_READWRITE, VirtualAlloc, VirtualFree, VirtualQuery,
};

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

/// Pages are small, dumps are not asked about, and nothing forks.
///
/// # Safety
/// None: it is as the other system's.
pub(crate) unsafe fn advise(_: *mut u8, _: usize, _: Advice) -> bool {
    true
}

/// All of it was taken.
///
/// # Safety
/// None: it is as the other system's.
pub(crate) unsafe fn resident(_: *const u8, size: usize) -> u64 {
    size as u64
}

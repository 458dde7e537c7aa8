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

/// Makes `size` zeroed bytes: in the reservation at `at`, or anywhere if that is null.
///
/// # Safety
/// At `at` lies a reservation of the caller's, of that size or more, which no code uses.
pub(crate) unsafe fn map(at: *mut u8, size: usize, backing: Backing<'_>) -> io::Result<*mut u8> {
    if !matches!(backing, Backing::Zeros) {
        return Err(crate::os::lacks(
            "ledgers and counters in files need the mappings of a Unix, which are not there",
            "keep the ledger in memory (`LedgerBuilder::anonymous`)",
        ));
    }
    // SAFETY: as the caller guarantees. The old memory is released first, so that the new one is zeroed.
    unsafe {
        if at.is_null() {
            return made(VirtualAlloc(null(), size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
        }
        VirtualFree(at.cast(), size, MEM_DECOMMIT);
        made(VirtualAlloc(at.cast(), size, MEM_COMMIT, PAGE_READWRITE))
    }
}

/// Maps nothing: files are not mapped on Windows.
pub(crate) fn map_where_free(_: *mut u8, _: usize, _: &File, _: usize) -> io::Result<Found> {
    Ok(Found::CannotTell)
}

/// Does nothing: the parts of a reservation around the region stay reserved, which costs no memory.
///
/// # Safety
/// None; the signature matches that of the other systems.
pub(crate) unsafe fn trim(_: *mut u8, _: usize, _: *mut u8, _: usize) {}

/// Releases the reservation that begins at `base`, or that contains it.
///
/// # Safety
/// It is the caller's, and no code uses it.
pub(crate) unsafe fn unmap(base: *mut u8, _: usize) {
    // SAFETY: as the caller guarantees; the query fills a structure of ours, for which zeros are valid.
    unsafe {
        let mut found: MEMORY_BASIC_INFORMATION = std::mem::zeroed();
        let size = size_of::<MEMORY_BASIC_INFORMATION>();
        if VirtualQuery(base.cast(), &raw mut found, size) != 0 {
            VirtualFree(found.AllocationBase, 0, MEM_RELEASE);
        }
    }
}

/// Does nothing: pages are small, there is no control of dumps, and Windows has no fork.
///
/// # Safety
/// None; the signature matches that of the other systems.
pub(crate) unsafe fn advise(_: *mut u8, _: usize, _: Advice) -> bool {
    true
}

/// Returns the whole size, since all of it was taken.
///
/// # Safety
/// None; the signature matches that of the other systems.
pub(crate) unsafe fn resident(_: *const u8, size: usize) -> u64 {
    size as u64
}

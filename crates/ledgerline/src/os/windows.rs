//! Windows. Nothing forks there, and what a Unix calls a file that processes map is not made here.

pub(crate) mod memory;

use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use windows_sys::Win32::System::SystemInformation::{
    GetSystemInfo, GlobalMemoryStatusEx, MEMORYSTATUSEX, SYSTEM_INFO,
};

fn system() -> SYSTEM_INFO {
    // SAFETY: the call fills a structure of ours, for which zeros are valid.
    unsafe {
        let mut system = std::mem::zeroed();
        GetSystemInfo(&raw mut system);
        system
    }
}

/// Writes a line to standard error.
pub(crate) fn say(line: &[u8]) {
    // Nobody is told where standard error is closed.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line);
}

pub(crate) fn page_size() -> usize {
    system().dwPageSize as usize
}

/// Bytes of memory of this machine.
pub(crate) fn memory_of_machine() -> u64 {
    // SAFETY: the call fills a structure of ours, for which zeros are valid and which says its size.
    unsafe {
        let mut status: MEMORYSTATUSEX = std::mem::zeroed();
        status.dwLength = size_of::<MEMORYSTATUSEX>() as u32;
        if GlobalMemoryStatusEx(&raw mut status) == 0 { 0 } else { status.ullTotalPhys }
    }
}

/// How many CPUs this process's group has.
pub(crate) fn configured_cpus() -> u32 {
    system().dwNumberOfProcessors
}

/// There are no such files here.
pub(crate) fn read_start(_: &CStr, _: &mut [u8]) -> usize {
    0
}

/// The time since this was called first.
pub(crate) fn monotonic() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

/// Nothing forks.
pub(crate) fn at_fork(
    _: unsafe extern "C" fn(),
    _: unsafe extern "C" fn(),
    _: unsafe extern "C" fn(),
) {
}

/// It is not asked.
pub(crate) fn is_process(_: u32) -> bool {
    false
}

/// The path that these bytes of a system's file name.
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

/// Bytes behind a file.
pub(crate) fn bytes_behind(metadata: &Metadata) -> u64 {
    metadata.len()
}

/// No number is known.
pub(crate) fn number_of(_: &Metadata) -> u64 {
    0
}

/// Reads at a place of a file. Returns how many bytes; 0 at its end.
///
/// # Safety
/// `length` bytes from `into` on are initialised, and may be written.
pub(crate) unsafe fn read_at(
    file: &File,
    into: *mut u8,
    length: usize,
    at: usize,
) -> io::Result<usize> {
    // SAFETY: as the caller says.
    file.seek_read(unsafe { std::slice::from_raw_parts_mut(into, length) }, at as u64)
}

/// Where the next part of a file lies that is no hole: not known.
pub(crate) fn next_data(_: &File, from: usize) -> Option<usize> {
    Some(from)
}

/// Whether it says that a file may not be written.
pub(crate) fn says_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

//! Windows. It has no fork, and this library does not map files there.

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
    // If standard error is closed, the line is lost.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line);
}

pub(crate) fn page_size() -> usize {
    system().dwPageSize as usize
}

/// Returns the size of this machine's memory in bytes.
pub(crate) fn memory_of_machine() -> u64 {
    // SAFETY: the call fills a structure of ours, which holds its own size and for which zeros are valid.
    unsafe {
        let mut status: MEMORYSTATUSEX = std::mem::zeroed();
        status.dwLength = size_of::<MEMORYSTATUSEX>() as u32;
        if GlobalMemoryStatusEx(&raw mut status) == 0 { 0 } else { status.ullTotalPhys }
    }
}

/// Returns how many CPUs this process's group has.
pub(crate) fn configured_cpus() -> u32 {
    system().dwNumberOfProcessors
}

/// Reads nothing: Windows has no such files.
pub(crate) fn read_start(_: &CStr, _: &mut [u8]) -> usize {
    0
}

/// Returns the time since the first call.
pub(crate) fn monotonic() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

/// Does nothing, since Windows has no fork.
pub(crate) fn at_fork(
    _: unsafe extern "C" fn(),
    _: unsafe extern "C" fn(),
    _: unsafe extern "C" fn(),
) {
}

/// Always returns `false`; it is not used on Windows.
pub(crate) fn is_process(_: u32) -> bool {
    false
}

/// Returns the path that these bytes of a system file name.
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

/// Returns the size of a file in bytes.
pub(crate) fn bytes_behind(metadata: &Metadata) -> u64 {
    metadata.len()
}

/// Returns 0: no number is known.
pub(crate) fn number_of(_: &Metadata) -> u64 {
    0
}

/// Reads at an offset of a file. Returns the number of bytes; 0 at its end.
///
/// # Safety
/// The `length` bytes at `into` are initialised and writable.
pub(crate) unsafe fn read_at(
    file: &File,
    into: *mut u8,
    length: usize,
    at: usize,
) -> io::Result<usize> {
    // SAFETY: as the caller guarantees.
    file.seek_read(unsafe { std::slice::from_raw_parts_mut(into, length) }, at as u64)
}

/// Returns the offset itself, since holes are unknown here.
pub(crate) fn next_data(_: &File, from: usize) -> Option<usize> {
    Some(from)
}

/// Returns whether an error means that a file may not be written.
pub(crate) fn says_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

//! Linux and macOS.

pub(crate) mod memory;

use std::ffi::{CStr, OsStr};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// Writes a line to standard error without the lock of `std`: another thread may hold that lock and wait for this one.
#[cfg(not(loom))]
pub(crate) fn say(line: &[u8]) {
    // SAFETY: writes bytes of ours. If standard error is closed, the line is lost.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf takes a constant and has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Returns the size of this machine's memory in bytes.
pub(crate) fn memory_of_machine() -> u64 {
    // SAFETY: sysconf takes a constant and has no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(page_size() as u64)
}

/// Returns how many CPUs are configured.
pub(crate) fn configured_cpus() -> u32 {
    // SAFETY: sysconf takes a constant and has no preconditions.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1)
}

/// Reads the beginning of a system file without allocating. Returns 0 if it cannot be read.
pub(crate) fn read_start(path: &CStr, into: &mut [u8]) -> usize {
    // SAFETY: opens a path that ends in zero, reads at most the buffer's length into it, closes.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return 0;
        }
        let length = libc::read(file, into.as_mut_ptr().cast(), into.len());
        libc::close(file);
        length.max(0) as usize
    }
}

/// Returns the time of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a timespec of ours. Every Unix has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // The seconds have 32 bits on some systems.
    #[allow(clippy::unnecessary_cast, reason = "as said")]
    Duration::new((now.tv_sec as i64).unsigned_abs(), now.tv_nsec as u32)
}

/// Registers functions to be called around each fork: before it, after it in the parent, after it in the child.
pub(crate) fn at_fork(
    before: unsafe extern "C" fn(),
    after: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) {
    // SAFETY: the handlers are plain functions that live as long as the program. A library is pinned: see the C interface.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(child)) };
}

/// Returns whether there is a process with that number that this one may signal.
pub(crate) fn is_process(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// Gives the calling thread a name.
pub(crate) fn name_thread(name: &CStr) {
    // SAFETY: both take a string that ends in zero.
    unsafe {
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        #[cfg(target_os = "macos")]
        libc::pthread_setname_np(name.as_ptr());
    }
}

/// Returns the path that these bytes of a system file name.
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Returns the bytes of memory or disk behind a file.
pub(crate) fn bytes_behind(metadata: &Metadata) -> u64 {
    metadata.blocks() * 512
}

/// Returns the number by which the system identifies a file.
pub(crate) fn number_of(metadata: &Metadata) -> u64 {
    metadata.ino()
}

/// Reads at an offset of a file. Returns the number of bytes; 0 at its end.
///
/// # Safety
/// The `length` bytes at `into` are writable.
pub(crate) unsafe fn read_at(
    file: &File,
    into: *mut u8,
    length: usize,
    at: usize,
) -> io::Result<usize> {
    let at = libc::off_t::try_from(at).unwrap_or(libc::off_t::MAX);
    loop {
        // SAFETY: as the caller guarantees.
        let read = unsafe { libc::pread(file.as_raw_fd(), into.cast(), length, at) };
        if let Ok(read) = usize::try_from(read) {
            return Ok(read);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Returns the offset of the next part of a file that is not a hole, or the offset itself if that is unknown.
pub(crate) fn next_data(file: &File, from: usize) -> Option<usize> {
    let at = libc::off_t::try_from(from).ok()?;
    // SAFETY: moves the position of a descriptor that the caller owns; no code reads at that position.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
    match usize::try_from(found) {
        Ok(found) => Some(found),
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => None,
        Err(_) => Some(from),
    }
}

/// Returns whether an error means that a file may not be written.
pub(crate) fn says_read_only(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

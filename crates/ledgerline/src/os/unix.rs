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

/// Writes a line to standard error, past what std locks for that: another thread may hold the lock and wait for this one.
#[cfg(not(loom))]
pub(crate) fn say(line: &[u8]) {
    // SAFETY: writes bytes of ours. Nobody is told where standard error is closed.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf takes a constant and has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Bytes of memory of this machine.
pub(crate) fn memory_of_machine() -> u64 {
    // SAFETY: sysconf takes a constant and has no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(page_size() as u64)
}

/// How many CPUs are configured.
pub(crate) fn configured_cpus() -> u32 {
    // SAFETY: sysconf takes a constant and has no preconditions.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1)
}

/// Reads the beginning of a system's file without allocating; nothing where that cannot be read.
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

/// The time by `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a timespec of ours. (The clock is there on every Unix.)
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // (The seconds have 32 bits on some systems.)
    #[allow(clippy::unnecessary_cast, reason = "as said")]
    Duration::new((now.tv_sec as i64).unsigned_abs(), now.tv_nsec as u32)
}

/// Calls these around each fork: before it, after it in the parent, after it in the child.
pub(crate) fn at_fork(
    before: unsafe extern "C" fn(),
    after: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) {
    // SAFETY: the handlers are plain functions that live as long as the program (or the library is pinned: see the C
    // interface).
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(child)) };
}

/// Whether there is a process with that number, as far as this one may ask.
pub(crate) fn is_process(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// Gives the calling thread a name.
pub(crate) fn name_thread(name: &CStr) {
    // SAFETY: both take a string with its end.
    unsafe {
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        #[cfg(target_os = "macos")]
        libc::pthread_setname_np(name.as_ptr());
    }
}

/// The path that these bytes of a system's file name.
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Bytes of memory or disk behind a file.
pub(crate) fn bytes_behind(metadata: &Metadata) -> u64 {
    metadata.blocks() * 512
}

/// The number by which the system knows a file.
pub(crate) fn number_of(metadata: &Metadata) -> u64 {
    metadata.ino()
}

/// Reads at a place of a file. Returns how many bytes; 0 at its end.
///
/// # Safety
/// `length` bytes from `into` on may be written.
pub(crate) unsafe fn read_at(
    file: &File,
    into: *mut u8,
    length: usize,
    at: usize,
) -> io::Result<usize> {
    let at = libc::off_t::try_from(at).unwrap_or(libc::off_t::MAX);
    loop {
        // SAFETY: as the caller says.
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

/// Where the next part of a file lies that is no hole: the place itself where that is not known.
pub(crate) fn next_data(file: &File, from: usize) -> Option<usize> {
    let at = libc::off_t::try_from(from).ok()?;
    // SAFETY: moves the position of a descriptor that the caller owns, at which nobody reads.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
    match usize::try_from(found) {
        Ok(found) => Some(found),
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => None,
        Err(_) => Some(from),
    }
}

/// Whether it says that a file may not be written.
pub(crate) fn says_read_only(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

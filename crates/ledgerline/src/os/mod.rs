//! What is asked of the operating system, where systems differ.
//!
//! The library is made for Linux. Elsewhere it compiles and works by atomics, so that who develops on such a machine
//! can: what a system lacks is an error that says so ([`lacks`]) when it is asked for.
//!
//! | module    | what it holds                                                                       |
//! |-----------|-------------------------------------------------------------------------------------|
//! | `unix`    | memory, files, clock, fork: Linux's and macOS's                                     |
//! | `windows` | the same of Windows                                                                 |
//! | `bell`    | a descriptor that becomes readable: Linux's eventfd                                 |
//! | `at_end`  | hears that a thread ends: Linux's, which alone needs it                              |
//!
//! | what                                             | Linux | macOS | Windows |
//! |--------------------------------------------------|-------|-------|---------|
//! | ledgers and counters in memory, charges, limits, waits, reclaimers, statistics | yes | yes | yes |
//! | sections, columns that threads own               | yes   | atomics | atomics |
//! | ledgers and counters in files, views             | yes   | yes   | no      |
//! | announced ledgers                                | yes   | are not listed: there is no `/proc` | no |
//! | `Group::watch`, following the container          | yes   | no    | no      |
//! | owners of allocations in ledgers that processes share | yes | no  | no      |
//! | memory is taken when it is                       | touched | touched | reserved: a table has 16 384 groups there |
//!
//! What is said of macOS and Windows is compiled (`ci/platforms`), and not tested.

#[cfg(not(loom))]
#[cfg_attr(not(target_os = "linux"), path = "at_end_nowhere.rs")]
pub(crate) mod at_end;
#[cfg(not(loom))]
#[cfg_attr(not(target_os = "linux"), path = "bell_nowhere.rs")]
pub(crate) mod bell;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

use std::fs::File;

/// Whether a table reserves for a million groups what costs nothing until it is touched: not where address space is
/// small, nor where memory is taken when it is reserved.
pub(crate) const LARGE_TABLES: bool = cfg!(all(unix, target_pointer_width = "64"));

/// What lies behind a mapping.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(windows, allow(dead_code, reason = "the files are refused"))]
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
#[allow(dead_code, reason = "Linux alone says that a place is taken, and can always tell")]
pub(crate) enum Found {
    /// It is the caller's.
    Mapped,
    /// Something lies there.
    Taken,
    /// The system cannot be asked so: nothing is mapped.
    CannotTell,
}

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// It takes small pages: with huge ones the first cell of each column would cost two megabytes. A kernel without
    /// huge pages refuses this, which does no harm.
    SmallPages,
    /// It stays out of core dumps. A refusal does not matter.
    NoDumps,
    /// The kernel makes zeros of whole pages in forked children. What lies in them is valid when it is zero. This is
    /// refused where pages are larger, or the system cannot.
    WipedInChildren,
}

/// The offset with which memory is mapped that has no file (see `region/sparse.rs`).
pub(crate) const MARK: libc::off_t = 0x1ed6_0000;

/// Whether there is a kernel that limits containers.
///
/// # Errors
/// On systems other than Linux.
#[cfg(not(loom))]
pub(crate) fn has_containers() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(());
    #[cfg(not(target_os = "linux"))]
    Err(lacks(
        "a container is followed by Linux's cgroups and `/proc`, which are not there",
        "set the root's max (`Group::set_max`)",
    ))
}

/// What a refusal says on a system that lacks something.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lacks(what: &str, instead: &str) -> std::io::Error {
    let why = format!("{what} on {}: {instead}", std::env::consts::OS);
    std::io::Error::new(std::io::ErrorKind::Unsupported, why)
}

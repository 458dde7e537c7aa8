//! The parts of the operating system's interface that differ between systems.
//!
//! The library is made for Linux. On other systems it compiles and works by atomics, so that it can be developed on such
//! machines. A feature that a system lacks returns an error that names it ([`lacks`]).
//!
//! | module    | what it holds                                                                       |
//! |-----------|-------------------------------------------------------------------------------------|
//! | `unix`    | memory, files, clock, fork: for Linux and macOS                                     |
//! | `windows` | the same for Windows                                                                |
//! | `bell`    | a descriptor that becomes readable: Linux's eventfd                                 |
//! | `at_end`  | detects the end of a thread, which only Linux needs                                 |
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
//! The macOS and Windows columns are compiled (`ci/platforms`), but not tested.

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

/// Whether a table reserves address space for a million groups, which costs nothing until it is touched. Not if address
/// space is small, nor if memory is taken when it is reserved.
pub(crate) const LARGE_TABLES: bool = cfg!(all(unix, target_pointer_width = "64"));

/// The memory behind a mapping.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(windows, allow(dead_code, reason = "the files are refused"))]
pub(crate) enum Backing<'f> {
    /// Zeros, private to this process. They cost memory only where they are touched.
    Zeros,
    /// A file that other processes map, too.
    Shared(&'f File),
    /// Like `Shared`, but read-only: a write kills the process.
    ReadOnly(&'f File),
}

/// The result of mapping at a requested place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "Linux alone says that a place is taken, and can always tell")]
pub(crate) enum Found {
    /// The place was free and is mapped now.
    Mapped,
    /// Another mapping lies there.
    Taken,
    /// The system cannot check this; nothing is mapped.
    CannotTell,
}

/// The intended use of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Small pages: with huge ones the first cell of each column would cost two megabytes. A kernel without huge pages
    /// refuses this, which does no harm.
    SmallPages,
    /// No core dumps. A refusal does not matter.
    NoDumps,
    /// The kernel zeroes whole pages in forked children. The content must be valid when it is zero. Systems with larger
    /// pages, or without the feature, refuse this.
    WipedInChildren,
}

/// The offset for mappings of memory without a file (see `region/sparse.rs`).
pub(crate) const MARK: libc::off_t = 0x1ed6_0000;

/// Checks that this system's kernel can limit containers.
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

/// Returns the error of a system that lacks something.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lacks(what: &str, instead: &str) -> std::io::Error {
    let why = format!("{what} on {}: {instead}", std::env::consts::OS);
    std::io::Error::new(std::io::ErrorKind::Unsupported, why)
}

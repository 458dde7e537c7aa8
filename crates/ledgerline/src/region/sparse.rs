//! Marks large, sparse mappings, which are reserved at once and take pages only where they are touched.
//!
//! A ledger reserves hundreds of megabytes and uses some kilobytes of them. A tool that accounts mappings without checking
//! which pages were touched would count all of it as memory. So each such mapping has a mark that the tool can see in the
//! call: an offset, which has no meaning without a file. An invalid file descriptor would also satisfy the kernel, but stops
//! valgrind.

/// The offset with which this library maps anonymous memory: a multiple of any page size. `ledgerline run` does not charge
/// such a mapping.
pub const MARK: libc::off_t = crate::os::MARK;

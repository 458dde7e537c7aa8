//! How memory is mapped that is large and costs little: it is all reserved at once and takes pages where it is touched.
//!
//! A ledger reserves hundreds of megabytes and uses some kilobytes of them. Whoever accounts what a program maps, without
//! asking which pages it touched, would take that for memory. So each such mapping bears a mark that such an accountant
//! can see in the call: an offset, which means nothing without a file. (A file that is none would do for the kernel, too, and
//! stops valgrind.)

/// The offset with which this library maps anonymous memory: a multiple of any page. `ledgerline run` does not charge such
/// a mapping.
pub const MARK: libc::off_t = crate::os::MARK;

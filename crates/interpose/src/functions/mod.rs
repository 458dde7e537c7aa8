//! Functions for a library that is preloaded in front of a program's C functions.
//!
//! | module      | contents                                                         |
//! |-------------|------------------------------------------------------------------|
//! | `allocator` | the functions of the next allocator; memory before it is found   |
//! | `objects`   | the loaded objects                                               |
//! | `symbols`   | functions by name, behind the library or in front of it          |
//! | `export`    | C functions that get their caller's address                      |
//!
//! Nothing here allocates, since it is called within `malloc`.

mod allocator;
mod export;
mod objects;
mod symbols;

pub use allocator::{Allocator, early};
pub use objects::{Loaded, find_object, symbol};
pub use symbols::{find, find_each, find_first, own_entry};

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io::Write;

/// Returns the calling thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the C library returns the address of the calling thread's variable.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Bytes of a whole line.
const WHOLE: usize = 256;
/// The prefix of a line.
const BEFORE: &str = "ledgerline: ";
/// Bytes that are left for the text.
pub const LINE: usize = WHOLE - BEFORE.len() - 1;

/// Returns a whole line of up to [`LINE`] bytes, and its length.
pub fn line(text: fmt::Arguments<'_>) -> ([u8; WHOLE], usize) {
    let mut line = [0; WHOLE];
    let mut room = &mut line[..];
    // An error means that the room is used up: the line is cut.
    let _ = writeln!(room, "{BEFORE}{text}");
    let length = WHOLE - room.len();
    (line, length)
}

/// Writes one line to standard error in one piece.
pub fn write_line(text: fmt::Arguments<'_>) {
    let (line, length) = line(text);
    // SAFETY: writes from a buffer on the stack.
    unsafe { libc::write(2, line.as_ptr().cast(), length) };
}

/// Maps `bytes` of new memory, all zeros; `None` without room for it. `more` adds flags.
pub fn anonymous(bytes: usize, protection: c_int, more: c_int) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (place != libc::MAP_FAILED).then_some(place)
}

//! Messages to the user, and the environment, without allocating.

use ledgerline_interpose::write_line;
use std::ffi::CStr;
use std::fmt;
use std::io::Write;

/// Writes one line to standard error in one piece.
pub(crate) fn say(text: &str) {
    write_line(format_args!("recorder: {text}"));
}

/// A path, with zeros behind it.
pub(crate) struct Path([u8; 512]);

impl Path {
    pub(crate) const fn new() -> Path {
        Path([0; 512])
    }

    /// Returns the path of a file in a folder; `None` if it is too long.
    pub(crate) fn below(folder: &[u8], file: fmt::Arguments<'_>) -> Option<Path> {
        let mut path = Path::new();
        let mut room = &mut path.0[..511];
        room.write_all(folder).ok()?;
        write!(room, "/{file}").ok()?;
        Some(path)
    }

    /// Returns the path as a C string.
    pub(crate) fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// Returns a variable of the environment; `None` in a program with more rights than the user who started it.
pub(crate) fn environment(name: &CStr) -> Option<&'static [u8]> {
    unsafe extern "C" {
        fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
    }
    // SAFETY: the C library's function of this type. The name ends in zero; so does the returned text, which is read
    // when the process starts and when it forks.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

//! Words to the user, and the environment, without allocating.

use std::ffi::CStr;

/// Writes one line to standard error in one piece.
pub(crate) fn say(text: &str) {
    let mut line = [0u8; 256];
    let mut length = 0;
    for part in ["ledgerline: recorder: ", text, "\n"] {
        let take = part.len().min(line.len() - length);
        line[length..length + take].copy_from_slice(&part.as_bytes()[..take]);
        length += take;
    }
    // SAFETY: writes from a buffer on the stack.
    unsafe { libc::write(2, line.as_ptr().cast(), length) };
}

/// A path that is put together from a folder, names and numbers.
pub(crate) struct Path {
    bytes: [u8; 512],
    length: usize,
}

impl Path {
    pub(crate) const fn new() -> Path {
        Path { bytes: [0; 512], length: 0 }
    }

    /// The path of a file in a folder.
    pub(crate) fn below(folder: &[u8], file: &str) -> Option<Path> {
        let mut path = Path::new();
        path.push(folder)?.push(b"/")?.push(file.as_bytes())?;
        Some(path)
    }

    /// Adds a part; `None` when the path is too long. The last byte stays zero.
    pub(crate) fn push(&mut self, part: &[u8]) -> Option<&mut Path> {
        let end = self.length + part.len();
        self.bytes[..511].get_mut(self.length..end)?.copy_from_slice(part);
        self.length = end;
        Some(self)
    }

    /// Adds a number in decimal.
    pub(crate) fn push_number(&mut self, number: u64) -> Option<&mut Path> {
        if number >= 10 {
            self.push_number(number / 10)?;
        }
        self.push(&[b'0' + (number % 10) as u8])
    }

    /// The path as C reads it.
    pub(crate) fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// A variable of the environment; `None` in a program that has more rights than the user who started it.
pub(crate) fn environment(name: &CStr) -> Option<&'static [u8]> {
    unsafe extern "C" {
        fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
    }
    // SAFETY: the C library's function of this type. The name ends in zero; what is returned ends in zero, too,
    // and is looked at when the process starts and when it forks.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

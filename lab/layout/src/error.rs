//! The error of this crate: the reason why a file could not be read, in one line.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

/// The reason why a file could not be read: the file, the defect, and the remedy, on one line.
///
/// ```
/// let error = ledgerline_layout::Error::new("the types end in the middle of type 7")
///     .advise("copy the file again")
///     .in_file("/boot/vmlinuz".as_ref());
/// assert_eq!(
///     error.to_string(),
///     "/boot/vmlinuz: the types end in the middle of type 7; copy the file again"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    file: Option<PathBuf>,
    what: String,
    advice: Option<String>,
}

impl Error {
    /// Returns the error for a mistake in a TOML text, with its line.
    pub fn of_toml(text: &str, error: &toml::de::Error) -> Error {
        let what = Error::new(error.message().split_whitespace().collect::<Vec<_>>().join(" "));
        match error.span() {
            Some(span) => what.on_line_of(text, span.start),
            None => what,
        }
    }

    /// Names the line of a text that has the byte at `at`.
    pub fn on_line_of(self, text: &str, at: usize) -> Error {
        let breaks = text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        self.within(format_args!("line {}", breaks + 1))
    }

    /// Returns an error with a message and its place in the file. The message has no full stop.
    pub fn new(what: impl Into<String>) -> Error {
        Error { file: None, what: what.into(), advice: None }
    }

    /// Adds advice. Earlier advice stays.
    pub fn advise(mut self, advice: impl Into<String>) -> Error {
        self.advice.get_or_insert(advice.into());
        self
    }

    /// Adds the part of the file, before the message so far.
    pub fn within(mut self, part: impl fmt::Display) -> Error {
        self.what = format!("{part}: {}", self.what);
        self
    }

    /// Adds the file. A file that was named earlier stays.
    pub fn in_file(mut self, file: &Path) -> Error {
        self.file.get_or_insert_with(|| file.to_path_buf());
        self
    }

    /// Returns the file, if one was named.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            safe(f, &file.to_string_lossy())?;
            f.write_str(": ")?;
        }
        safe(f, &self.what)?;
        if let Some(advice) = &self.advice {
            f.write_str("; ")?;
            safe(f, advice)?;
        }
        Ok(())
    }
}

/// Writes a text in one line. Names come from untrusted files, so nothing in them may break the line or control a
/// terminal.
pub(crate) fn safe(out: &mut impl Write, text: &str) -> fmt::Result {
    // Controls beyond ASCII begin with the byte 0xc2.
    if !text.bytes().any(|byte| byte < b' ' || byte == 0x7f || byte == 0xc2) {
        return out.write_str(text);
    }
    text.chars().try_for_each(|character| {
        if character.is_control() {
            write!(out, "{}", character.escape_default())
        } else {
            out.write_char(character)
        }
    })
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_the_names_in_it() {
        let error = Error::new("struct a\nb\x1b[2J is cut off").in_file(Path::new("x\ny"));
        assert_eq!(error.to_string(), "x\\ny: struct a\\nb\\u{1b}[2J is cut off");
    }

    #[test]
    fn the_first_file_and_the_first_advice_stay() {
        let error = Error::new("no types").in_file(Path::new("inner")).advise("first");
        let error = error.in_file(Path::new("outer")).advise("second");
        assert_eq!(error.to_string(), "inner: no types; first");
        assert_eq!(error.file(), Some(Path::new("inner")));
    }
}

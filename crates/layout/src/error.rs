//! Why a file's types could not be read.

use std::fmt;
use std::path::{Path, PathBuf};

/// What a reader refuses, in one line: the file, where in it, what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    file: PathBuf,
    place: Option<String>,
    reason: String,
    advice: Option<String>,
}

impl Error {
    /// That `file` cannot be read, because of `reason`.
    pub fn new(file: impl AsRef<Path>, reason: impl Into<String>) -> Error {
        let file = file.as_ref().to_path_buf();
        Error { file, place: None, reason: reason.into(), advice: None }
    }

    /// Says where in the file: a section, an offset, a type's number.
    pub fn at(self, place: impl Into<String>) -> Error {
        Error { place: Some(place.into()), ..self }
    }

    /// Says what to do about it.
    pub fn advise(self, advice: impl Into<String>) -> Error {
        Error { advice: Some(advice.into()), ..self }
    }

    /// The file that could not be read.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.file.display())?;
        if let Some(place) = &self.place {
            write!(out, "{place}: ")?;
        }
        out.write_str(&self.reason)?;
        if let Some(advice) = &self.advice {
            write!(out, "; {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_all_that_is_known() {
        let error =
            Error::new("a.out", "ends too early").at(".debug_info at 0x10").advise("rebuild it");
        assert_eq!(error.to_string(), "a.out: .debug_info at 0x10: ends too early; rebuild it");
        assert_eq!(Error::new("a.out", "is empty").to_string(), "a.out: is empty");
    }
}

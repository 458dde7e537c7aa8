//! Short TOML files that people write: machines and published cases. They are read strictly, with an error of one
//! line for each mistake. Some are built in and have names.

use serde::de::DeserializeOwned;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Result as Io};

/// A file that cannot be used; prints as `file:line: reason`, or `file: reason` where there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// The name that the caller gave.
    pub file: String,
    /// The line, counted from one; zero where the file could not be read at all.
    pub line: usize,
    /// The mistake and the expected form, in one line.
    pub reason: String,
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.reason),
            line => write!(f, "{}:{line}: {}", self.file, self.reason),
        }
    }
}

impl std::error::Error for BadFile {}

/// The largest size of a file, which is a page of text. A longer file is something else.
const LONGEST: usize = 1 << 20;

/// A sort of these files.
pub(crate) struct Sort {
    /// The thing that a file describes.
    pub what: &'static str,
    /// The name of such a file, with its article.
    pub called: &'static str,
    /// The names and the texts of the built-in files.
    pub built_in: &'static [(&'static str, &'static str)],
}

impl Sort {
    /// Returns the built-in name and text for `name`.
    pub(crate) fn built_in(&self, name: &str) -> Option<&'static (&'static str, &'static str)> {
        self.built_in.iter().find(|(built_in, _)| *built_in == name)
    }

    /// Reads a file, which [`Sort::parse`] takes apart.
    pub(crate) fn read(&self, path: &str) -> Result<String, BadFile> {
        let read = || -> Io<String> {
            let mut text = String::new();
            // Reads one byte more than the longest permitted file, so that `parse` sees an overlong one.
            File::open(path)?.take(LONGEST as u64 + 1).read_to_string(&mut text)?;
            Ok(text)
        };
        read().map_err(|error| {
            let reason = if error.kind() == ErrorKind::NotFound {
                let names: Vec<&str> = self.built_in.iter().map(|(name, _)| *name).collect();
                let (what, names) = (self.what, names.join(", "));
                format!("no such file, and no {what} comes with this name: {names}")
            } else {
                format!("cannot be read as {}: {error}", self.called)
            };
            BadFile { file: path.to_owned(), line: 0, reason }
        })
    }

    /// Parses the text of a file and makes a value of it, or complains about a place in the text.
    pub(crate) fn parse<D: DeserializeOwned, T>(
        &self,
        name: &str,
        text: &str,
        make: impl FnOnce(D) -> Result<T, Complaint>,
    ) -> Result<T, BadFile> {
        let parsed = || {
            if text.len() > LONGEST {
                let called = self.called;
                return complain(0, format!("over {LONGEST} bytes; {called} has a few thousand"));
            }
            let document = toml::from_str(text).map_err(|error| {
                let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
                (error.span().map_or(0, |span| span.start), reason)
            })?;
            make(document)
        };
        parsed().map_err(|(at, reason)| BadFile {
            file: name.to_owned(),
            line: 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count(),
            reason,
        })
    }
}

/// The place of a mistake in the text, and the mistake.
pub(crate) type Complaint = (usize, String);

pub(crate) fn complain<T>(at: usize, reason: impl Into<String>) -> Result<T, Complaint> {
    Err((at, reason.into()))
}

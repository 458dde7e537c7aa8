//! The journal of the wrappers: each call writes its page in one piece, and it is read when the build is over.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) const COMPILED: u8 = b'c';
pub(super) const LINKED: u8 = b'l';
/// An object without probes that was linked.
pub(super) const STALE: u8 = b's';
pub(super) const NOTE: u8 = b'n';

/// The entries of one call of a compiler.
#[derive(Default)]
pub(super) struct Page(Vec<u8>);

impl Page {
    /// Adds an entry: a letter, text, and a terminating zero, which no path contains.
    pub fn add(&mut self, entry: u8, text: impl AsRef<OsStr>) {
        self.0.push(entry);
        self.0.extend(text.as_ref().as_bytes());
        self.0.push(0);
    }

    /// Appends the page to the journal in one write, so that concurrent calls do not mix.
    pub fn write(&self, journal: &Path) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        OpenOptions::new().append(true).create(true).open(journal)?.write_all(&self.0)
    }
}

/// The result of a build with wrappers.
#[derive(Debug, Default)]
pub struct Built {
    /// Objects that were compiled with probes and still exist, which leaves out the attempts of `configure`.
    pub compiled: usize,
    /// Programs and libraries that were linked with the recorder's library and still exist.
    pub linked: BTreeSet<PathBuf>,
    /// Objects that were linked without probes; `archive(member)` for those of archives.
    pub stale: BTreeSet<String>,
    /// Other messages, a sentence each.
    pub notes: BTreeSet<String>,
}

impl Built {
    /// Reads a journal. Without a journal, no compiler was called.
    pub(super) fn read(journal: &Path) -> io::Result<Built> {
        let bytes = match std::fs::read(journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut built = Built::default();
        let mut compiled = BTreeSet::new();
        for entry in bytes.split(|&byte| byte == 0) {
            let Some((&letter, text)) = entry.split_first() else { continue };
            let path = PathBuf::from(OsStr::from_bytes(text));
            let words = || String::from_utf8_lossy(text).into_owned();
            match letter {
                COMPILED if path.exists() => drop(compiled.insert(path)),
                // cmake does not remove its attempts.
                LINKED if path.iter().any(|part| part == "CMakeFiles") => {}
                LINKED if path.exists() => drop(built.linked.insert(path)),
                STALE => drop(built.stale.insert(words())),
                NOTE => drop(built.notes.insert(words())),
                _ => {}
            }
        }
        built.compiled = compiled.len();
        Ok(built)
    }

    /// Returns whether a program or library was linked in this build, under any name.
    #[must_use]
    pub fn has_linked(&self, file: &Path) -> bool {
        let real = file.canonicalize().ok();
        self.linked.iter().any(|linked| linked == file || linked.canonicalize().ok() == real)
    }
}

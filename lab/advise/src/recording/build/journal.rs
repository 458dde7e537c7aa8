//! What wrappers did, written by each in one piece and read when the build is over.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) const COMPILED: u8 = b'c';
pub(super) const LINKED: u8 = b'l';
/// An object without probes was linked.
pub(super) const STALE: u8 = b's';
pub(super) const NOTE: u8 = b'n';

/// What one call of a compiler did.
#[derive(Default)]
pub(super) struct Page(Vec<u8>);

impl Page {
    /// Adds an entry: a letter and text, and a zero at the end, which no path has.
    pub fn add(&mut self, entry: u8, text: impl AsRef<OsStr>) {
        self.0.push(entry);
        self.0.extend(text.as_ref().as_bytes());
        self.0.push(0);
    }

    /// Adds it to the journal in one write, so that calls that run side by side do not mix.
    pub fn write(&self, journal: &Path) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        OpenOptions::new().append(true).create(true).open(journal)?.write_all(&self.0)
    }
}

/// What a build did through the wrappers.
#[derive(Debug, Default)]
pub struct Built {
    /// Objects that were compiled with probes and are still there: not what `configure` tried.
    pub compiled: usize,
    /// Programs and libraries that were linked with the recorder's library and are still there.
    pub linked: BTreeSet<PathBuf>,
    /// Objects that were linked and have no probes; `archive(member)` for those of archives.
    pub stale: BTreeSet<String>,
    /// What else there is to say, a sentence each.
    pub notes: BTreeSet<String>,
}

impl Built {
    /// Reads a journal. Where there is none, no compiler was called.
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
                // cmake leaves what it tried.
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

    /// Whether a program or library was linked in this build, whatever it is called.
    #[must_use]
    pub fn has_linked(&self, file: &Path) -> bool {
        let real = file.canonicalize().ok();
        self.linked.iter().any(|linked| linked == file || linked.canonicalize().ok() == real)
    }
}

//! What wrappers did, written by each in one piece and read when the build is over.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries are a letter and text, and end with a zero, which no path has.
#[derive(Clone, Copy)]
enum Entry {
    Compiled = b'c' as isize,
    Linked = b'l' as isize,
    Stale = b's' as isize,
    Note = b'n' as isize,
}

/// What one call of a compiler did.
#[derive(Default)]
pub(super) struct Page(Vec<u8>);

impl Page {
    fn add(&mut self, entry: Entry, text: &[u8]) {
        self.0.push(entry as u8);
        self.0.extend(text);
        self.0.push(0);
    }

    pub fn compiled(&mut self, object: &Path) {
        self.add(Entry::Compiled, object.as_os_str().as_bytes());
    }

    pub fn linked(&mut self, file: &Path) {
        self.add(Entry::Linked, file.as_os_str().as_bytes());
    }

    /// An object without probes was linked.
    pub fn stale(&mut self, object: &OsStr) {
        self.add(Entry::Stale, object.as_bytes());
    }

    pub fn note(&mut self, note: &str) {
        self.add(Entry::Note, note.as_bytes());
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
                b'c' if path.exists() => drop(compiled.insert(path)),
                // cmake leaves what it tried.
                b'l' if path.iter().any(|part| part == "CMakeFiles") => {}
                b'l' if path.exists() => drop(built.linked.insert(path)),
                b's' => drop(built.stale.insert(words())),
                b'n' => drop(built.notes.insert(words())),
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

//! For systems on which no ledger can be announced.

use std::fs::File;
use std::io;
use std::path::Path;

/// A folder that cannot exist.
#[derive(Debug)]
pub(super) enum Folder {}

/// Returns no folder.
pub(super) fn existing() -> Vec<Folder> {
    Vec::new()
}

/// Returns an error that names the missing feature.
pub(super) fn make() -> io::Result<Folder> {
    Err(crate::os::lacks(
        "announced ledgers need the folders and mappings of a Unix, which are not there",
        "keep the ledger in memory (`LedgerBuilder::anonymous`)",
    ))
}

impl Folder {
    pub(super) fn path(&self) -> &Path {
        match *self {}
    }

    pub(super) fn names(&self) -> Vec<String> {
        match *self {}
    }

    pub(super) fn open(&self, _: &str) -> Option<File> {
        match *self {}
    }

    pub(super) fn create(&self, _: &str) -> io::Result<File> {
        match *self {}
    }

    pub(super) fn remove(&self, _: &str) {
        match *self {}
    }
}

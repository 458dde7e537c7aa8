//! Folders to work in, that nobody else has a hand in.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names that are tried for a folder, at most.
const NAMES: u32 = 100;

/// Makes a folder that was not there before, for this user alone, where temporary files go: in one that
/// somebody else had waiting under this name, what is put there could be exchanged before it is used. The path
/// is absolute, for programs that work elsewhere; whoever asked removes it.
///
/// # Errors
/// The folder cannot be made, or too many of its names are taken.
pub fn make(what_for: &str) -> io::Result<PathBuf> {
    make_in(&std::path::absolute(std::env::temp_dir())?, what_for, std::process::id())
}

fn make_in(parent: &Path, what_for: &str, process: u32) -> io::Result<PathBuf> {
    for number in 0..NAMES {
        let folder = parent.join(format!("ledgerline-{what_for}-{process}-{number}"));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_was_there_before_is_not_used() {
        let parent = make("folder-test").unwrap();
        let first = make_in(&parent, "test", 7).unwrap();
        let second = make_in(&parent, "test", 7).unwrap();
        assert_ne!(first, second);
        assert_eq!(second.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for number in 2..NAMES {
            std::fs::create_dir(parent.join(format!("ledgerline-test-7-{number}"))).unwrap();
        }
        assert_eq!(make_in(&parent, "test", 7).unwrap_err().kind(), ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(&parent).unwrap();
    }
}

//! Folders to work in, that nobody else has a hand in.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use tempfile::Builder;

pub use tempfile::TempDir;

/// Makes a folder that was not there before, for this user alone, where temporary files go: in one that
/// somebody else had waiting under this name, what is put there could be exchanged before it is used. The path
/// is absolute, for programs that work elsewhere. The folder goes with this value.
///
/// # Errors
/// The folder cannot be made.
pub fn make(what_for: &str) -> io::Result<TempDir> {
    Builder::new()
        .prefix(&format!("ledgerline-{what_for}-"))
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(std::path::absolute(std::env::temp_dir())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_is_new_and_for_this_user_alone_and_goes() {
        let (first, second) = (make("test").unwrap(), make("test").unwrap());
        assert_ne!(first.path(), second.path());
        assert!(second.path().is_absolute());
        assert_eq!(second.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let path = second.path().to_owned();
        std::fs::write(path.join("file"), "text").unwrap();
        drop(second);
        assert!(!path.exists() && first.path().exists());
    }
}

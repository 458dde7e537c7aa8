//! Working folders, protected from other users.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::Builder;

pub use tempfile::TempDir;

/// Makes a new folder for this user alone, among temporary files. It must be new: in a folder that another user had
/// prepared under this name, files could be exchanged before they are used. The path is absolute, for programs with
/// another working directory. The folder is removed when this value is dropped.
///
/// # Errors
/// The folder cannot be made.
pub fn make(what_for: &str) -> io::Result<TempDir> {
    Builder::new()
        .prefix(&format!("ledgerline-{what_for}-"))
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(std::path::absolute(std::env::temp_dir())?)
}

/// A folder that has the same path each time, and is removed when this value is dropped.
#[derive(Debug)]
pub struct Again {
    path: PathBuf,
    /// Held while the folder is in use.
    _lock: Option<File>,
    /// A new folder, if another user has the path.
    new: Option<TempDir>,
}

impl Again {
    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.new.as_ref().map_or(&self.path, TempDir::path)
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        if self.new.is_none() {
            // If that fails, the next user of the path empties it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes an empty folder for this user alone, whose path depends only on the purpose and `of`: for programs that
/// remember the path, and are started again. If another process uses it now, or another user has the path, this is a
/// new folder like that of [`make`].
///
/// # Errors
/// The folder cannot be made.
pub fn again(what_for: &str, of: &OsStr) -> io::Result<Again> {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    // A new folder has this process's user, which the standard library does not report.
    let new = make(what_for)?;
    let (user, hash) = (new.path().metadata()?.uid(), hasher.finish());
    let path = new.path().with_file_name(format!("ledgerline-{what_for}-{user}-{hash:016x}"));
    Ok(match hold(&path, user) {
        Some(lock) => Again { path, _lock: Some(lock), new: None },
        None => Again { path, _lock: None, new: Some(new) },
    })
}

/// Returns the lock of a folder, once it is this process's and empty.
fn hold(path: &Path, user: u32) -> Option<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.ok()?,
    }
    // A link, or a folder that another user had prepared, could be exchanged.
    let found = path.symlink_metadata().ok()?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o777 != 0o700 {
        return None;
    }
    let name = path.join("lock");
    let lock = OpenOptions::new().create(true).write(true).truncate(false).open(&name).ok()?;
    lock.try_lock().ok()?;
    // The previous owner may have removed it in between.
    if name.symlink_metadata().ok()?.ino() != lock.metadata().ok()?.ino() {
        return None;
    }
    for entry in fs::read_dir(path).ok()?.flatten().filter(|entry| entry.file_name() != "lock") {
        let of_folder = entry.file_type().ok()?.is_dir();
        if of_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) }
            .ok()?;
    }
    Some(lock)
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

    #[test]
    fn a_folder_comes_again_empty_and_never_twice_at_once() {
        let of = format!("{:?}", std::thread::current().id());
        let ask = || again("test", of.as_ref()).unwrap();
        let (first, second) = (ask(), ask());
        let path = first.path().to_owned();
        assert_ne!(path, second.path());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let other = second.path().to_owned();
        drop((first, second));
        assert!(!path.exists() && !other.exists());
        // The state that a killed process leaves.
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(path.join("folder")).unwrap();
        fs::write(path.join("folder/file"), "text").unwrap();
        let third = ask();
        assert_eq!(third.path(), path);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "but for the lock");
        drop(third);
        // The state that another user may leave.
        std::os::unix::fs::symlink("/", &path).unwrap();
        assert_ne!(ask().path(), path);
        fs::remove_file(&path).unwrap();
    }
}

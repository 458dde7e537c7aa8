//! Folders to work in, that nobody else has a hand in.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
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

/// A folder that has the same path each time, and goes with this value.
#[derive(Debug)]
pub struct Again {
    path: PathBuf,
    /// Held while the folder is in use.
    _lock: Option<File>,
    /// Where somebody else had the path, a new folder.
    new: Option<TempDir>,
}

impl Again {
    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.new.as_ref().map_or(&self.path, TempDir::path)
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        if self.new.is_none() {
            // Where that fails, the next who asks for the path empties it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes an empty folder for this user alone, whose path is the same whenever `of` is: for programs that remember the
/// path, and are started again. Where another process uses it now, or another user has the path, this is a new
/// folder as of [`make`].
///
/// # Errors
/// The folder cannot be made.
pub fn again(what_for: &str, of: &OsStr) -> io::Result<Again> {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    // A new folder has this process's user, whom the standard library does not tell.
    let new = make(what_for)?;
    let (user, hash) = (new.path().metadata()?.uid(), hasher.finish());
    let path = new.path().with_file_name(format!("ledgerline-{what_for}-{user}-{hash:016x}"));
    Ok(match hold(&path, user) {
        Some(lock) => Again { path, _lock: Some(lock), new: None },
        None => Again { path, _lock: None, new: Some(new) },
    })
}

/// The lock of a folder, once it is this process's and empty.
fn hold(path: &Path, user: u32) -> Option<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.ok()?,
    }
    // A link, or a folder that another user had waiting, could be exchanged.
    let found = path.symlink_metadata().ok()?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o777 != 0o700 {
        return None;
    }
    let name = path.join("lock");
    let lock = OpenOptions::new().create(true).write(true).truncate(false).open(&name).ok()?;
    lock.try_lock().ok()?;
    // Whoever had it before may have removed it in between.
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
        // As a process leaves it that was killed.
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(path.join("folder")).unwrap();
        fs::write(path.join("folder/file"), "text").unwrap();
        let third = ask();
        assert_eq!(third.path(), path);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "but for the lock");
        drop(third);
        // As somebody else may leave it.
        std::os::unix::fs::symlink("/", &path).unwrap();
        assert_ne!(ask().path(), path);
        fs::remove_file(&path).unwrap();
    }
}

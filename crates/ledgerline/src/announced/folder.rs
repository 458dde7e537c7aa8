//! The folders of announced ledgers. Each belongs to this user alone, and is accessed by a descriptor, so that no other
//! folder can be put in its place between the check of its owner and its use. In a folder that all users share, another
//! user may have taken the usual name first. Then the folder's name has further letters, and readers identify it by its
//! owner.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A folder that belongs to this user alone.
#[derive(Debug)]
pub(super) struct Folder {
    opened: File,
    path: PathBuf,
}

/// A possible location of a folder.
struct Place {
    parent: PathBuf,
    leaf: String,
    /// Whether the parent must be this user's, too. Otherwise all users may create folders there, and none may remove
    /// another's.
    own_parent: bool,
}

/// How many folders with further letters are examined, those of all users counted.
const LOOKS: usize = 4096;
/// How many random names are tried to find an unused one.
const TRIES: usize = 16;

/// Returns the effective user of this process.
fn user() -> u32 {
    // SAFETY: it has no preconditions.
    unsafe { libc::geteuid() }
}

/// Returns the locations, the best first.
fn places() -> Vec<Place> {
    let user = user();
    let own = |parent: PathBuf| Place { parent, leaf: "ledgerline".to_owned(), own_parent: true };
    let shared = |parent: &str| Place {
        parent: parent.into(),
        leaf: format!("ledgerline-{user}"),
        own_parent: false,
    };
    let told = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let mut places: Vec<Place> =
        told.into_iter().filter(|path| path.is_absolute()).map(own).collect();
    if places.iter().all(|place| place.parent != usual) {
        places.push(own(usual));
    }
    places.extend(["/dev/shm", "/tmp"].map(shared));
    places
}

/// Returns the existing folders of all locations, since a program may have been started with another environment.
pub(super) fn existing() -> Vec<Folder> {
    places().iter().flat_map(Place::existing).collect()
}

/// Returns the first folder that exists or can be created.
pub(super) fn make() -> io::Result<Folder> {
    let mut told = Vec::new();
    for place in places() {
        match place.make() {
            Ok(folder) => return Ok(folder),
            Err(error) => told.push(format!("{}: {error}", place.parent.display())),
        }
    }
    let told = told.join("; ");
    let why = format!(
        "there is no folder to announce a ledger in ({told}): set XDG_RUNTIME_DIR to a folder of yours"
    );
    Err(io::Error::new(io::ErrorKind::NotFound, why))
}

fn refused<T>(why: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

impl Place {
    /// Opens the parent folder, and checks its owner and mode.
    fn open_parent(&self) -> io::Result<File> {
        // The system's own folders may be links: `/dev/shm` is one on some systems.
        let parent = open_at(libc::AT_FDCWD, self.parent.as_os_str(), FOLDER)?;
        let metadata = parent.metadata()?;
        let sticky = metadata.mode() & STICKY != 0;
        let open_to_all = metadata.mode() & 0o022 != 0;
        let trusted = metadata.uid() == user() || metadata.uid() == 0;
        if self.own_parent && (metadata.uid() != user() || open_to_all) {
            return refused("it is not this user's alone");
        }
        if !self.own_parent && (!trusted || open_to_all && !sticky) {
            return refused("others may take away what lies there");
        }
        Ok(parent)
    }

    /// Opens a folder of that name, if it belongs to this user alone.
    fn open(&self, parent: &File, leaf: &str) -> io::Result<Folder> {
        let opened = open_at(parent.as_raw_fd(), leaf.as_ref(), FOLDER | libc::O_NOFOLLOW)?;
        let metadata = opened.metadata()?;
        if metadata.uid() != user() || metadata.permissions().mode() & 0o077 != 0 {
            return refused(&format!("{leaf} in it is not this user's alone"));
        }
        Ok(Folder { opened, path: self.parent.join(leaf) })
    }

    /// Creates a folder of that name. An existing one is not an error.
    fn make_at(parent: &File, leaf: &str) -> io::Result<()> {
        let leaf = c_string(leaf.as_ref())?;
        // SAFETY: creates a folder in an open one; the name ends in zero.
        unsafe { libc::mkdirat(parent.as_raw_fd(), leaf.as_ptr(), 0o700) };
        Ok(())
    }

    /// Returns this user's existing folders.
    fn existing(&self) -> Vec<Folder> {
        let Ok(parent) = self.open_parent() else { return Vec::new() };
        let usual = self.open(&parent, &self.leaf).into_iter();
        usual.chain(self.others(&parent)).collect()
    }

    /// Returns those whose names have further letters.
    fn others(&self, parent: &File) -> Vec<Folder> {
        if self.own_parent {
            return Vec::new();
        }
        let prefix = format!("{}-", self.leaf);
        let names = names(parent).filter(|name| name.starts_with(&prefix)).take(LOOKS);
        names.filter_map(|name| self.open(parent, &name).ok()).collect()
    }

    /// Returns the folder, and creates it if it does not exist.
    fn make(&self) -> io::Result<Folder> {
        let parent = self.open_parent()?;
        Place::make_at(&parent, &self.leaf)?;
        let refusal = match self.open(&parent, &self.leaf) {
            Ok(folder) => return Ok(folder),
            Err(refusal) if self.own_parent => return Err(refusal),
            Err(refusal) => refusal,
        };
        // Another user took the usual name first. An unused name is still available.
        if let Some(folder) = self.others(&parent).into_iter().next() {
            return Ok(folder);
        }
        for _ in 0..TRIES {
            let number = RandomState::new().build_hasher().finish();
            let leaf = format!("{}-{number:016x}", self.leaf);
            Place::make_at(&parent, &leaf)?;
            if let Ok(folder) = self.open(&parent, &leaf) {
                return Ok(folder);
            }
        }
        Err(refusal)
    }
}

/// Returns the names in a folder that are UTF-8.
fn names(folder: &File) -> impl Iterator<Item = String> {
    // By the descriptor, since the path may lead to another folder by now.
    let entries = Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).read_dir();
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name: OsString| String::from_utf8(name.into_vec()).ok())
}

/// In a sticky folder, users may remove only their own files. The constant's type differs between systems.
#[allow(clippy::unnecessary_cast, reason = "as said")]
const STICKY: u32 = libc::S_ISVTX as u32;

const FOLDER: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY;

fn c_string(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn open_at(folder: i32, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
    let name = c_string(name)?;
    // SAFETY: opens a path that ends in zero; the descriptor is ours.
    unsafe {
        let opened = libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC, 0o600);
        if opened < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(opened)) }
    }
}

impl Folder {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names in it that are UTF-8.
    pub(super) fn names(&self) -> Vec<String> {
        names(&self.opened).collect()
    }

    /// Opens a file of this user for reading.
    pub(super) fn open(&self, name: &str) -> Option<File> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = open_at(self.opened.as_raw_fd(), name.as_ref(), flags).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.is_file() && metadata.uid() == user()).then_some(file)
    }

    /// Creates a file that only this user may open.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        open_at(self.opened.as_raw_fd(), name.as_ref(), flags)
    }

    pub(super) fn remove(&self, name: &str) {
        if let Ok(name) = c_string(name.as_ref()) {
            // SAFETY: removes a file from an open folder; the name ends in zero.
            unsafe { libc::unlinkat(self.opened.as_raw_fd(), name.as_ptr(), 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{chown, symlink};

    fn place(parent: &Path, own_parent: bool) -> Place {
        Place { parent: parent.to_owned(), leaf: "leaf".to_owned(), own_parent }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_this_users_alone_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        assert!(place(parent, true).existing().is_empty(), "it is not made to be listed");
        let folder = place(parent, true).make().unwrap();
        assert_eq!(folder.opened.metadata().unwrap().mode() & 0o777, 0o700);

        mode(&parent.join("leaf"), 0o755);
        assert!(place(parent, true).make().is_err(), "others may look into it");
        mode(&parent.join("leaf"), 0o700);
        mode(parent, 0o777);
        assert!(place(parent, true).make().is_err(), "others may put another in its place");
        assert!(place(parent, false).make().is_err());
        mode(parent, 0o1777);
        assert!(place(parent, false).make().is_ok(), "as in /tmp");
        assert!(place(parent, true).make().is_err());
        mode(parent, 0o700);
        if user() == 0 {
            chown(parent.join("leaf"), Some(4711), None).unwrap();
            assert!(place(parent, true).make().is_err(), "somebody else's");
        }
    }

    #[test]
    fn another_user_who_has_the_usual_name_in_a_shared_folder_keeps_nobody_from_a_folder() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        mode(parent, 0o1777);
        // A folder that others may read is treated like one of another user, which only root could create here.
        let usual = parent.join("leaf");
        fs::create_dir(&usual).unwrap();
        mode(&usual, 0o755);
        if user() == 0 {
            chown(&usual, Some(4711), None).unwrap();
        }
        for taken in ["leaf-0", "leaf-1"] {
            symlink("/", parent.join(taken)).unwrap();
        }
        let made = place(parent, false).make().unwrap();
        assert_ne!(made.path(), usual);
        assert_eq!(made.opened.metadata().unwrap().mode() & 0o777, 0o700);
        made.create("file").unwrap();
        let again = place(parent, false).make().unwrap();
        assert_eq!(again.path(), made.path(), "one is enough");
        let found = place(parent, false).existing();
        let paths: Vec<_> = found.iter().map(Folder::path).collect();
        assert_eq!(paths, [made.path()], "and those who watch find it");
        assert_eq!(found[0].names(), ["file"]);
    }

    #[test]
    fn no_link_is_followed() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        mode(elsewhere.path(), 0o700);
        symlink(elsewhere.path(), parent.path().join("leaf")).unwrap();
        assert!(place(parent.path(), true).make().is_err());

        let folder = place(elsewhere.path(), true).make().unwrap();
        let secret = elsewhere.path().join("secret");
        fs::write(&secret, "x").unwrap();
        symlink(&secret, folder.path().join("link")).unwrap();
        assert!(folder.open("link").is_none() && folder.create("link").is_err());
        folder.remove("link");
        assert!(secret.exists() && folder.names().is_empty());
    }
}

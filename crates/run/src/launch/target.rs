//! Files that are checked before the program starts and written after it.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use super::failure::Failure;

/// A place that was found to be writable.
#[derive(Debug)]
pub struct Target {
    option: &'static str,
    name: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Stdout,
    /// A device or a pipe, open already.
    Stream(File),
    /// A file in a directory that accepts no new names: emptied and written.
    InPlace(File),
    /// A file, replaced atomically by renaming a finished one over it, so that no reader sees half an account.
    Replace(PathBuf),
}

impl Target {
    /// Checks that `file` can be written, without changing its content.
    pub fn check(option: &'static str, file: &OsStr) -> Result<Target, Failure> {
        let name = PathBuf::from(file);
        let kind = if file == "-" { Ok(Kind::Stdout) } else { Target::open(&name) };
        match kind {
            Ok(kind) => Ok(Target { option, name, kind }),
            Err(error) => Err(Failure::usage(format!(
                "{option}: {name:?} cannot be written ({error}); \
                 name a file in a directory that exists and is yours"
            ))),
        }
    }

    fn open(name: &Path) -> std::io::Result<Kind> {
        // Names such as /dev/stdout and /dev/fd/3 stand for a descriptor that other processes write to as well, even if
        // a file lies behind it.
        let descriptor = name.starts_with("/dev") || name.starts_with("/proc");
        match name.metadata() {
            Ok(_) if descriptor => Ok(Kind::Stream(OpenOptions::new().append(true).open(name)?)),
            Ok(found) if found.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
            Ok(found) if found.is_file() => {
                // Opening for appending checks the permission and writes nothing.
                let file = OpenOptions::new().append(true).open(name)?;
                // The account is written through a symbolic link, not over it.
                let path = name.canonicalize()?;
                match neighbour(&path, NEW) {
                    Ok(_) => Ok(Kind::Replace(path)),
                    Err(_) => Ok(Kind::InPlace(file)),
                }
            }
            Ok(_) => Ok(Kind::Stream(OpenOptions::new().write(true).open(name)?)),
            Err(_) if name.file_name().is_none() => Err(std::io::ErrorKind::InvalidInput.into()),
            Err(_) => {
                neighbour(name, NEW)?;
                Ok(Kind::Replace(name.to_owned()))
            }
        }
    }

    /// Returns whether writing here replaces a file: it is the only one with that name, or will be. Devices, pipes and
    /// standard output have room for all.
    #[must_use]
    pub fn is_over(&self, file: &Path) -> bool {
        match &self.kind {
            Kind::Stdout | Kind::Stream(_) => false,
            Kind::InPlace(_) => is_one(&self.name, file),
            Kind::Replace(path) => is_one(path, file),
        }
    }

    /// Writes all of `bytes`, or nothing if the file can be replaced and writing fails.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &self.kind {
            Kind::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Kind::Stream(file) => write_all(file, bytes),
            Kind::InPlace(file) => file.set_len(0).and_then(|()| write_all(file, bytes)),
            Kind::Replace(path) => replace(path, bytes, None),
        };
        written.map_err(|error| {
            Failure::internal(format!("{}: writing {:?} failed: {error}", self.option, self.name))
        })
    }
}

/// Returns whether two paths lead to one file, which need not exist yet.
#[must_use]
pub fn is_one(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => place(one).is_some_and(|one| place(other) == Some(one)),
        _ => false,
    }
}

/// Returns the place of a new file: its folder, and its name there.
fn place(path: &Path) -> Option<(PathBuf, &OsStr)> {
    Some((folder(path).canonicalize().ok()?, path.file_name()?))
}

/// Returns the folder that a file lies in.
fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// The permissions of any new file: the umask reduces them.
const NEW: u32 = 0o666;

/// Makes a file beside `path` that replaces it once it is written; it is removed if it is dropped before.
fn neighbour(path: &Path, mode: u32) -> std::io::Result<NamedTempFile> {
    Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(folder(path))
}

fn write_all(mut file: &File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes)
}

/// Writes a file that is visible only when complete, with these permissions, or those that it had before.
pub(crate) fn replace(
    path: &Path,
    bytes: &[u8],
    permissions: Option<Permissions>,
) -> std::io::Result<()> {
    // No other process may open it for writing before it has its final permissions.
    let mut file = neighbour(path, permissions.as_ref().map_or(NEW, |_| 0o600))?;
    file.write_all(bytes)?;
    let before = || path.metadata().ok().map(|old| old.permissions());
    if let Some(permissions) = permissions.or_else(before) {
        file.as_file().set_permissions(permissions)?;
    }
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("ledgerline-output-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_check_leaves_no_trace() {
        let directory = directory("check");
        let new = directory.join("new.json");
        Target::check("--json", new.as_os_str()).unwrap();
        assert!(!new.exists());
        let old = directory.join("old.json");
        std::fs::write(&old, "kept").unwrap();
        Target::check("--json", old.as_os_str()).unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn two_names_of_one_file_are_one_whether_it_is_there_or_not() {
        let directory = directory("one");
        let [file, link] = ["file", "link"].map(|name| directory.join(name));
        let roundabout = directory.join("../").join(directory.file_name().unwrap()).join("file");
        assert!(is_one(&file, &roundabout) && !is_one(&file, &link));
        std::fs::write(&file, "").unwrap();
        assert!(is_one(&file, &roundabout) && !is_one(&file, &link));
        std::fs::hard_link(&file, &link).unwrap();
        assert!(is_one(&file, &link));
        let target = Target::check("--json", link.as_os_str()).unwrap();
        assert!(target.is_over(&file) && !target.is_over(&directory.join("other")));
        assert!(!Target::check("--json", OsStr::new("-")).unwrap().is_over(Path::new("-")));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_is_to_have_permissions_is_its_owners_alone_until_it_is_whole() {
        let directory = directory("alone");
        let (kept, bytes) = (directory.join("kept"), vec![1; 16 << 20]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut seen = false;
        while !seen {
            assert!(std::time::Instant::now() < deadline, "no file was seen while it was written");
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    replace(&kept, &bytes, Some(Permissions::from_mode(0o755))).unwrap();
                });
                while !writer.is_finished() {
                    let files = std::fs::read_dir(&directory).unwrap().flatten();
                    // An entry without metadata was renamed to the final file since the listing.
                    for found in files.filter_map(|file| file.metadata().ok()) {
                        let whole = found.len() == bytes.len() as u64;
                        let expected = if whole { [0o600, 0o755] } else { [0o600; 2] };
                        assert!(expected.contains(&(found.mode() & 0o7777)), "{:o}", found.mode());
                        seen |= !whole;
                    }
                }
            });
            assert_eq!(kept.metadata().unwrap().mode() & 0o7777, 0o755);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_link_is_followed_and_a_mode_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let directory = directory("link");
        let (real, link) = (directory.join("real"), directory.join("link"));
        std::fs::write(&real, "a long text that was there before").unwrap();
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        Target::check("--json", link.as_os_str()).unwrap().write(b"new").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_refused_at_once() {
        for name in ["/nonexistent/x.json", "/", "", "/dev/null/x"] {
            let failure = Target::check("--json", OsStr::new(name)).unwrap_err();
            assert_eq!(failure.code(), 2, "{name:?}");
            assert!(failure.message().starts_with("--json: "), "{failure:?}");
        }
    }

    #[test]
    fn a_device_is_written_in_place() {
        Target::check("--json", OsStr::new("/dev/null")).unwrap().write(b"gone").unwrap();
    }
}

//! The place of a library while programs are started with it.
//!
//! ```text
//! put(name, bytes)     for each place, until one works:
//!     trusted            only root and this user can make or exchange names there; all users can open them, if possible
//!     sweep              removes unused files that earlier runs of this user left
//!     make               a new file, locked for as long as this process lives; mapped like the loader does, and compared
//! Launch::drop         removes it, unless processes of the run live, since programs that they execute look for it
//! ```
//!
//! The file has its own path, because programs change their user, their root or their mounts, and close descriptors:
//! only a path survives. The path outlives the file: in saved environments, and in processes that outlive the run. The
//! loader takes any file that lies there then. So no folder of the path may accept names from other users. The sticky
//! bit, as in `/tmp`, is not enough: it protects existing files, but the name would be free to other users once the
//! file is gone.

use std::collections::HashSet;
use std::env::var_os;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::{Builder, NamedTempFile};

use super::failure::Failure;

/// The folders for the library of root's runs, in this order. `/run` comes second: some systems mount it noexec, and
/// sandboxes replace it more often.
const OF_ROOT: [&str; 2] = ["/var/lib/ledgerline", "/run/ledgerline-lib"];
/// The name of a user's folder in that user's cache.
const OF_USER: &str = "ledgerline";
/// The folder in the user's runtime directory. Announced ledgers are next to it, in a folder that is closed to others.
const AT_RUNTIME: &str = "ledgerline-lib";

const PREFIX: &str = "ledgerline-";
const SUFFIX: &str = ".so";
/// The number of random letters and digits, against guessing.
const RANDOM: usize = 8;

/// How often a process that is executing another program is looked at, before files are left to a later run. The pauses
/// between grow from a millisecond to 64: on a busy machine such a process may have no CPU for that long.
const LOOKS: u32 = 7;

/// The initial size of the buffer for an environment. Few are longer; the kernel's limit is three quarters of 8 MiB.
const ENVIRONMENT: usize = 64 << 10;

/// A library's file, removed on drop.
#[derive(Debug)]
pub struct Placed {
    pub(crate) file: NamedTempFile,
    /// Whether processes of other users can open it.
    pub(crate) for_all: bool,
}

/// A folder in which the library may lie.
struct Place {
    folder: PathBuf,
    /// Whether the folder is made if it is missing, and its parent, too.
    is_made: bool,
}

/// Makes a file with these bytes that programs of any user can be started with, if this user has a place for it;
/// otherwise one for programs of this user.
pub(crate) fn put(name: &str, bytes: &[u8]) -> Result<Placed, Failure> {
    put_in(&places(), Path::new("/"), name, bytes)
}

/// Returns the folders that this user may use, the best first.
fn places() -> Vec<Place> {
    let named = |name| var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = geteuid();
    let of_root = OF_ROOT.iter().filter(|_| user.is_root()).map(PathBuf::from);
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let runtime = named("XDG_RUNTIME_DIR").unwrap_or(usual);
    let cache = cache.map(|folder| folder.join(OF_USER));
    let of_user = cache.into_iter().chain([runtime.join(AT_RUNTIME)]);
    let made = of_root.chain(of_user).map(|folder| Place { folder, is_made: true });
    made.chain(named("TMPDIR").map(|folder| Place { folder, is_made: false })).collect()
}

/// Does [`put`]'s work in one of these places. Folders above `base` are trusted.
fn put_in(places: &[Place], base: &Path, name: &str, bytes: &[u8]) -> Result<Placed, Failure> {
    let put = |folder: &Path, for_all| {
        sweep(folder);
        let made = make(folder, name, bytes).map(|file| Placed { file, for_all });
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => "no program may be executed there (noexec)".to_owned(),
            _ => error.to_string(),
        })
    };
    let (mut tried, mut closed) = (Vec::new(), Vec::new());
    for place in places {
        let made = place.find(base).and_then(|folder| match trusted(&folder, base)? {
            true => put(&folder, true).map(Some),
            false => {
                closed.push((place, folder));
                Ok(None)
            }
        });
        match made {
            Ok(Some(placed)) => return Ok(placed),
            Ok(None) => {}
            Err(why) => tried.push(format!("{}: {why}", place.folder.display())),
        }
    }
    for (place, folder) in closed {
        match put(&folder, false) {
            Ok(placed) => return Ok(placed),
            Err(why) => tried.push(format!("{}: {why}", place.folder.display())),
        }
    }
    Err(Failure::internal(format!(
        "no folder takes the library that is preloaded ({}); set XDG_CACHE_HOME to a folder of your own that lies in none \
         where other users may write, such as /tmp",
        tried.join("; ")
    )))
}

impl Place {
    /// Returns the folder without links in its path.
    fn find(&self, base: &Path) -> Result<PathBuf, String> {
        let found = |folder: &Path| folder.canonicalize().map_err(|error| error.to_string());
        // The parent may be closed to others, like the user's cache.
        let parent = self.folder.parent().unwrap_or(&self.folder);
        for (folder, mode) in [(parent, 0o700), (&self.folder, 0o755)] {
            if !self.is_made || folder.exists() {
                continue;
            }
            trusted(&found(folder.parent().unwrap_or(folder))?, base)?;
            let made = DirBuilder::new().mode(mode).create(folder);
            // The umask may have closed it.
            made.and_then(|()| fs::set_permissions(folder, Permissions::from_mode(mode)))
                .map_err(|error| error.to_string())?;
        }
        found(&self.folder)
    }
}

/// Returns whether `LD_PRELOAD`, a list without quoting in which names are expanded, can carry a path.
pub(crate) fn can_be_listed(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b" :$\t\n".contains(byte))
}

/// Returns whether a file has a name like those that [`put`] makes.
pub(crate) fn is_name(name: &str, file: &OsStr) -> bool {
    let random = |file: &str| {
        let rest = file.strip_prefix(PREFIX)?.strip_prefix(name)?.strip_prefix('-')?;
        rest.strip_suffix(SUFFIX).map(str::to_owned)
    };
    file.to_str().and_then(random).is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Returns whether all users can look files up in a folder; an error if another user can make or exchange names there.
/// Folders above `base` are not checked.
fn trusted(folder: &Path, base: &Path) -> Result<bool, String> {
    let status = |path: &Path| path.metadata().map_err(|error| error.to_string());
    if !can_be_listed(folder) {
        return Err("LD_PRELOAD cannot carry a space, a colon or a dollar sign".to_owned());
    }
    // The owner of the root may do anything; in a user namespace that need not look like root.
    let root = status(Path::new("/"))?.uid();
    let mut for_all = true;
    for step in folder.ancestors().take_while(|step| step.starts_with(base)) {
        let found = status(step)?;
        let (mode, step) = (found.mode(), step.display());
        if found.uid() != root && found.uid() != geteuid().as_raw() {
            return Err(format!("{step} belongs to another user"));
        }
        if mode & 0o022 != 0 {
            return Err(format!("other users may write to {step}"));
        }
        for_all &= mode & 0o001 != 0;
    }
    Ok(for_all)
}

fn make(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let prefix = format!("{PREFIX}{name}-");
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX).rand_bytes(RANDOM);
    loop {
        // A new name, for this user alone until the file is complete.
        let mut file = builder.tempfile_in(folder)?;
        match file.as_file().try_lock() {
            Ok(()) => {}
            // A concurrent run that sweeps has locked the file as abandoned.
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let swept = match file.path().symlink_metadata() {
            Ok(found) => found.ino() != file.as_file().metadata()?.ino(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        if swept {
            continue;
        }
        file.write_all(bytes)?;
        file.as_file().set_permissions(Permissions::from_mode(0o555))?;
        compare(file.as_file(), bytes)?;
        return Ok(file);
    }
}

/// Maps a file like the loader does, which fails on a noexec mount, and compares its content.
fn compare(file: &File, bytes: &[u8]) -> io::Result<()> {
    let (length, how) = (bytes.len(), libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: a new mapping, which replaces none; it is read below while it exists. The file is as long as the bytes
    // that were just written, and only this user can write to it. Guarded by the tests below.
    unsafe {
        let start = libc::mmap(null_mut(), length, how, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let same = std::slice::from_raw_parts(start.cast::<u8>(), length) == bytes;
        libc::munmap(start, length);
        if same { Ok(()) } else { Err(io::Error::other("it reads otherwise than it was written")) }
    }
}

/// Removes the files of this user whose run has ended and which no process uses. A process that `/proc` does not show,
/// or that this user may not read, is assumed to be no process of such a run.
fn sweep(folder: &Path) {
    let mut left = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if ["preload", "record"].iter().any(|of| is_name(of, &name))
            && let Some(lock) = abandoned(&entry.path())
        {
            left.push((lock, name));
        }
    }
    if left.is_empty() {
        return;
    }
    let names = left.iter().map(|(_, name)| name.as_bytes()).collect();
    let Some(used) = used(&names) else { return };
    for (_, name) in left.iter().filter(|(_, name)| !used.contains(name)) {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Returns the lock of a file, if it is this user's and its run has ended.
fn abandoned(path: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let ours = found.is_file() && found.uid() == geteuid().as_raw();
    (ours && file.try_lock().is_ok()).then_some(file)
}

/// Returns which of these names a process has in its memory map, or had in its environment when it began; `None` if
/// that cannot be determined.
fn used(names: &HashSet<&[u8]>) -> Option<HashSet<OsString>> {
    let mut used = HashSet::new();
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut processes: Vec<_> = entries
        .filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit))
        .map(|entry| entry.path())
        .collect();
    for look in 0..LOOKS {
        processes.retain(|process| {
            // The order matters: if the map is already a new program's, so is the environment.
            let map = fs::read(process.join("maps")).unwrap_or_default();
            let Ok(environment) = in_one(&process.join("environ")) else { return false };
            for text in [&map, &environment] {
                let words = text.split(|byte| b"/: \n\0".contains(byte));
                let found = words.filter(|word| names.contains(word));
                used.extend(found.map(|name| OsStr::from_bytes(name).to_owned()));
            }
            environment.is_empty() && begins(process)
        });
        if processes.is_empty() {
            return Some(used);
        }
        sleep(Duration::from_millis(1 << look));
    }
    None
}

/// Reads a file of the kernel's in a single call. Between two calls the process may execute another program, and the
/// second call would report the end.
fn in_one(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = vec![0; ENVIRONMENT];
    loop {
        let length = File::open(path)?.read(&mut text)?;
        if length < text.len() {
            text.truncate(length);
            return Ok(text);
        }
        text.resize(text.len() * 2, 0);
    }
}

/// Returns whether a process without an environment is about to get one, since it executes another program.
fn begins(process: &Path) -> bool {
    let Ok(stat) = fs::read(process.join("stat")) else { return false };
    // The name, in parentheses, may hold anything. The rest starts with the third field of proc_pid_stat(5).
    let rest = stat.rsplit(|&byte| byte == b')').next().unwrap_or_default();
    let fields: Vec<_> = rest.split(|&byte| byte == b' ').skip(1).collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(b"0");
    let (size, code, start, end) = (field(23), field(27), field(50), field(51));
    // The kernel's own threads and ended processes have no memory. The end of the code is written last, when a new
    // program's environment has its place; until then the process may look like one without variables.
    size != b"0" && (code == b"0" || start != end)
}

#[cfg(test)]
mod tests;

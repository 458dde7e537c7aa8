//! The preloaded library, and its entry in the loader's variable.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf, absolute};

use ledgerline_protocol::blind::Serves;

use super::failure::Failure;
use super::place::{self, Placed};
use super::target::replace;

/// A library that programs are started with. It is embedded in the command: a separate file could be of another
/// version.
#[derive(Clone, Copy)]
pub struct Library {
    /// The name in its files' names.
    name: &'static str,
    bytes: &'static [u8],
    /// The variable of the environment that overrides the file.
    variable: &'static str,
    /// The C libraries whose programs it serves.
    pub(crate) serves: Serves,
}

/// A library as a file that the loader can open.
pub enum Ready {
    /// The file that the user named.
    Named(PathBuf),
    /// The embedded library, placed in a file that is removed on drop.
    Placed(Placed),
}

impl Library {
    /// Makes a library of these bytes, which are empty if it could not be built. `name` is part of its files' names;
    /// `variable` overrides the path. It serves programs of these C libraries.
    pub const fn new(
        name: &'static str,
        bytes: &'static [u8],
        variable: &'static str,
        serves: Serves,
    ) -> Library {
        Library { name, bytes, variable, serves }
    }

    /// Returns the content of its file.
    pub fn bytes(&self) -> Result<&'static [u8], Failure> {
        // On some targets the command can be built, but the library cannot.
        if self.bytes.is_empty() {
            return Err(Failure::internal(format!(
                "this command carries no library to preload: none can be built where it was (`run` needs Linux \
                 with glibc or musl, `layout record` glibc and x86-64); a command that was built there has it, or \
                 {} can name one",
                self.variable
            )));
        }
        Ok(self.bytes)
    }

    /// Makes it a file: the one that the environment names, or a new one with the embedded content.
    pub(crate) fn ready(&self) -> Result<Ready, Failure> {
        match self.users() {
            Some(named) => self.named(&named).map(Ready::Named),
            None => place::put(self.name, self.bytes()?).map(Ready::Placed),
        }
    }

    /// Makes it a permanent file, for programs that are linked with it: the one that the environment names, or one
    /// below the user's data, written if it differs from the embedded content. Its name is the one that such programs
    /// look for.
    pub fn installed(&self) -> Result<PathBuf, Failure> {
        let file = format!("libledgerline_{}.so", self.name);
        let refuse = |path: &Path, why: &dyn Display| {
            Failure::internal(format!("{path:?}: {why}; {} can name another {file}", self.variable))
        };
        let path = match self.users() {
            Some(named) => {
                self.named(&named)?;
                absolute(Path::new(&named)).map_err(|error| refuse(Path::new(&named), &error))?
            }
            None => data().map(|data| data.join("ledgerline").join(&file)).ok_or_else(|| {
                Failure::internal(format!(
                    "there is no place for {file}, which programs are linked with; set HOME, or \
                     XDG_DATA_HOME to a folder that stays"
                ))
            })?,
        };
        if path.file_name() != Some(OsStr::new(&file)) {
            return Err(refuse(&path, &format_args!("programs look for it by the name {file}")));
        }
        if path.as_os_str().as_bytes().iter().any(|byte| b":$".contains(byte)) {
            return Err(refuse(
                &path,
                &"programs cannot name a path with a colon or a dollar sign",
            ));
        }
        if self.users().is_none() {
            keep(&path, self.bytes()?).map_err(|error| refuse(&path, &error))?;
        }
        Ok(path)
    }

    /// Returns the user's own file, if the environment names one.
    fn users(&self) -> Option<OsString> {
        std::env::var_os(self.variable).filter(|value| !value.is_empty())
    }

    fn named(&self, named: &OsStr) -> Result<PathBuf, Failure> {
        let variable = self.variable;
        let path = Path::new(named);
        if !path.is_file() {
            return Err(Failure::internal(format!(
                "{variable} names {path:?}, which is not a file; \
                 unset it, and the library in this command is used"
            )));
        }
        // The loader looks the path up in each process, from any working directory.
        let path = path.canonicalize().unwrap_or(path.to_owned());
        if !place::can_be_listed(&path) {
            return Err(Failure::internal(format!(
                "LD_PRELOAD cannot carry the path {path:?} (it has a space, a colon or a dollar sign); \
                 unset {variable}, or set it to a copy elsewhere"
            )));
        }
        Ok(path)
    }

    /// Returns the value of `LD_PRELOAD`: this library first, then the user's other libraries. Copies of this one, from
    /// a run around this one, are left out.
    pub(crate) fn before(&self, ready: &Ready, users: Option<OsString>) -> OsString {
        let mut value = ready.path().as_os_str().as_bytes().to_vec();
        for other in users.unwrap_or_default().as_bytes().split(|byte| b" :".contains(byte)) {
            let file = Path::new(OsStr::from_bytes(other)).file_name().unwrap_or_default();
            if !other.is_empty() && !place::is_name(self.name, file) {
                value.push(b':');
                value.extend(other);
            }
        }
        OsString::from_vec(value)
    }
}

/// Returns the folder for a user's permanent data.
fn data() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")))
}

/// Writes a file that others may execute, atomically and only if it differs: a running program may have it mapped.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    replace(path, bytes, Some(Permissions::from_mode(0o755)))
}

impl Ready {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Ready::Named(path) => path,
            Ready::Placed(placed) => placed.file.path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: Library =
        Library::new("preload", b"\x7fELF", "LEDGERLINE_PRELOAD", Serves::Glibc);

    #[test]
    fn the_users_own_preloads_stay_and_those_of_a_run_around_this_one_go() {
        let ours = Ready::Named("/a/b.so".into());
        let before = |users: &str| ACCOUNT.before(&ours, Some(users.into()));
        assert_eq!(ACCOUNT.before(&ours, None), "/a/b.so");
        assert_eq!(before(""), "/a/b.so");
        assert_eq!(before("/c.so /d.so"), "/a/b.so:/c.so:/d.so");
        assert_eq!(before("/x/ledgerline-preload-a1B2c3D4.so:/c.so"), "/a/b.so:/c.so");
        let recorder = "/x/ledgerline-record-a1B2c3D4.so";
        assert_eq!(before(recorder), OsString::from(format!("/a/b.so:{recorder}")));
    }

    #[test]
    fn a_variable_that_names_no_file_says_so() {
        let failure = ACCOUNT.named(OsStr::new("/nowhere/x.so")).unwrap_err();
        assert_eq!(failure.code(), 125);
        assert!(failure.message().contains("LEDGERLINE_PRELOAD names"));
    }

    #[test]
    fn a_command_that_carries_none_says_how_to_name_one() {
        let none = Library { bytes: b"", ..ACCOUNT };
        assert!(none.bytes().unwrap_err().message().contains("LEDGERLINE_PRELOAD can name one"));
    }
}

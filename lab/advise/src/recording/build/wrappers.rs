//! The folder of wrappers, and the environment with which a build finds them.

use super::compilers::{self, Compiler};
use super::journal::Built;
use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// The wrappers of a build, in a folder that the caller removes.
#[derive(Debug)]
pub struct Wrappers {
    folder: PathBuf,
    variables: Vec<(OsString, OsString)>,
}

pub(super) const COMPILERS: &str = "compilers";
pub(super) const PATH: &str = "path";
pub(super) const FLAGS: &str = "flags";
pub(super) const LIBRARY: &str = "library";
pub(super) const JOURNAL: &str = "journal";
const FIRST: &str = "bin";

impl Wrappers {
    /// Fills an empty folder with wrappers for the compilers of `PATH`, and for those that `CC` and `CXX` name. A
    /// wrapper is a link to `command`, which has to call [`super::wrapper::called`] first of all. Programs are linked
    /// with `library`, and find it there when they run.
    ///
    /// # Errors
    /// Something cannot be written, or there is no compiler.
    ///
    /// # Cost
    /// Each compiler is asked for its version: some 60 ms of a CPU for all of Debian's versions of gcc and clang.
    pub fn make(folder: &Path, command: &Path, library: &Path) -> io::Result<Wrappers> {
        // PATH is read only here, once.
        let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let mut work = Work { folder, command, flags: HashMap::new(), identity: String::new() };
        fs::write(folder.join("specs"), compilers::SPECS)?;
        symlink(library, folder.join(LIBRARY))?;
        let mut of_path = compilers::of_path(&path);
        let mut variables = Vec::new();
        for name in ["CC", "CXX"] {
            // A variable that is not set stays unset: makefiles and `configure` depend on that, and find compilers in
            // PATH.
            let Some(value) = env::var(name).ok() else { continue };
            let Some((mut words, at)) = compilers::named_by(&value) else { continue };
            let Some(compiler) = compilers::find(words[at], &path) else { continue };
            if !words[at].contains('/') {
                if of_path.iter().all(|known| known.name != compiler.name) {
                    of_path.push(compiler);
                }
                continue;
            }
            let wrapper = work.wrap(name, &compiler)?;
            let Some(wrapper) = wrapper.to_str() else { continue };
            words[at] = wrapper;
            variables.push((name.into(), words.join(" ").into()));
        }
        for compiler in &of_path {
            work.wrap(FIRST, compiler)?;
        }
        if work.flags.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no compiler is in PATH"));
        }
        let first =
            env::join_paths([folder.join(FIRST)].into_iter().chain(env::split_paths(&path)))
                .map_err(io::Error::other)?;
        variables.push(("PATH".into(), first));
        // The identity keeps ccache from using objects without probes, or those of another compiler.
        let identity = folder.join("identity");
        fs::write(&identity, &work.identity)?;
        let mut extra = identity.into_os_string();
        if let Some(users) = env::var_os("CCACHE_EXTRAFILES").filter(|users| !users.is_empty()) {
            extra.push(":");
            extra.push(users);
        }
        variables.push(("CCACHE_EXTRAFILES".into(), extra));
        Ok(Wrappers { folder: folder.to_path_buf(), variables })
    }

    /// Returns the variables to set for the build.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Returns the result of the build so far.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn built(&self) -> io::Result<Built> {
        Built::read(&self.folder.join(JOURNAL))
    }
}

struct Work<'a> {
    folder: &'a Path,
    command: &'a Path,
    /// By the compiler's file, which may have several names.
    flags: HashMap<PathBuf, Vec<OsString>>,
    identity: String,
}

impl Work<'_> {
    /// Makes a wrapper in a group of wrappers; returns its path.
    fn wrap(&mut self, group: &str, compiler: &Compiler) -> io::Result<PathBuf> {
        let bin = self.folder.join(group);
        fs::create_dir_all(&bin)?;
        let wrapper = bin.join(&compiler.name);
        symlink(self.command, &wrapper)?;
        let note = self.folder.join(COMPILERS).join(group).join(&compiler.name);
        fs::create_dir_all(&note)?;
        symlink(&compiler.path, note.join(PATH))?;
        let real = compiler.path.canonicalize()?;
        let found = real.metadata()?;
        let specs = self.folder.join("specs");
        // ccache stands for the compiler whose name it has.
        let of = if compilers::is_launcher(&real) { &compiler.path } else { &real };
        let flags = self
            .flags
            .entry(of.clone())
            .or_insert_with(|| compilers::flags(&compiler.path, &specs));
        let (name, changed, length) = (&compiler.name, found.mtime(), found.len());
        let _ = writeln!(self.identity, "{name:?} {changed} {length} {flags:?}");
        let flags: Vec<_> = flags.iter().map(|flag| flag.as_bytes()).collect();
        fs::write(note.join(FLAGS), flags.join(&b'\0'))?;
        Ok(wrapper)
    }
}

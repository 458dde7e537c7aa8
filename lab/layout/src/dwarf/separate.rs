//! Finds debug information that is not in the program itself.

use super::options::Options;
use super::sections::{build_id, has, parse};
use super::unit::Split;
use crate::Error;
use object::{Object, ReadCache, ReadRef};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the path of a build id below a debug directory.
fn by_build_id(directory: &Path, id: &[u8]) -> PathBuf {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (first, rest) = id.split_at(1);
    directory.join(".build-id").join(hex(first)).join(hex(rest) + ".debug")
}

/// Returns the path of the debug file that belongs to a stripped program.
///
/// The file is searched by the build id below each debug directory. Then it is searched by the name in
/// `.gnu_debuglink`: beside the program, in `.debug` beside it, and below each debug directory. A file of another
/// build is skipped.
pub(crate) fn debug_path<'a>(
    file: &object::File<'a, impl ReadRef<'a>>,
    options: &Options,
) -> Option<PathBuf> {
    let (path, directories) = (options.path.as_deref(), &options.debug_directories);
    let id = build_id(file);
    let mut candidates: Vec<PathBuf> = Vec::new();
    if let Some(id) = id {
        candidates.extend(directories.iter().map(|directory| by_build_id(directory, id)));
    }
    if let Ok(Some((link, _))) = file.gnu_debuglink() {
        let link = Path::new(OsStr::from_bytes(link));
        // The link is used as a name and not as a path.
        if let (Some(name), Some(beside)) = (link.file_name(), path.and_then(Path::parent)) {
            candidates.push(beside.join(name));
            candidates.push(beside.join(".debug").join(name));
            if let Ok(full) = fs::canonicalize(if beside.as_os_str().is_empty() {
                Path::new(".")
            } else {
                beside
            }) {
                let below = full.strip_prefix("/").unwrap_or(&full).to_path_buf();
                candidates
                    .extend(directories.iter().map(|directory| directory.join(&below).join(name)));
            }
        }
    }
    candidates.into_iter().find(|candidate| {
        let other = path.is_none_or(|path| !same_file(path, candidate));
        other && is_debug_file(candidate, id) == Some(true)
    })
}

/// Returns whether a file has types and does not state another build id; `None` if it cannot be read.
fn is_debug_file(candidate: &Path, id: Option<&[u8]>) -> Option<bool> {
    fs::metadata(candidate).ok().filter(fs::Metadata::is_file)?;
    let mut file = fs::File::open(candidate).ok()?;
    let cache = ReadCache::new(&mut file);
    let found = object::File::parse(&cache).ok()?;
    let same = id.is_none() || build_id(&found).is_none() || build_id(&found) == id;
    Some(same && has(&found, ".debug_info"))
}

fn same_file(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).ok().is_some_and(|one| fs::canonicalize(other).ok() == Some(one))
}

/// Returns the bytes of dwz's file that has part of the debug information of `file`, if there is one.
pub(super) fn supplement(
    file: &object::File<'_>,
    options: &Options,
) -> Result<Option<Vec<u8>>, Error> {
    let directories = &options.debug_directories;
    let Ok(Some((link, id))) = file.gnu_debugaltlink() else { return Ok(None) };
    let link = Path::new(OsStr::from_bytes(link));
    let mut candidates = Vec::new();
    if let Some(path) = &options.path {
        candidates.push(path.parent().unwrap_or(Path::new("")).join(link));
    }
    if id.len() > 1 {
        candidates.extend(directories.iter().map(|directory| by_build_id(directory, id)));
    }
    if let Some(name) = link.file_name() {
        candidates.extend(directories.iter().map(|directory| directory.join(".dwz").join(name)));
    }
    for candidate in candidates {
        if let Some(bytes) = read_regular(&candidate)
            && let Ok(found) = parse(&bytes)
            && (id.is_empty() || build_id(&found) == Some(id))
        {
            return Ok(Some(bytes));
        }
    }
    let missing =
        format!("has part of its debug information in {}, which is not there", link.display());
    Err(Error::new(missing).advise("install all of the package's debug symbols"))
}

/// Returns the bytes of a regular file. Names come from untrusted files, and a device has no end.
pub(super) fn read_regular(path: &Path) -> Option<Vec<u8>> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    fs::read(path).ok()
}

/// Returns the bytes of a unit's split file. It lies at the path that the compiler wrote, or beside the program. It
/// is not searched if the place of the program is not known.
pub(super) fn split_file(split: Split<'_>, path: Option<&Path>) -> Result<Vec<u8>, Error> {
    let name = Path::new(OsStr::from_bytes(split.name));
    let written = Path::new(OsStr::from_bytes(split.directory)).join(name);
    let mut candidates = Vec::new();
    if let Some(path) = path {
        let beside = path.parent().unwrap_or(Path::new(""));
        candidates.extend([written.clone(), beside.join(name)]);
        candidates.extend(name.file_name().map(|name| beside.join(name)));
    }
    candidates.iter().find_map(|candidate| read_regular(candidate)).ok_or_else(|| {
        Error::new(format!("has types in {}, which is not there", written.display()))
            .advise("copy it beside the program, or link with dwp")
    })
}

/// Returns the bytes of the package of split files beside the program, if there is one.
pub(super) fn package(path: Option<&Path>) -> Option<Vec<u8>> {
    read_regular(&package_path(path?)?)
}

/// Returns the path of the package of split files beside the program, if there is one.
pub(super) fn package_path(path: &Path) -> Option<PathBuf> {
    let mut name = path.as_os_str().to_os_string();
    name.push(".dwp");
    [PathBuf::from(name), path.with_extension("dwp")].into_iter().find(|path| path.is_file())
}

//! Where the library that is preloaded lies, and how the loader is told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// A library of this project that programs are started with.
pub struct Library {
    file: &'static str,
    /// The crate that it is built from.
    package: &'static str,
    /// The variable of the environment that names another copy.
    variable: &'static str,
}

/// Charges allocations to a ledger.
pub const ACCOUNT: Library = Library {
    file: "libledgerline_preload.so",
    package: "ledgerline-preload",
    variable: "LEDGERLINE_PRELOAD",
};

/// Counts accesses to fields.
pub const RECORDER: Library = Library {
    file: "libledgerline_record.so",
    package: "ledgerline-record",
    variable: "LEDGERLINE_RECORD_LIBRARY",
};

/// The library that was named in the environment, or that lies beside the
/// command, or in `../lib/ledgerline` from there.
pub fn find(library: &Library) -> Result<PathBuf, Failure> {
    let Library { file, variable, .. } = library;
    let named = std::env::var_os(variable).filter(|value| !value.is_empty());
    let executable = std::env::current_exe().ok();
    let path = search(library, named.as_deref(), executable.as_deref())?;
    // The loader looks the path up in each process, wherever that has gone.
    let path = path.canonicalize().unwrap_or(path);
    // LD_PRELOAD is a list without quoting, with names to be expanded.
    if path.as_os_str().as_bytes().iter().any(|byte| b" :$\t\n".contains(byte)) {
        return Err(Failure::internal(format!(
            "LD_PRELOAD cannot carry the path {path:?} (it has a space, a colon or a dollar sign); \
             set {variable} to a copy of {file} elsewhere"
        )));
    }
    Ok(path)
}

fn search(
    library: &Library,
    named: Option<&OsStr>,
    executable: Option<&Path>,
) -> Result<PathBuf, Failure> {
    let Library { file, package, variable } = library;
    if let Some(named) = named {
        let path = PathBuf::from(named);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Failure::internal(format!(
                "{variable} names {path:?}, which is not a file; \
                 unset it, or set it to the path of {file}"
            )))
        };
    }
    let directory = executable.and_then(Path::parent);
    directory
        .into_iter()
        .flat_map(|directory| {
            [directory.join(file), directory.join("../lib/ledgerline").join(file)]
        })
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Failure::internal(format!(
                "{file} is not beside the ledgerline command; build it with \
                 `cargo build -p {package}` in the same profile, or set {variable}"
            ))
        })
}

/// The value of `LD_PRELOAD`: ours first, then what the user preloads already.
pub fn joined(ours: &Path, users: Option<OsString>) -> OsString {
    let mut value = ours.as_os_str().to_owned();
    if let Some(users) = users.filter(|users| !users.is_empty()) {
        value.push(":");
        value.push(users);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_preloads_stay() {
        let ours = Path::new("/a/b.so");
        assert_eq!(joined(ours, None), "/a/b.so");
        assert_eq!(joined(ours, Some("".into())), "/a/b.so");
        assert_eq!(joined(ours, Some("/c.so /d.so".into())), "/a/b.so:/c.so /d.so");
    }

    #[test]
    fn a_missing_library_says_how_to_get_one() {
        let failure = search(&ACCOUNT, None, Some(Path::new("/nowhere/ledgerline"))).unwrap_err();
        assert_eq!(failure.code(), 125);
        assert!(failure.message().contains("cargo build -p ledgerline-preload"));
        let failure = search(&ACCOUNT, Some(OsStr::new("/nowhere/x.so")), None).unwrap_err();
        assert!(failure.message().contains("LEDGERLINE_PRELOAD names"));
    }

    #[test]
    fn the_places_are_searched_in_order() {
        let root =
            std::env::temp_dir().join(format!("ledgerline-preload-test-{}", std::process::id()));
        let (bin, lib) = (root.join("bin"), root.join("lib/ledgerline"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        let executable = bin.join("ledgerline");
        std::fs::write(lib.join(ACCOUNT.file), "").unwrap();
        let far = search(&ACCOUNT, None, Some(&executable)).unwrap();
        assert_eq!(far.canonicalize().unwrap(), lib.join(ACCOUNT.file).canonicalize().unwrap());
        std::fs::write(bin.join(ACCOUNT.file), "").unwrap();
        assert_eq!(search(&ACCOUNT, None, Some(&executable)).unwrap(), bin.join(ACCOUNT.file));
        std::fs::remove_dir_all(&root).unwrap();
    }
}

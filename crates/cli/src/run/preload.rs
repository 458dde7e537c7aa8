//! Where the library that is preloaded lies, and how the loader is told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::failure::Failure;

const NAME: &str = "libledgerline_preload.so";

/// The library that was named in the environment, or that lies beside the
/// command, or in `../lib/ledgerline` from there.
pub fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os("LEDGERLINE_PRELOAD").filter(|value| !value.is_empty());
    let executable = std::env::current_exe().ok();
    let path = search(named.as_deref(), executable.as_deref())?;
    // The loader looks the path up in each process, wherever that has gone.
    let path = path.canonicalize().unwrap_or(path);
    // LD_PRELOAD is a list without quoting, with names to be expanded.
    if path.as_os_str().as_bytes().iter().any(|byte| b" :$\t\n".contains(byte)) {
        return Err(Failure::internal(format!(
            "LD_PRELOAD cannot carry the path {path:?} (it has a space, a colon or a dollar sign); \
             set LEDGERLINE_PRELOAD to a copy of {NAME} elsewhere"
        )));
    }
    Ok(path)
}

fn search(named: Option<&OsStr>, executable: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        let path = PathBuf::from(named);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Failure::internal(format!(
                "LEDGERLINE_PRELOAD names {path:?}, which is not a file; \
                 unset it, or set it to the path of {NAME}"
            )))
        };
    }
    let directory = executable.and_then(Path::parent);
    directory
        .into_iter()
        .flat_map(|directory| {
            [directory.join(NAME), directory.join("../lib/ledgerline").join(NAME)]
        })
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Failure::internal(format!(
                "{NAME} is not beside the ledgerline command; build it with \
                 `cargo build -p ledgerline-preload` in the same profile, or set LEDGERLINE_PRELOAD"
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
        let failure = search(None, Some(Path::new("/nowhere/ledgerline"))).unwrap_err();
        assert_eq!(failure.code(), 125);
        assert!(failure.message().contains("cargo build -p ledgerline-preload"));
        let failure = search(Some(OsStr::new("/nowhere/x.so")), None).unwrap_err();
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
        std::fs::write(lib.join(NAME), "").unwrap();
        let far = search(None, Some(&executable)).unwrap();
        assert_eq!(far.canonicalize().unwrap(), lib.join(NAME).canonicalize().unwrap());
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(search(None, Some(&executable)).unwrap(), bin.join(NAME));
        std::fs::remove_dir_all(&root).unwrap();
    }
}

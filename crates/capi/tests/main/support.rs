//! Finds the libraries that Cargo built with these tests, and folders for their output.

#[path = "../../../../tests/support/golden.rs"]
pub mod golden;
#[path = "../../../../tests/support/have.rs"]
mod have;

pub use have::have;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns a folder of this process's own.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let name = format!("capi-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // Removes the leftovers of an earlier process with the same number.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Returns a file that Cargo built with the library that this test depends on. One call of the compiler makes all
/// three kinds, so none is older than the others.
pub fn built(file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it lies");
    let file = test.with_file_name(file);
    assert!(file.is_file(), "Cargo built no {file:?}");
    file
}

/// Returns the static library.
pub fn static_library() -> PathBuf {
    built("libledgerline_c.a")
}

/// Returns a folder with the shared library under the names by which programs link and load it.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let into = folder().join("lib");
        std::fs::create_dir_all(&into).unwrap();
        for name in ["libledgerline.so", "libledgerline.so.1"] {
            std::os::unix::fs::symlink(built("libledgerline_c.so"), into.join(name)).unwrap();
        }
        into
    })
}

/// Returns a program's source.
pub fn source(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(program)
}

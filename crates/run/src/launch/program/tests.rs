//! Tests of the look-up, on generated files.

use super::*;
use std::os::unix::fs::PermissionsExt;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path =
            std::env::temp_dir().join(format!("ledgerline-program-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_is_found_as_a_shell_finds_it() {
    let (first, second) = (Directory::new("first"), Directory::new("second"));
    first.file("tool", 0o644, b"");
    let tool = second.file("tool", 0o755, b"");
    first.file("notes", 0o644, b"");
    let path = std::env::join_paths([&first.0, &second.0]).unwrap();
    let find = |name: &str| find_in(OsStr::new(name), &path);

    // A file that may not be executed does not hide a later one that may.
    assert_eq!(find("tool").unwrap().path, tool);
    assert_eq!(find("notes").unwrap_err().code(), 126);
    assert_eq!(find("missing").unwrap_err().code(), 127);
    assert_eq!(find("/nonexistent/tool").unwrap_err().code(), 127);
    assert_eq!(find("").unwrap_err().code(), 2);
    assert_eq!(find(first.0.to_str().unwrap()).unwrap_err().code(), 126);
    for name in ["notes", "missing", "/nonexistent/tool", "/"] {
        assert!(!find(name).unwrap_err().message().contains('\n'));
    }
}

//! A directory to work in, which is removed however this process ends.

use ledgerline_view::terminal::folder::{self, TempDir};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Removes the directory if this process could not. The shell waits until the other end of its input is closed, and two
/// more seconds, in which the programs that work there end.
const JANITOR: &str = r#"read -r done || { sleep 2; rm -rf -- "$1"; }"#;

/// A directory that is removed with its contents.
pub(super) struct Scratch {
    folder: TempDir,
    /// `None` without a shell. Dropped after the folder, to report that it is gone.
    _janitor: Option<Janitor>,
}

impl Scratch {
    pub(super) fn new() -> io::Result<Scratch> {
        let folder = folder::make("reproduce")?;
        let janitor = Janitor::of(folder.path()).ok();
        Ok(Scratch { folder, _janitor: janitor })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A shell that runs [`JANITOR`].
struct Janitor(Child);

impl Janitor {
    fn of(path: &Path) -> io::Result<Janitor> {
        let shell = Command::new("sh")
            .args(["-c", JANITOR, "sh"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals of the terminal to this process must not reach the shell.
            .process_group(0)
            .spawn()?;
        Ok(Janitor(shell))
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, Instant};

    #[test]
    fn a_directory_goes_with_all_that_is_in_it() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/file"), "text").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_goes_when_nobody_is_left_to_remove_it() {
        let mut scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "text").unwrap();
        let Some(mut janitor) = scratch._janitor.take() else {
            return eprintln!("skipped: there is no shell");
        };
        // Simulates a process that is killed.
        std::mem::forget(scratch);
        assert!(path.exists());
        drop(janitor.0.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(20);
        while path.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!path.exists());
    }
}

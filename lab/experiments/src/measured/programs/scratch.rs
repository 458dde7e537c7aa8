//! A directory to work in, which goes away however this process ends.

use ledgerline_terminal::folder;
use std::fs;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What removes the directory where this process could not: it waits until nobody holds the other end of its
/// input, and for a moment more, in which the programs that work there end.
const JANITOR: &str = r#"read -r done || { sleep 2; rm -rf -- "$1"; }"#;

/// A directory that is removed with all that is in it.
pub(super) struct Scratch {
    path: PathBuf,
    /// None where there is no shell.
    janitor: Option<(PipeWriter, Child)>,
}

impl Scratch {
    pub(super) fn new() -> io::Result<Scratch> {
        let path = folder::make("reproduce")?;
        let janitor = janitor(&path).ok();
        Ok(Scratch { path, janitor })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn janitor(path: &Path) -> io::Result<(PipeWriter, Child)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new("sh")
        .args(["-c", JANITOR, "sh"])
        .arg(path)
        .stdin(reader)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What a terminal sends to this process is not for it.
        .process_group(0)
        .spawn()?;
    Ok((writer, child))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays for the system's own cleaning.
        let _ = fs::remove_dir_all(&self.path);
        if let Some((writer, child)) = &mut self.janitor {
            let _ = io::Write::write_all(writer, b"done\n");
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let Some((writer, mut child)) = scratch.janitor.take() else {
            return eprintln!("skipped: there is no shell");
        };
        // As when the process is killed.
        std::mem::forget(scratch);
        assert!(path.exists());
        drop(writer);
        let deadline = Instant::now() + Duration::from_secs(20);
        while path.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!path.exists());
        child.wait().unwrap();
    }
}

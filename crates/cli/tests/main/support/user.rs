//! A second user of this machine, for tests of other users' abilities.

use super::have;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A user that a test made, with a home. Both are removed when this value is dropped.
pub struct User {
    pub name: String,
    pub uid: u32,
}

impl User {
    /// Makes a user; prints a line and returns `None` if this is not root or such programs are not installed.
    pub fn new() -> Option<User> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: only root makes users");
            return None;
        }
        if !["useradd", "userdel", "setpriv"].into_iter().all(have) {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lt{}-{number}", std::process::id());
        // Several tests run at the same time: the files of users have one lock, which useradd does not wait for.
        let start = std::time::Instant::now();
        loop {
            let made = Command::new("useradd").args(["-m", "-s", "/bin/sh", &name]).output();
            let made = made.expect("useradd starts");
            if made.status.success() {
                break;
            }
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(said.contains("lock") && start.elapsed().as_secs() < 60, "{said}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let id = Command::new("id").args(["-u", &name]).output().expect("id starts");
        let uid = String::from_utf8_lossy(&id.stdout).trim().parse().expect("a number");
        Some(User { name, uid })
    }

    /// Returns a program that is started as this user, with that user's home and none of this process's rights.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        let ids = [format!("--reuid={}", self.uid), format!("--regid={}", self.uid)];
        command.args(ids).args(["--clear-groups", "--"]).arg(program);
        command.env("HOME", self.home()).current_dir("/");
        for name in ["XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        command
    }

    pub fn home(&self) -> std::path::PathBuf {
        Path::new("/home").join(&self.name)
    }

    /// Copies a file to this user's home, with that user as the owner.
    pub fn copy(&self, from: &Path, name: &str) -> std::path::PathBuf {
        let to = self.home().join(name);
        super::copy_executable(from, &to);
        std::os::unix::fs::chown(&to, Some(self.uid), None).expect("root may");
        to
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let start = std::time::Instant::now();
        while start.elapsed().as_secs() < 60 {
            let gone = Command::new("userdel").args(["-r", "-f", &self.name]).output();
            // 6: there is none. 12: it has no mail.
            if gone.is_ok_and(|it| matches!(it.status.code(), Some(0 | 6 | 12))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

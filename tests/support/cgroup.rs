//! A real memory cgroup below this process's own, for tests that have the kernel kill. Version 1, or version 2 where a
//! cgroup beside this process's own can be made.

#![allow(dead_code, reason = "every test binary uses a part of this")]

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A memory cgroup; it is removed when this is dropped, and must be empty by then.
pub struct Cgroup {
    pub folder: PathBuf,
    is_v2: bool,
}

impl Cgroup {
    /// Makes one with a limit in bytes; `None`, with the reason on standard error, where this process may not.
    pub fn new(limit: u64) -> Option<Cgroup> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ledgerline-test-{}-{number}", std::process::id());
        let made = own().and_then(|(above, is_v2)| {
            let cgroup = Cgroup { folder: above.join(name), is_v2 };
            fs::create_dir(&cgroup.folder)?;
            let file = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
            fs::write(cgroup.folder.join(file), limit.to_string())?;
            // Swap must not stand in for memory.
            if is_v2 {
                let _ = fs::write(cgroup.folder.join("memory.swap.max"), "0");
            } else {
                let _ = fs::write(cgroup.folder.join("memory.swappiness"), "0");
            }
            Ok(cgroup)
        });
        made.inspect_err(|error| eprintln!("skipped: no memory cgroup can be made here: {error}"))
            .ok()
    }

    pub fn is_v2(&self) -> bool {
        self.is_v2
    }

    /// Has the command begin its life in the cgroup.
    pub fn enter(&self, command: &mut Command) {
        let procs = self.folder.join("cgroup.procs");
        // SAFETY: between fork and exec it opens a file and writes one byte; the path is made before.
        unsafe {
            let path = std::ffi::CString::new(procs.to_str().expect("a path of ours")).unwrap();
            command.pre_exec(move || {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if file < 0 || libc::write(file, c"0".as_ptr().cast(), 1) != 1 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
    }

    pub fn set_limit(&self, limit: u64) {
        let file = if self.is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(self.folder.join(file), limit.to_string()).expect("the limit is ours to set");
    }

    /// What the kernel charges, without page cache: rather too little than too much, since the files are read one after
    /// the other.
    pub fn used(&self) -> u64 {
        let (file, prefix) =
            if self.is_v2 { ("memory.current", "") } else { ("memory.usage_in_bytes", "total_") };
        let cache = || {
            let names = ["inactive_file", "active_file"];
            names.map(|name| self.field("memory.stat", &format!("{prefix}{name}"))).iter().sum()
        };
        let before: u64 = cache();
        let all: u64 = read(&self.folder.join(file)).trim().parse().unwrap_or(0);
        all.saturating_sub(before.max(cache()))
    }

    /// How many processes the kernel has killed for the limit.
    pub fn killed(&self) -> u64 {
        self.field(if self.is_v2 { "memory.events" } else { "memory.oom_control" }, "oom_kill")
    }

    fn field(&self, file: &str, name: &str) -> u64 {
        let text = read(&self.folder.join(file));
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel may still be busy with what a killed process had.
        for _ in 0..200 {
            if fs::remove_dir(&self.folder).is_ok() || !self.folder.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        eprintln!("{} could not be removed", self.folder.display());
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The folder below which a cgroup can be made, and whether it is of version 2. (It must be mounted where it mostly is,
/// and as a whole; elsewhere these tests are left out.)
fn own() -> io::Result<(PathBuf, bool)> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let of_v1 = text.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path));
    if let Some(path) = of_v1 {
        return Ok((Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/')), false));
    }
    let path = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = Path::new("/sys/fs/cgroup").join(path);
    // A cgroup with processes of its own has none below it that are limited.
    let above = if path.is_empty() { &*own } else { own.parent().unwrap_or(&own) };
    if !read(&above.join("cgroup.subtree_control")).split_whitespace().any(|it| it == "memory") {
        return Err(io::Error::other("the memory controller is not there"));
    }
    Ok((above.to_owned(), true))
}

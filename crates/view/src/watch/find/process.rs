//! The facts in `/proc` about a process.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most ancestors of a process that are looked at.
const ANCESTORS: usize = 64;

/// A process by its id. At the next query it may be another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process(pub(super) u32);

impl Process {
    /// Returns the processes whose files this user may look at.
    pub(super) fn own() -> impl Iterator<Item = Process> {
        // SAFETY: it has no preconditions.
        let user = unsafe { libc::geteuid() };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            (entry.metadata().ok()?.uid() == user).then_some(Process(pid))
        })
    }

    fn path(self, leaf: &str) -> PathBuf {
        format!("/proc/{}/{leaf}", self.0).into()
    }

    pub(super) fn exists(self) -> bool {
        self.path("").exists()
    }

    /// Returns its open files, as links.
    pub(super) fn files(self) -> io::Result<impl Iterator<Item = PathBuf>> {
        Ok(self.path("fd").read_dir()?.flatten().map(|entry| entry.path()))
    }

    /// Returns its mapped files, as links: for root alone.
    pub(super) fn map_files(self) -> impl Iterator<Item = PathBuf> {
        let entries = self.path("map_files").read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    }

    /// Returns whether it has a file open for writing, among those that [`files`](Self::files) returns.
    pub(super) fn may_write(self, file: &Path) -> bool {
        let number = file.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(self.path(&format!("fdinfo/{number}"))).unwrap_or_default();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| libc::c_int::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_ACCMODE == libc::O_RDWR)
    }

    /// Returns its name in the kernel; 15 bytes at most.
    pub(super) fn name(self) -> String {
        let name = fs::read(self.path("comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        ledgerline::name::escaped(&name).into_owned()
    }

    pub(super) fn parent(self) -> Option<Process> {
        let status = fs::read_to_string(self.path("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().filter(|&pid| pid != 0).map(Process)
    }

    /// Returns its parent, that one's parent, and so on.
    pub(super) fn ancestors(self) -> impl Iterator<Item = Process> {
        std::iter::successors(self.parent(), |parent| parent.parent()).take(ANCESTORS)
    }

    /// Returns the first of its children.
    pub(super) fn first_child(self) -> Option<Process> {
        let children = fs::read_to_string(self.path(&format!("task/{}/children", self.0))).ok()?;
        children.split_ascii_whitespace().next()?.parse().ok().map(Process)
    }

    /// Returns the strings of the environment with which its program started.
    pub(super) fn environment(self) -> Vec<Vec<u8>> {
        let text = fs::read(self.path("environ")).unwrap_or_default();
        text.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
    }

    /// Returns the names of shared files in its memory map, each once.
    fn shared_maps(self) -> Vec<Vec<u8>> {
        let text = fs::read(self.path("maps")).unwrap_or_default();
        let mut names: Vec<Vec<u8>> = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                // "7f3a0000-7f3b0000 rw-s 00000000 00:1b 4711    /dev/shm/x"
                let mut fields = line.splitn(6, |&byte| byte == b' ');
                let shared = fields.nth(1)?.starts_with(b"rw-s");
                let name = fields.last()?.trim_ascii_start();
                (shared && !name.is_empty()).then(|| name.to_vec())
            })
            .collect();
        names.dedup();
        names
    }

    /// Returns whether it shares a file with such a name.
    pub(super) fn shares(self, is_name: fn(&[u8]) -> bool) -> bool {
        self.shared_maps().iter().any(|mapped| is_name(mapped))
    }

    /// Returns the files that it has mapped for writing, if they have a name.
    pub(super) fn mapped_files(self) -> Vec<PathBuf> {
        let names = self.shared_maps().into_iter();
        let paths = names.map(|name| PathBuf::from(std::ffi::OsString::from_vec(name)));
        // With another root, the process may see another file by that name.
        let paths = paths.map(|path| match path.is_file() {
            true => path,
            false => self.path("root").join(path.strip_prefix("/").unwrap_or(&path)),
        });
        paths.filter(|path| path.is_file()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_told_by_its_files_its_parent_and_its_environment() {
        // It ends with this process, even if the test fails.
        let mut child = Command::new("cat")
            .env("A_NAME", "7")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The kernel does not show the environment before the program has begun.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let (own, process) = (Process(std::process::id()), Process(child.id()));
        assert_eq!((process.parent(), process.exists()), (Some(own), true));
        assert!(process.environment().contains(&b"A_NAME=7".to_vec()));
        assert_eq!(process.name(), "cat");
        assert!(process.files().unwrap().count() >= 3);
        assert!(Process::own().any(|other| other == own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.exists() && process.parent().is_none() && process.files().is_err());
    }

    #[test]
    fn a_file_that_may_be_written_is_told_from_one_that_may_be_read() {
        use std::os::fd::AsRawFd;
        let own = Process(std::process::id());
        let file = tempfile::NamedTempFile::new().unwrap();
        let reader = fs::File::open(file.path()).unwrap();
        let link = |file: &fs::File| own.path(&format!("fd/{}", file.as_raw_fd()));
        assert!(own.may_write(&link(file.as_file())) && !own.may_write(&link(&reader)));
    }
}

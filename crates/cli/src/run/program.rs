//! The program to run: where it lies, and whether a preload can see into it.

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// A program that exists and may be executed.
#[derive(Debug)]
pub struct Program {
    pub path: PathBuf,
}

/// Why the allocations of a program cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlindSpot {
    Static,
    Privileged(&'static str),
    OtherArchitecture,
    OtherLibc,
}

impl fmt::Display for BlindSpot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the program ")?;
        match self {
            BlindSpot::Static => {
                f.write_str("is statically linked, so nothing can be preloaded into it")
            }
            BlindSpot::Privileged(what) => write!(f, "has {what}, so the loader drops the preload"),
            BlindSpot::OtherArchitecture => {
                f.write_str("is of another architecture than the preload library")
            }
            BlindSpot::OtherLibc => {
                f.write_str("uses the musl C library, and the preload library is for glibc")
            }
        }?;
        f.write_str("; its allocations cannot be seen or limited")
    }
}

impl BlindSpot {
    /// Whether the program would fail to start with the preload in its
    /// environment. glibc's loader ignores what does not fit; musl's gives up.
    pub fn breaks_preload(&self) -> bool {
        *self == BlindSpot::OtherLibc
    }
}

/// Looks the program up as a shell would.
pub fn find(name: &OsStr) -> Result<Program, Failure> {
    // Where PATH is not set, this is what execvp would search.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    find_in(name, &path)
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<Program, Failure> {
    if name.is_empty() {
        return Err(Failure::usage("the command is empty; name the program to run".to_owned()));
    }
    if name.as_bytes().contains(&b'/') {
        return check(PathBuf::from(name));
    }
    let mut refused = None;
    // An empty entry stands for the current directory, and joins to `./name`
    // so that the result is a path in any case.
    for entry in std::env::split_paths(path) {
        let entry = if entry.as_os_str().is_empty() { PathBuf::from(".") } else { entry };
        match check(entry.join(name)) {
            Ok(program) => return Ok(program),
            Err(failure) if failure.means_not_found() => {}
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        Failure::not_found(format!(
            "{name:?} is not in PATH; check the spelling, or give the program's path"
        ))
    }))
}

fn check(path: PathBuf) -> Result<Program, Failure> {
    let refuse = |why: &str| Failure::not_executable(format!("{path:?} cannot be executed: {why}"));
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(refuse("a directory on the way to it is closed to you"));
        }
        Err(_) => {
            return Err(Failure::not_found(format!("{path:?} does not exist; check the path")));
        }
    };
    if found.is_dir() {
        return Err(refuse("it is a directory; name a program"));
    }
    if !executable(&path) {
        return Err(refuse("no permission; `chmod +x` it, or name its interpreter first"));
    }
    Ok(Program { path })
}

fn executable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `name` is a NUL-terminated string that lives across the call;
    // the kernel only reads it.
    unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

impl Program {
    /// What keeps the preload out of this program, if anything does.
    ///
    /// A file that cannot be read is taken to be an ordinary program.
    pub fn blind_spot(&self) -> Option<BlindSpot> {
        let file = File::open(&self.path).ok()?;
        let mut start = [0; 256];
        let length = read_start(&file, &mut start).ok()?;
        match interpreter(&start[..length]) {
            // Set-user-ID bits on a script are ignored; those of its
            // interpreter count.
            Some(interpreter) => inspect(&interpreter),
            None => inspect(&self.path),
        }
    }

    /// The failure for a program that passed every check and did not start.
    pub fn start_failed(&self, error: &std::io::Error) -> Failure {
        let message = format!("{:?} cannot be executed: {error}", self.path);
        match error.kind() {
            // The program is there, so what is missing is its interpreter.
            std::io::ErrorKind::NotFound => {
                Failure::not_found(format!("{message}; install the interpreter that it names"))
            }
            _ => Failure::not_executable(message),
        }
    }
}

fn inspect(path: &Path) -> Option<BlindSpot> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    // SAFETY: these calls take no arguments, touch no memory and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let capabilities = user != 0 && has_capabilities(path);
    privileged(&metadata, user, group, capabilities).or_else(|| elf(&file).ok().flatten())
}

/// Privileges that the program would gain: the loader's secure mode. A
/// set-user-ID program of one's own gains nothing, and is seen.
fn privileged(metadata: &Metadata, user: u32, group: u32, capabilities: bool) -> Option<BlindSpot> {
    let mode = metadata.mode();
    if mode & libc::S_ISUID != 0 && metadata.uid() != user {
        Some(BlindSpot::Privileged("the set-user-ID bit"))
    } else if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 && metadata.gid() != group {
        Some(BlindSpot::Privileged("the set-group-ID bit"))
    } else if capabilities {
        Some(BlindSpot::Privileged("file capabilities"))
    } else {
        None
    }
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names are NUL-terminated strings that live across the call;
    // a size of zero asks for the length alone, so nothing is written.
    unsafe {
        libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0
    }
}

fn read_start(file: &File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut taken = file.take(buffer.len() as u64);
    let mut length = 0;
    loop {
        match taken.read(&mut buffer[length..]) {
            Ok(0) => return Ok(length),
            Ok(more) => length += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The interpreter that the first line of a script names.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

// The few fields of an ELF file that matter here; the offsets of the 64-bit
// class, which is the only one that is read further than its class byte.
const CLASS: usize = 4;
const CLASS_64: u8 = 2;
const MACHINE: usize = 18;
const PROGRAM_HEADERS: usize = 32;
const PROGRAM_HEADER_SIZE: usize = 54;
const PROGRAM_HEADER_COUNT: usize = 56;
const HEADER_LENGTH: usize = 64;
/// The type of the program header that names the dynamic loader.
const INTERP: u32 = 3;

#[cfg(target_arch = "x86_64")]
const OUR_MACHINE: Option<u16> = Some(62);
#[cfg(target_arch = "aarch64")]
const OUR_MACHINE: Option<u16> = Some(183);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OUR_MACHINE: Option<u16> = None;

/// What an ELF file says about itself. Anything that is not a well-formed ELF
/// file is left to the kernel to judge.
fn elf(file: &File) -> std::io::Result<Option<BlindSpot>> {
    let mut header = [0; HEADER_LENGTH];
    if read_exact_at(file, &mut header, 0).is_err() || !header.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    // Both architectures that are known here are little-endian; a big-endian
    // file has its machine's bytes the other way round and so differs too.
    let machine = u16::from_le_bytes([header[MACHINE], header[MACHINE + 1]]);
    let ours_is_64 = cfg!(target_pointer_width = "64");
    if (header[CLASS] == CLASS_64) != ours_is_64 || OUR_MACHINE.is_some_and(|ours| ours != machine)
    {
        return Ok(Some(BlindSpot::OtherArchitecture));
    }
    if OUR_MACHINE.is_none() {
        return Ok(None);
    }
    let table = u64_at(&header, PROGRAM_HEADERS);
    let size = u64::from(u16::from_le_bytes([
        header[PROGRAM_HEADER_SIZE],
        header[PROGRAM_HEADER_SIZE + 1],
    ]));
    let count = u64::from(u16::from_le_bytes([
        header[PROGRAM_HEADER_COUNT],
        header[PROGRAM_HEADER_COUNT + 1],
    ]));
    for index in 0..count {
        let mut entry = [0; 56];
        read_exact_at(file, &mut entry, table.saturating_add(index * size))?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == INTERP {
            let mut loader = vec![0; u64_at(&entry, 32).min(4096) as usize];
            read_exact_at(file, &mut loader, u64_at(&entry, 8))?;
            let musl = loader.windows(7).any(|part| part == b"ld-musl");
            return Ok(musl.then_some(BlindSpot::OtherLibc));
        }
    }
    Ok(Some(BlindSpot::Static))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn read_exact_at(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
    file.read_exact_at(buffer, at)
}

#[cfg(test)]
mod tests;

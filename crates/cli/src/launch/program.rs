//! The program to run: where it lies, and whether a preload can see into it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};
use rustix::fs::{Access, AtFlags, CWD, Mode, accessat, getxattr};
use rustix::process::{getegid, geteuid};

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
    pub fn breaks_preload(self) -> bool {
        self == BlindSpot::OtherLibc
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
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

impl Program {
    /// What keeps the preload out of this program, if anything does.
    ///
    /// A file that cannot be read is taken to be an ordinary program.
    pub fn blind_spot(&self) -> Option<BlindSpot> {
        let mut start = Vec::new();
        File::open(&self.path).ok()?.take(256).read_to_end(&mut start).ok()?;
        match interpreter(&start) {
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
    let (user, group) = (geteuid(), getegid());
    let capabilities = !user.is_root() && has_capabilities(path);
    privileged(&metadata, user.as_raw(), group.as_raw(), capabilities)
        .or_else(|| inside(file).ok().flatten())
}

/// Privileges that the program would gain: the loader's secure mode. A
/// set-user-ID program of one's own gains nothing, and is seen.
fn privileged(metadata: &Metadata, user: u32, group: u32, capabilities: bool) -> Option<BlindSpot> {
    let mode = Mode::from_raw_mode(metadata.mode());
    if mode.contains(Mode::SUID) && metadata.uid() != user {
        Some(BlindSpot::Privileged("the set-user-ID bit"))
    } else if mode.contains(Mode::SGID | Mode::XGRP) && metadata.gid() != group {
        Some(BlindSpot::Privileged("the set-group-ID bit"))
    } else if capabilities {
        Some(BlindSpot::Privileged("file capabilities"))
    } else {
        None
    }
}

fn has_capabilities(path: &Path) -> bool {
    // No buffer asks for the length alone.
    getxattr(path, c"security.capability", &mut [0u8; 0]).is_ok_and(|length| length > 0)
}

/// The interpreter that the first line of a script names.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

#[cfg(target_arch = "x86_64")]
const OUR_MACHINE: Option<elf::Machine> = Some(elf::EM_X86_64);
#[cfg(target_arch = "aarch64")]
const OUR_MACHINE: Option<elf::Machine> = Some(elf::EM_AARCH64);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OUR_MACHINE: Option<elf::Machine> = None;

/// What an ELF file says about itself. Anything that is not a well-formed ELF file is left to the kernel to judge.
fn inside(file: File) -> object::Result<Option<BlindSpot>> {
    let data = &ReadCache::new(file);
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) if cfg!(target_pointer_width = "64") => {}
        Ok(FileKind::Elf32) if cfg!(target_pointer_width = "32") => return Ok(None),
        Ok(FileKind::Elf32 | FileKind::Elf64) => return Ok(Some(BlindSpot::OtherArchitecture)),
        _ => return Ok(None),
    }
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let Some(ours) = OUR_MACHINE else { return Ok(None) };
    if header.e_machine(endian) != ours {
        return Ok(Some(BlindSpot::OtherArchitecture));
    }
    for segment in header.program_headers(endian, data)? {
        if let Some(loader) = segment.interpreter(endian, data)? {
            let musl = loader.windows(7).any(|part| part == b"ld-musl");
            return Ok(musl.then_some(BlindSpot::OtherLibc));
        }
    }
    Ok(Some(BlindSpot::Static))
}

#[cfg(test)]
mod tests;

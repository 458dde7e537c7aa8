//! The program to run: its path, and whether a preload can see into it.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ledgerline_protocol::blind::{self, Blind, Serves};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::failure::Failure;

/// A program that exists and may be executed.
#[derive(Debug)]
pub struct Program {
    /// Its path, never a bare name.
    pub path: PathBuf,
}

/// Looks the program up as a shell would.
pub fn find(name: &OsStr) -> Result<Program, Failure> {
    // execvp searches these folders if PATH is not set.
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
    // An empty entry stands for the current directory, and joins to `./name`, so that the result is always a path.
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
    /// Returns the reason why a library cannot be loaded into this program, if there is one. The library serves
    /// programs of these C libraries.
    ///
    /// A file that cannot be read is assumed to be an ordinary program.
    pub fn blind_spot(&self, serves: Serves) -> Option<Blind> {
        blind::of(&CString::new(self.path.as_os_str().as_bytes()).ok()?, serves).ok().flatten()
    }

    /// Returns the failure for a program that passed every check and did not start.
    pub fn start_failed(&self, error: &std::io::Error) -> Failure {
        let message = format!("{:?} cannot be executed: {error}", self.path);
        match error.kind() {
            // The program exists, so its interpreter is missing.
            std::io::ErrorKind::NotFound => {
                Failure::not_found(format!("{message}; install the interpreter that it names"))
            }
            _ => Failure::not_executable(message),
        }
    }
}

#[cfg(test)]
mod tests;

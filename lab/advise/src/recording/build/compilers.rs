//! The compilers that a build may call, and the flags with which each adds probes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of C and C++ compilers, without a leading triplet and a trailing version.
const NAMES: [&str; 8] = ["cc", "gcc", "clang", "c89", "c99", "c++", "g++", "clang++"];

/// Programs that start a compiler to make it faster.
const LAUNCHERS: [&str; 6] = ["ccache", "sccache", "distcc", "icecc", "buildcache", "env"];

/// A compiler of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compiler {
    /// Its name.
    pub name: OsString,
    /// Its path. A link is not followed, because compilers depend on their names.
    pub path: PathBuf,
}

/// Returns whether a file has the name of a compiler for this machine: `gcc`, `clang++-14`, `x86_64-linux-gnu-gcc-12`.
fn is_compiler(name: &str) -> bool {
    let version = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let bare = match name.rsplit_once('-') {
        Some((bare, behind)) if version(behind) => bare,
        _ => name,
    };
    let (triplet, bare) = bare.rsplit_once('-').unwrap_or(("", bare));
    let ours = || {
        let other = ["musl", "android", "uclibc", "x32"];
        triplet.starts_with("x86_64-")
            && triplet.contains("linux")
            && !other.iter().any(|other| triplet.contains(other))
    };
    NAMES.contains(&bare) && (triplet.is_empty() || ours())
}

/// Returns the compilers of a search path, each at its first place.
pub(super) fn of_path(path: &OsStr) -> Vec<Compiler> {
    let mut found = BTreeMap::new();
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            if name.to_str().is_some_and(is_compiler) && is_program(&path) {
                found.entry(name).or_insert(path);
            }
        }
    }
    found.into_iter().map(|(name, path)| Compiler { name, path }).collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the words of `CC` and the index of the compiler, which is neither a launcher nor an assignment for `env`.
pub(super) fn named_by(variable: &str) -> Option<(Vec<&str>, usize)> {
    let words: Vec<_> = variable.split_whitespace().collect();
    let at = words.iter().position(|word| {
        !is_launcher(Path::new(word)) && !word.contains('=') && !word.starts_with('-')
    })?;
    Some((words, at))
}

pub(super) fn is_launcher(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| LAUNCHERS.contains(&name))
}

/// Finds the compiler of a name or path like a shell.
pub(super) fn find(name: &str, path: &OsStr) -> Option<Compiler> {
    let found = if name.contains('/') {
        Some(std::path::absolute(name).ok()?)
    } else {
        std::env::split_paths(path).map(|folder| folder.join(name)).find(|path| is_program(path))
    };
    let path = found.filter(|path| is_program(path))?;
    Some(Compiler { name: path.file_name()?.to_owned(), path })
}

/// The specs for gcc: its compiler proper gets the option. Its driver, which would link the sanitizer, does not.
pub(super) const SPECS: &str = "*cc1_options:\n+ -fsanitize=thread\n";

/// Returns the words that make a compiler add probes. `specs` is a file with [`SPECS`].
///
/// gcc's macro for the sanitizer is undefined again, so that a program is recorded as it is otherwise built. The
/// feature of clang stays.
pub(super) fn flags(compiler: &Path, specs: &Path) -> Vec<OsString> {
    let run = |words: &[&str]| {
        let mut command = Command::new(compiler);
        command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
        command.env("CCACHE_DISABLE", "1").output().ok()
    };
    let text = run(&["--version"]).map(|output| output.stdout).unwrap_or_default();
    if !String::from_utf8_lossy(&text).contains("clang") {
        let mut file = OsString::from("-specs=");
        file.push(specs);
        return vec![file, "-U__SANITIZE_THREAD__".into()];
    }
    // Since version 12, this keeps the probe of a read whose address is written soon after.
    let all =
        ["-Xclang", "-fsanitize=thread", "-mllvm", "-tsan-instrument-read-before-write"].as_slice();
    let attempt = ["-x", "c", "-c", "/dev/null", "-o", "/dev/null"];
    let takes_all = run(&[all, &attempt].concat()).is_some_and(|output| output.status.success());
    let flags = if takes_all { all } else { &all[..2] };
    flags.iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_known_by_name() {
        for name in [
            "cc",
            "g++",
            "gcc-12",
            "clang++-14",
            "x86_64-linux-gnu-gcc",
            "c99",
            "x86_64-linux-gnu-g++-12",
            "x86_64-redhat-linux-gcc",
            "gcc-4.8",
        ] {
            assert!(is_compiler(name), "{name}");
        }
        for name in [
            "gcc-ar",
            "gcc-ar-12",
            "arm-linux-gnueabihf-gcc",
            "x86_64-w64-mingw32-gcc",
            "ccache",
            "x86_64-linux-musl-gcc",
            "clang-format-14",
            "cpp",
            "gccgo",
            "x86_64-linux-gnux32-gcc",
            "c89-gcc",
            "-12",
        ] {
            assert!(!is_compiler(name), "{name}");
        }
    }

    #[test]
    fn the_compiler_is_found_behind_its_launcher() {
        let named = |variable| named_by(variable).map(|(words, at)| words[at]);
        assert_eq!(named("gcc -m64"), Some("gcc"));
        assert_eq!(named("ccache /opt/bin/gcc-12 -std=c99"), Some("/opt/bin/gcc-12"));
        assert_eq!(named("/usr/bin/env X=1 /usr/bin/distcc tcc"), Some("tcc"));
        assert_eq!(named(" "), None);
    }
}

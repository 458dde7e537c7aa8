//! Runs the command as a compiler, if a build calls it as one.

use super::arguments;
use super::call::{self, Answer, Probes};
use super::journal::{COMPILED, LINKED, NOTE, Page, STALE};
use super::objects;
use super::wrappers::{COMPILERS, FLAGS, JOURNAL, LIBRARY, PATH};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Executes the compiler if this process was started by a wrapper's path, and returns only if that failed. `None` if
/// the path is no wrapper's.
///
/// `executed` is the path that the kernel was given (`AT_EXECFN`): a build may call a compiler by any name, in an empty
/// environment. Only a refusal is written to standard error, because `configure` takes other words for the compiler's.
///
/// # Cost
/// If the path is no wrapper's, the reading of one link. Otherwise the start of the command, and the reading of objects
/// that are linked.
pub fn called(executed: &Path, arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = executed.file_name()?;
    let bin = match executed.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        bin => bin,
    };
    // A relative path may end in `bin`, or may be empty.
    let bin = if bin.is_absolute() { bin.to_owned() } else { bin.canonicalize().ok()? };
    let folder = bin.parent()?;
    let note = folder.join(COMPILERS).join(bin.file_name()?).join(name);
    let compiler = std::fs::read_link(note.join(PATH)).ok()?;
    let arguments: Vec<_> = arguments.collect();
    let (code, why) = match wrap(folder, &bin, &note, &compiler, &arguments) {
        Ok(mut command) => (127, format!("{}: {}", compiler.display(), command.exec())),
        Err(why) => (1, why),
    };
    let _ = writeln!(std::io::stderr(), "ledgerline: build: {why}");
    Some(ExitCode::from(code))
}

fn wrap(
    folder: &Path,
    bin: &Path,
    note: &Path,
    compiler: &Path,
    arguments: &[OsString],
) -> Result<Command, String> {
    let cannot = |error| format!("{}: {error}", folder.display());
    let flags = std::fs::read(note.join(FLAGS)).map_err(cannot)?;
    let flags: Vec<_> =
        flags.split(|&byte| byte == 0).map(|flag| OsStr::from_bytes(flag).to_owned()).collect();
    let library = std::fs::read_link(folder.join(LIBRARY)).map_err(cannot)?;
    let call = arguments::read(arguments);
    let answer = call::answer(&call, &Probes { flags: &flags, library: &library })?;
    page(&answer, &call.others).write(&folder.join(JOURNAL)).map_err(cannot)?;
    let mut command = Command::new(compiler);
    let keeps = |word: &&OsString| !answer.without.iter().any(|without| *word == without);
    // Words behind `--` are files.
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (before, after) = arguments.split_at(end);
    command.args(before.iter().filter(keeps)).args(&answer.added).args(after);
    // ccache, called as a compiler, looks for the next compiler of its name, and must not find the wrapper.
    if let Some(path) = env::var_os("PATH") {
        let others = env::split_paths(&path).filter(|entry| entry != bin);
        command.env("PATH", env::join_paths(others).unwrap_or(path));
    }
    Ok(command)
}

/// Returns the journal's page of a call.
fn page(answer: &Answer, linked: &[PathBuf]) -> Page {
    let mut page = Page::default();
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or(path.to_owned());
    answer.notes.iter().for_each(|note| page.add(NOTE, note));
    answer.compiled.iter().for_each(|object| page.add(COMPILED, absolute(object)));
    if let Some(file) = &answer.linked {
        page.add(LINKED, absolute(file));
        let stale = linked.iter().flat_map(|file| objects::without_probes(file));
        stale.for_each(|object| page.add(STALE, object));
    }
    page
}

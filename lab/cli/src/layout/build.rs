//! Builds a program with probes: runs the user's command with wrappers in place of the compilers.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write, stderr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ledgerline_advise::recording::build::{Built, Wrappers, wrapper};
use ledgerline_view::terminal::folder;
use ledgerline_view::terminal::output::printable;
use ledgerline_view::terminal::text::counted;

use crate::carried::RECORDER;
use ledgerline_run::launch::{Failure, Signals, Status, start_plain};

/// Most objects without probes that a message names.
const NAMED: usize = 3;

/// Runs as a compiler if a wrapper started this process as one; `None` otherwise.
pub fn as_compiler() -> Option<ExitCode> {
    let executed = rustix::param::linux_execfn();
    wrapper::called(Path::new(OsStr::from_bytes(executed.to_bytes())), env::args_os().skip(1))
}

fn failure(error: &io::Error) -> Failure {
    Failure::internal(format!("layout record --build: {error}"))
}

/// Runs a shell command with wrappers for compilers, and reports on standard error what was built.
///
/// Returns what was built, or the command's own exit code if it failed.
pub(super) fn build(command: &OsStr) -> Result<Result<Built, u8>, Failure> {
    let library = RECORDER.installed()?;
    // cmake remembers the paths of compilers, so the folder is the same when the same tree is built again.
    let here = env::current_dir().map_err(|error| failure(&error))?;
    let folder = folder::again("build", here.as_os_str()).map_err(|error| failure(&error))?;
    // The wrappers need the path: in a wrapper, `/proc/self/exe` is the wrapper itself.
    let own = env::current_exe().map_err(|error| failure(&error))?;
    let wrappers =
        Wrappers::make(folder.path(), &own, &library).map_err(|error| failure(&error))?;

    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(wrappers.variables());
    // Standard output is reserved for the program or for a profile.
    shell.stdout(Stdio::from(stderr()));
    let ended = start_plain(&mut shell, Signals::hold()?)?.watch(|| Duration::from_millis(50))?;

    let (status, wall) = (ended.status, ended.wall);
    let built = wrappers.built().map_err(|error| failure(&error))?;
    let text = match (ended.exit(Ok(()))?, status) {
        (0, _) => text(&built, wall),
        (code, status) => {
            let ending = match (status, status.signal()) {
                (Status::Killed(_), Some(signal)) => format!("was killed by {signal}"),
                _ => format!("failed with exit {code}"),
            };
            let command = printable(&command.to_string_lossy());
            say(&format!("ledgerline: the build {ending}, and nothing is recorded: {command}\n"));
            return Ok(Err(code));
        }
    };
    say(&text);
    Ok(Ok(built))
}

/// Writes to standard error. An error is ignored, since there is no other place to report it.
pub(super) fn say(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

fn text(built: &Built, wall: Duration) -> String {
    let mut text = format!(
        "ledgerline: build: {} compiled with probes, {} linked, {:.1} s\n",
        counted(built.compiled, "object"),
        counted(built.linked.len(), "file"),
        wall.as_secs_f64()
    );
    if !built.stale.is_empty() {
        let names: Vec<_> = built.stale.iter().take(NAMED).map(|name| printable(name)).collect();
        let more = if built.stale.len() > NAMED { ", ..." } else { "" };
        text.push_str(&format!(
            "ledgerline: build: {} without probes went into what was linked ({}{more}), and their accesses are not \
             seen; if they were up to date, clean first, as by --build 'make clean && make'\n",
            counted(built.stale.len(), "object"),
            names.join(", ")
        ));
    }
    for note in &built.notes {
        text.push_str(&format!("ledgerline: build: {}\n", printable(note)));
    }
    text
}

/// Returns what to do about a program that has no probes after this build.
pub(super) fn advice(built: &Built, program: &Path) -> String {
    const CLEAN: &str = "clean first, as by --build 'make clean && make'";
    if built.has_linked(program) {
        return format!("none of its objects was compiled in this build: {CLEAN}");
    }
    if built.compiled == 0 && built.linked.is_empty() {
        return format!(
            "the build called no compiler of PATH: if all was up to date, {CLEAN}; if it names its compiler by a path, \
             give it the name, as by `make CC=gcc`"
        );
    }
    format!(
        "the build linked other files: if this one was up to date, {CLEAN}; if another program is meant, name that"
    )
}

/// The next step after a build without a run.
pub(super) const NEXT: &str = "ledgerline: record it by `ledgerline layout record --type TYPE -- PROGRAM`; clean before \
                               the next build without probes\n";

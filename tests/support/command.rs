//! The commands as their users run them, and the files of tests that do.

#![allow(dead_code, reason = "each program of tests uses a part of this")]

use std::io::{PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the command that lies there, with an environment that decides nothing, and without input.
pub fn undisturbed(binary: &str) -> Command {
    let mut command = Command::new(binary);
    for name in [
        "LD_PRELOAD",
        "LEDGERLINE_PRELOAD",
        "LEDGERLINE_PERCPU",
        "LEDGERLINE_RECORD",
        "LEDGERLINE_RECORD_LIBRARY",
        "NO_COLOR",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Returns what a command writes to standard output, which succeeds.
pub fn said(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails with the same status if no process reads its output, as in `ledgerline … 2>&1 | head`, and does not panic.
pub fn check_unread(command: impl Fn() -> Command) {
    let read = command().output().unwrap();
    let mut unread = command();
    unread.stdout(closed()).stderr(closed());
    assert_eq!(unread.status().unwrap().code(), read.status.code(), "{unread:?}");
    assert!(!read.status.success() && read.status.code() != Some(101), "{unread:?}");
}

/// A pipe without a reader.
fn closed() -> PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

/// A name for a file that no other test uses.
pub fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}-{name}", std::process::id()))
}

/// Writes a program that can be executed at once. Another process does it: a child that another test starts meanwhile would
/// have a file of this one's open to be written, and such a file cannot be executed.
pub fn executable(path: &Path, bytes: &[u8]) {
    let mut shell = Command::new("sh")
        .args(["-c", r#"cat >"$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    // The pipe ends here, and with it what the shell reads.
    shell.stdin.take().expect("its input is a pipe").write_all(bytes).unwrap();
    assert!(shell.wait().unwrap().success());
}

/// Copies a program, as [`executable`] writes one.
pub fn copy_executable(from: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("install").args(["-m", "755"]).arg(from.as_ref()).arg(to).status();
    assert!(copied.expect("install starts").success());
}

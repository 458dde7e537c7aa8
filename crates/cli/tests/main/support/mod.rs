//! Runs the command like a user does: the built binary alone.

#![allow(dead_code, unused_imports, reason = "each program of tests uses a part of this")]

#[path = "../../../../../tests/support/command.rs"]
mod command;
pub mod compiled;
#[path = "../../../../../tests/support/have.rs"]
mod have;
#[path = "../../../../../tests/support/tested.rs"]
pub mod tested;
pub mod tmux;
pub mod user;

pub use command::{check_unread, copy_executable, executable, said, scratch, stderr};
pub use have::have;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// Returns the path of the command.
pub fn binary() -> &'static str {
    tested::command(env!("CARGO_BIN_EXE_ledgerline"))
}

/// Returns the command, with an environment that has no influence.
pub fn ledgerline() -> Command {
    command::undisturbed(binary())
}

/// Subcommands of the laboratory's command, which they are passed to.
pub const ELSEWHERE: [&str; 5] = ["layout", "bench numa", "bench rss", "reproduce", "calibrate"];

pub fn run(arguments: &[&str]) -> Output {
    ledgerline().arg("run").args(arguments).output().expect("the command starts")
}

/// Starts a program under `run`, and waits for the first line that it writes. Its standard input stays open; its
/// further output comes from the lines.
pub fn started(program: &[&str]) -> (Child, String, Lines<BufReader<ChildStdout>>) {
    let mut command = ledgerline();
    // Background jobs of a script ignore SIGINT, and so would the processes that tests start.
    // SAFETY: between fork and exec, a plain system call.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let mut child = command
        .args(["run", "--"])
        .args(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The kernel does not stop processes in an orphaned process group, as a test's may be.
        .process_group(0)
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("the program writes a line").expect("it is text");
    (child, first, lines)
}

/// Runs a program and reads its account.
pub fn account(options: &[&str], program: &[&str]) -> (Output, Value) {
    let file = scratch("account.json");
    let output = ledgerline()
        .arg("run")
        .args(options)
        .arg("--json")
        .arg(&file)
        .arg("--")
        .args(program)
        .output()
        .expect("the command starts");
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("no account of {program:?}: {error}\n{}", stderr(&output)));
    std::fs::remove_file(&file).expect("the account can be removed");
    let account = serde_json::from_str(&text).expect("the account is JSON");
    (output, account)
}

/// A file that is removed with the test.
pub struct Shared(pub PathBuf, pub std::fs::File);

impl Shared {
    pub fn new(name: &str) -> Shared {
        let path = scratch(name);
        let options = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
        Shared(path, options.expect("a new file"))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the Python interpreter itself: the one in PATH may be a script that starts other programs first.
pub fn python() -> Option<&'static str> {
    static PYTHON: OnceLock<Option<String>> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let output = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .ok()?;
        let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(path)
    });
    if python.is_none() {
        eprintln!("skipped: python3 is not installed");
    }
    python.as_deref()
}

pub fn groups(account: &Value) -> &Vec<Value> {
    account["groups"].as_array().expect("groups is a list")
}

pub fn number(group: &Value, field: &str) -> u64 {
    group[field].as_u64().unwrap_or_else(|| panic!("{field} of {group} is not a number"))
}

/// Checks the invariants of every account.
pub fn check(account: &Value) {
    assert_eq!(account["unit"], "bytes");
    let groups = groups(account);
    assert_eq!(groups[0]["path"], "/", "the root comes first");
    assert_eq!(account["damaged"], false, "nobody wrote over the ledger:\n{account:#}");
    // The path from the root to the previous row, with the sums of their children.
    let mut open: Vec<(String, u64, u64)> = Vec::new();
    let close = |open: &mut Vec<(String, u64, u64)>| {
        let (path, current, below) = open.pop().expect("something is open");
        assert!(current >= below, "{path} holds {current}, its children {below}:\n{account:#}");
    };
    for group in groups {
        let path = group["path"].as_str().expect("path is a string").to_owned();
        let (current, peak) = (number(group, "current"), number(group, "peak"));
        assert!(peak >= current, "{path}: peak {peak} below current {current}");
        assert!(
            number(group, "charges") >= number(group, "uncharges"),
            "more uncharges than charges: {group}"
        );
        for limit in ["max", "high"] {
            assert!(group[limit].is_u64() || group[limit] == "max", "{limit} of {group}");
        }
        if group["state"] == "exited" {
            assert_eq!(current, 0, "{path} has ended and still holds something");
        }
        let parent = &path[..path.rfind('/').unwrap_or(0)];
        while open.len() > 1 && open.last().is_some_and(|(last, ..)| last != parent) {
            close(&mut open);
        }
        if let Some(last) = open.last_mut() {
            last.2 += current;
        }
        open.push((path, current, 0));
    }
    while !open.is_empty() {
        close(&mut open);
    }
}

/// Returns a whole program in 132 bytes: one loadable segment, and `exit(42)`.
#[cfg(target_arch = "x86_64")]
pub fn static_program() -> Vec<u8> {
    let code = [0xbf, 42, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let (base, start) = (0x40_0000_u64, 120_u64);
    let length = start + code.len() as u64;
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |bytes: &mut Vec<u8>, value: u16| bytes.extend(value.to_le_bytes());
    let word = |bytes: &mut Vec<u8>, value: u32| bytes.extend(value.to_le_bytes());
    let long = |bytes: &mut Vec<u8>, value: u64| bytes.extend(value.to_le_bytes());
    half(&mut bytes, 2); // an executable
    half(&mut bytes, 62); // for x86-64
    word(&mut bytes, 1);
    long(&mut bytes, base + start); // the entry
    long(&mut bytes, 64); // the program headers
    long(&mut bytes, 0);
    word(&mut bytes, 0);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut bytes, value);
    }
    word(&mut bytes, 1); // a segment to load
    word(&mut bytes, 5); // to read and execute
    for value in [0, base, base, length, length, 4096] {
        long(&mut bytes, value);
    }
    bytes.extend(code);
    bytes
}

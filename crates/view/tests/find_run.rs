//! The ledger of a run is found by any process of it. `crates/cli/tests/main/show.rs` has a real run. This is a
//! separate process, since it acts as the run for all of its children.

use ledgerline::Ledger;
use ledgerline_protocol::{Item, Which, given};
use ledgerline_view::watch::Source;
use ledgerline_view::watch::find::{self, Kind};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Child, Command, Stdio};

/// A process that ends with this one.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a shell's commands; returns the process, and its first output.
fn shell(commands: &str, ledger: &str) -> (Program, u32) {
    let mut child = Command::new("sh")
        .args(["-c", commands])
        .env("LEDGERLINE_LEDGER", ledger)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (Program(child), line.trim().parse().unwrap())
}

/// This process acts as a supervisor: it has such a file open for writing. Observers have it open for reading.
#[test]
fn a_run_is_found_by_its_supervisor_its_programs_and_their_children() {
    let name = given::name(Which::Ledger, given::nonce().unwrap());
    // SAFETY: makes a file of its own; the name ends in zero.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)) };
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let ledger = Ledger::builder().capacity(64).items(&Item::NAMES).create_in(&file).unwrap();
    ledger.root().create("sh.7").unwrap().charge_units(4711).unwrap();
    let own = std::process::id();
    let looking_on = File::open(&path).unwrap();

    let (_program, shell_pid) = shell("echo $$; read line", &path);
    let (_other, below) = shell("sh -c 'echo $$; read line'; true", &path);
    // A process without the environment, like that of a program that clears it: its ancestors have the variables.
    let (_bare, bare) = shell("env -i sh -c 'echo $$; read line'; true", &path);
    for pid in [own, shell_pid, below, bare] {
        let found = find::by_pid(pid).unwrap();
        assert_eq!((found.kind, found.pid, found.running), (Kind::Run, own, true), "{pid}");
        assert!(found.title.ends_with(&format!("(run {own})")), "{}", found.title);
        assert!((2..=64).contains(&found.groups));
        let source = Source::named(&pid.to_string()).unwrap();
        assert!(source.is_run() && source.title() == found.title);
        assert_eq!(source.look().root().current, 4711);
    }
    let listed = || find::all().into_iter().filter(|found| found.pid == own).collect::<Vec<_>>();
    assert_eq!(listed().len(), 1);

    // Once no process has it open for writing, it belongs to no run.
    drop((file, ledger));
    assert!(listed().is_empty());
    drop(looking_on);
    let error = find::by_pid(bare).unwrap_err();
    assert!(error.contains("has no ledger: give a process of a `ledgerline run`"), "{error}");
}

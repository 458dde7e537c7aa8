//! Monitoring programs find an announced ledger: while its program runs, and after it was killed.

use crate::common::again;
use ledgerline::{Announced, Ledger, View};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The role of a process that a test starts.
const ROLE: &str = "LEDGERLINE_TEST_ROLE";

/// Returns a command that starts this binary again, in a runtime directory of the test's.
fn start(runtime: &Path, role: &str) -> Command {
    let mut command = again("in_a_process_of_its_own");
    command.env("XDG_RUNTIME_DIR", runtime).env(ROLE, role);
    command
}

/// Runs a role in a process with the test's environment.
fn within(runtime: &Path, role: &str) {
    let output = start(runtime, role).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{error}");
}

/// A program that announced a ledger, and waits until its standard input ends.
struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Program {
    fn start(runtime: &Path, role: &str) -> Program {
        let mut child =
            start(runtime, role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("announced")), "{role}");
        Program { stdin: child.stdin.take(), child }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Runtime(tempfile::TempDir);

impl Runtime {
    fn new() -> Runtime {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        Runtime(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the names of the existing files.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join("ledgerline")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Returns the ledgers announced in this process's runtime directory. Programs of the machine may have announced others.
fn here() -> Vec<Announced> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").unwrap();
    let all = ledgerline::announced();
    all.into_iter().filter(|found| found.path.starts_with(&runtime)).collect()
}

fn announce(name: &str) -> std::io::Result<Ledger> {
    Ledger::builder().capacity(64).announce(name)
}

/// The roles. This is a test only in the processes that the tests start.
#[test]
fn in_a_process_of_its_own() {
    match std::env::var(ROLE).as_deref() {
        Err(_) => {}
        Ok("life") => life(),
        Ok("wait") => {
            let ledger = announce("orders").unwrap();
            ledger.root().create("q").unwrap().charge_units(4711).unwrap();
            println!("\nannounced");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        Ok("static") => {
            announce("kept").unwrap().into_static();
        }
        Ok("fork") => fork(),
        Ok("orphan") => {
            let _ledger = announce("orders").unwrap();
            // SAFETY: the child reads and ends, and does nothing else.
            unsafe {
                if libc::fork() == 0 {
                    libc::read(0, [0u8; 1].as_mut_ptr().cast(), 1);
                    libc::_exit(0);
                }
            }
            println!("\nannounced");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        Ok("left") => assert!(here().len() == 1 && !here()[0].running),
        Ok("ended") => ended(),
        Ok("again") => {
            let ledger = announce("orders").unwrap();
            assert_eq!(here().len(), 1);
            drop(ledger);
        }
        Ok("many") => many(),
        Ok("running") => {
            let found = here();
            assert_eq!(found.len(), 1);
            assert!(found[0].running && found[0].name == "orders" && !found[0].program.is_empty());
            assert!(View::open(File::open(&found[0].path).unwrap()).is_ok());
        }
        Ok(role) => panic!("{role}"),
    }
}

fn life() {
    let ledger = announce("orders").unwrap();
    let other = announce("orders-2").unwrap();
    let error = announce("orders").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(announce("../x").unwrap_err().kind(), ErrorKind::InvalidInput);

    let found = here();
    let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["orders", "orders-2"]);
    let first = &found[0];
    assert!(first.running && first.pid == std::process::id());
    assert_eq!(Some(&first.path), ledger.announced_at().as_ref());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&first.path), mode(first.path.parent().unwrap())), (0o600, 0o700));

    ledger.root().create("q").unwrap().charge_units(7).unwrap();
    let view = View::open(File::open(&first.path).unwrap()).unwrap();
    assert_eq!(view.snapshot().unwrap().groups[1].current, 7);
    drop(ledger);
    assert_eq!(here(), found[1..]);
    assert!(view.snapshot().is_ok(), "who has it open may read on");
    // A foreign file is skipped.
    let folder = first.path.parent().unwrap();
    fs::write(folder.join("x"), "").unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.join("orders@sh@7@8@9")).unwrap();
    assert_eq!(here(), found[1..]);
    drop(other);
    assert!(here().is_empty());
}

#[test]
fn a_ledger_is_listed_from_its_announcement_until_it_is_dropped() {
    let runtime = Runtime::new();
    within(runtime.path(), "life");
}

fn ended() {
    let found = here();
    assert_eq!(found.len(), 1);
    assert!(!found[0].running && found[0].name == "orders");
    let view = View::open(File::open(&found[0].path).unwrap()).unwrap();
    assert_eq!(view.snapshot().unwrap().groups[1].current, 4711);
}

#[test]
fn what_a_killed_program_left_is_listed_as_ended_and_readable_until_its_name_comes_again() {
    let runtime = Runtime::new();
    let program = Program::start(runtime.path(), "wait");
    within(runtime.path(), "running");
    program.kill();
    within(runtime.path(), "ended");
    within(runtime.path(), "again");
    assert!(runtime.files().is_empty());
    // The ledger of a running program is not removed by another of that name.
    let program = Program::start(runtime.path(), "wait");
    let second = Program::start(runtime.path(), "wait");
    assert_eq!(runtime.files().len(), 2);
    second.end();
    within(runtime.path(), "running");
    program.end();
    assert!(runtime.files().is_empty());
}

/// Creates files like those of ended programs, in a runtime directory of its own.
fn many() {
    let first = announce("first").unwrap();
    let folder = first.announced_at().unwrap().parent().unwrap().to_owned();
    for n in 0..12 {
        // No process has this number.
        fs::write(folder.join(format!("gone{n}@sh@4194305@1@1")), "").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _second = announce("second").unwrap();
    let found = here();
    let ended: Vec<&Announced> = found.iter().filter(|found| !found.running).collect();
    assert_eq!((found.len(), ended.len()), (10, 8), "{found:?}");
    for kept in 4..12 {
        assert!(ended.iter().any(|found| found.name == format!("gone{kept}")), "{kept}: {ended:?}");
    }
}

#[test]
fn no_more_than_eight_ledgers_of_ended_programs_are_kept() {
    let runtime = Runtime::new();
    within(runtime.path(), "many");
}

#[test]
fn a_program_that_never_drops_its_ledger_leaves_it() {
    let runtime = Runtime::new();
    within(runtime.path(), "static");
    assert_eq!(runtime.files().len(), 1);
    assert!(runtime.files()[0].starts_with("kept@"));
}

/// The child drops its copy of the ledger, and nothing is removed.
fn fork() {
    let ledger = announce("orders").unwrap();
    let path = ledger.announced_at().unwrap();
    // SAFETY: the child drops the ledger, which takes no lock that another thread may hold, and ends.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            drop(ledger);
            libc::_exit(0);
        }
        child
    };
    let mut status = 0;
    // SAFETY: waits for our child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(path.exists() && here()[0].running);
    drop(ledger);
    assert!(!path.exists());
}

#[test]
fn a_forked_child_does_not_remove_what_its_parent_announced() {
    let runtime = Runtime::new();
    within(runtime.path(), "fork");
}

#[test]
fn a_forked_child_that_outlives_its_parent_does_not_have_the_ledger() {
    let runtime = Runtime::new();
    let mut program = Program::start(runtime.path(), "orphan");
    let _keeps_the_child = program.stdin.take();
    program.kill();
    within(runtime.path(), "left");
}

//! The ledger of a program that embeds the library is found by its name, its PID, and by a file that it shares.

use ledgerline::Ledger;
use ledgerline_view::watch::Source;
use ledgerline_view::watch::find::{self, Found, Kind};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The variable with the role of a process that a test starts.
const ROLE: &str = "LEDGERLINE_TEST_ROLE";
/// The file of the role `share`, the PID of the others.
const WHAT: &str = "LEDGERLINE_TEST_WHAT";

fn start(runtime: &Path, role: &str, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "watch::find_program::in_a_process_of_its_own", "--nocapture"]);
    command.env("XDG_RUNTIME_DIR", runtime).env(ROLE, role).env(WHAT, what);
    command
}

fn within(runtime: &Path, role: &str, what: &str) {
    let output = start(runtime, role, what).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{role}: {text}\n{error}");
}

/// A program that waits, and ends with this one.
struct Program(Child);

impl Program {
    fn start(runtime: &Path, role: &str, what: &str) -> Program {
        let mut child = start(runtime, role, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "{role}");
        Program(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn runtime() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    folder
}

/// Returns the ledgers that are announced in this process's runtime directory.
fn here() -> Vec<Found> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").unwrap();
    find::all().into_iter().filter(|found| found.path.starts_with(&runtime)).collect()
}

fn wait(ledger: Ledger) {
    ledger.root().create("q").unwrap().charge_units(4711).unwrap();
    println!("\nready");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// The roles: a test only in the processes that the tests start.
#[test]
fn in_a_process_of_its_own() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let what = std::env::var(WHAT).unwrap();
    match &*role {
        "announce" => wait(Ledger::builder().capacity(64).announce(&what).unwrap()),
        "share" => {
            let file = File::options().read(true).write(true).create_new(true).open(&what).unwrap();
            wait(Ledger::builder().capacity(64).create_in(&file).unwrap());
        }
        "running" | "ended" => {
            let running = role == "running";
            let found = here();
            assert_eq!(found.len(), 1, "{found:?}");
            let pid = what.parse().unwrap();
            assert_eq!(find::by_pid(pid).unwrap(), found[0]);
            let found = &found[0];
            assert_eq!(found.kind, Kind::Announced("orders".into()));
            assert_eq!((found.pid, found.running, found.groups), (pid, running, 2));
            assert!(found.title.starts_with("orders: "), "{}", found.title);
            assert_eq!(found.title.ends_with(&format!("({pid}, ended)")), !running);
            for source in [Source::named("orders"), Source::of_pid(pid), Source::found(found)] {
                let source = source.unwrap();
                assert_eq!((source.title(), source.is_run()), (&*found.title, false));
                assert_eq!(source.look().root().current, 4711);
            }
        }
        "several" => {
            let error = Source::named("orders").unwrap_err();
            assert!(error.contains("give one of the PIDs") && error.contains(&what), "{error}");
        }
        _ => panic!("{role}"),
    }
}

#[test]
fn an_announced_ledger_is_found_while_its_program_runs_and_after_it_was_killed() {
    let runtime = runtime();
    let program = Program::start(runtime.path(), "announce", "orders");
    let pid = program.pid();
    within(runtime.path(), "running", &pid);
    let second = Program::start(runtime.path(), "announce", "orders");
    within(runtime.path(), "several", &pid);
    within(runtime.path(), "several", &second.pid());
    drop(program);
    // The running program's ledger is chosen, not the one that the killed program left.
    drop(second);
    let third = Program::start(runtime.path(), "announce", "orders");
    within(runtime.path(), "running", &third.pid());
    let pid = third.pid();
    drop(third);
    within(runtime.path(), "ended", &pid);
}

#[test]
fn a_program_that_shares_its_ledger_in_a_file_is_found_by_its_pid() {
    let folder = runtime();
    let path = folder.path().join("a ledger");
    let program = Program::start(folder.path(), "share", path.to_str().unwrap());
    let pid = program.0.id();
    let found = find::by_pid(pid).unwrap();
    assert_eq!((found.kind, found.pid, &found.path), (Kind::Mapped, pid, &path));
    let source = Source::of_pid(pid).unwrap();
    assert!(source.title().starts_with(path.to_str().unwrap()) && source.path() == path);
    assert_eq!(source.look().root().current, 4711);
    assert_eq!(Source::named(path.to_str().unwrap()).unwrap().look().root().current, 4711);
}

#[test]
fn who_has_no_ledger_is_told_what_to_do() {
    let (cat, folder) = (Command::new("cat").stdin(Stdio::piped()).spawn().unwrap(), runtime());
    let program = Program(cat);
    let error = find::by_pid(program.0.id()).unwrap_err();
    assert!(error.contains("has no ledger: give a process of"), "{error}");
    let error = find::by_pid(4_194_305).unwrap_err();
    assert_eq!(error, "there is no process 4194305, and none of that number left a ledger");
    let error = Source::named("no such name").unwrap_err();
    assert!(error.contains("is no PID, no file, and no ledger"), "{error}");
    let missing = folder.path().join("x");
    assert!(Source::named(missing.to_str().unwrap()).unwrap_err().contains("No such file"));
}

//! `ledgerline set`, as a user runs it: limits of a run and of a ledger in a file, while their programs are running.

use crate::support::{self, Shared, groups, number, scratch, stderr};
use ledgerline::{Ledger, Limit};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

fn ledgerline(subcommand: &str, arguments: &[&str]) -> Output {
    support::ledgerline().arg(subcommand).args(arguments).output().expect("the command runs")
}

fn done(subcommand: &str, arguments: &[&str]) -> String {
    let output = ledgerline(subcommand, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the exit status, and the single line with the reason.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = ledgerline("set", arguments);
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = stderr(&output);
    (output.status.code().expect("an exit"), text)
}

fn because(arguments: &[&str], why: &[&str]) {
    let (code, text) = refused(arguments);
    assert!(why.iter().all(|why| text.contains(why)), "{arguments:?}: {text}");
    assert_eq!((code, text.lines().count()), (1, 1), "{text}");
    assert!(text.starts_with("ledgerline: set: "), "{text}");
}

#[test]
fn limits_of_a_ledger_in_a_file_are_set_together_and_told_as_they_were_and_are() {
    let file = Shared::new("together");
    let ledger = Ledger::builder().create_in(&file.1).unwrap();
    let acme = ledger.root().create("acme").unwrap();
    acme.set_max(Limit::units(1 << 30)).unwrap();
    let watch = ledger.root().watch().unwrap();
    let at = |arguments: &[&str]| done("set", &[&["--file", file.path()], arguments].concat());
    assert_eq!(
        at(&["/acme", "high=200M", "memory.max=300M", "low=8M", "min=4096"]),
        "/acme: high was max, is 200M\n/acme: max was 1G, is 300M\n/acme: low was 0, is 8M\n\
         /acme: min was 0, is 4K\n"
    );
    assert_eq!((acme.max(), acme.high()), (Limit::units(300 << 20), Limit::units(200 << 20)));
    assert_eq!((acme.low(), acme.min()), (Limit::units(8 << 20), Limit::units(4096)));
    let mut told = 0;
    while told < 5 {
        told = watch.wait(Some(Duration::from_secs(60))).unwrap().expect("it is told").limits;
    }
    assert_eq!(told, 5, "its own first limit, and these four");
    assert_eq!(at(&["acme", "max=300M"]), "/acme: max is 300M, as before\n");
    let json: Value =
        serde_json::from_str(&at(&["--json", "/acme", "max=max", "high=1K"])).unwrap();
    let expected = serde_json::json!({
        "schema": "ledgerline/set.v1",
        "group": "/acme",
        "limits": {
            "max": { "was": 300 << 20, "is": "max" },
            "high": { "was": 200 << 20, "is": 1024 },
        },
        "above": 0,
    });
    assert_eq!(json, expected);
    assert_eq!((acme.max(), acme.high()), (Limit::MAX, Limit::units(1024)));
}

#[test]
fn a_max_below_what_is_in_use_is_refused_with_who_holds_it_unless_it_is_to_hold_now() {
    let file = Shared::new("busy");
    let ledger = Ledger::builder().create_in(&file.1).unwrap();
    let acme = ledger.root().create("acme").unwrap();
    let [one, two] = ["one", "two"].map(|name| acme.create(name).unwrap());
    let _held = [one.try_charge(300 << 20).unwrap(), two.try_charge(100 << 20).unwrap()];
    ledger.root().drain();
    because(
        &["--file", file.path(), "/acme", "high=1M", "max=256M"],
        &[
            "/acme: max cannot be 256M: 400.0M are in use, 144.0M too much",
            "/acme/one holds 300.0M, /acme/two holds 100.0M",
            "use --now",
        ],
    );
    assert_eq!((acme.high(), acme.events().limits), (Limit::MAX, 0), "nothing was changed");
    let text = done("set", &["--file", file.path(), "--now", "/acme", "max=256M", "high=1M"]);
    assert_eq!(
        text,
        "/acme: max was max, is 256M\n/acme: high was max, is 1M\n\
         /acme: 144.0M above it: nothing more is let in until that is returned\n"
    );
    assert!(acme.try_charge(1 << 20).is_err());
}

#[test]
fn what_cannot_be_set_is_refused_in_one_line_that_says_why_and_changes_nothing() {
    let (file, counters, empty) = (Shared::new("l"), Shared::new("c"), Shared::new("e"));
    let ledger = Ledger::builder().create_in(&file.1).unwrap();
    let acme = ledger.root().create("acme").unwrap();
    let bad = ledger.root().create("bad").unwrap();
    bad.charge_units(1000).unwrap();
    let places = ledgerline::stat::Places::single("machine").unwrap();
    let _counters =
        ledgerline::stat::Counters::<ledgerline::stat::numa::NumaItem>::builder(&places)
            .create_in(&counters.1)
            .unwrap();
    // Its usage, in row 2.
    let usage = 4096 + 2 * 256 + 8;
    std::os::unix::fs::FileExt::write_all_at(&file.1, &(1u64 << 60).to_le_bytes(), usage).unwrap();
    let at = |path: &str, why: &[&str]| because(&["--file", file.path(), path, "max=1M"], why);
    at("/acem", &["there is no group \"/acem\" (like /acme?)"]);
    at("/bad", &["\"/bad\" is damaged"]);
    let on = |file: &str, why: &str| because(&["--file", file, "/", "max=1M"], &[why]);
    on("/nonexistent/ledger", "No such file");
    on(empty.path(), "is not a ledger");
    on("/dev/null", "is not a file");
    on(counters.path(), "is a table of counters, which has no limits");
    because(&["--pid", "4194305", "/", "max=1M"], &["there is no process 4194305"]);
    // Another process than this one, which has the ledgers of concurrent tests.
    let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    because(&["--pid", &other.id().to_string(), "/", "max=1M"], &["has no ledger"]);
    other.kill().and_then(|()| other.wait()).unwrap();
    for line in [
        &["--file", file.path(), "/acme", "max=1M", "max=2M"][..],
        &["--file", file.path(), "/acme", "swap=1M"],
        &["--file", file.path(), "/acme", "max=lots"],
        &["--file", file.path(), "/acme", "low=1M", "--now"],
        &["--file", file.path(), "/acme"],
        &["/acme", "max=1M"],
        &["--file", file.path(), "--pid", "1", "/acme", "max=1M"],
    ] {
        assert_eq!(refused(line).0, 2, "{line:?}");
    }
    assert_eq!((acme.max(), acme.events().limits), (Limit::MAX, 0));
}

#[test]
fn a_ledger_that_keeps_its_limits_to_itself_says_so() {
    let file = Shared::new("kept");
    let ledger = Ledger::builder().steerable(false).create_in(&file.1).unwrap();
    because(&["--file", file.path(), "/", "max=1M"], &["keeps its limits to itself", "steerable"]);
    assert_eq!(ledger.root().max(), Limit::MAX);
    assert!(done("show", &[file.path(), "/", "memory.max"]) == "max\n", "it may be looked at");
}

#[test]
fn the_root_of_a_ledger_that_follows_its_container_keeps_that_limit() {
    let file = Shared::new("container");
    let settings = ledgerline::container::Settings::new().by_hand();
    let ledger = Ledger::builder().container_with(settings).create_in(&file.1).unwrap();
    let acme = ledger.root().create("acme").unwrap();
    let root = ledger.root().max();
    because(&["--file", file.path(), "/", "max=1T"], &["follows the container's limit"]);
    because(&["--file", file.path(), "/(untracked)", "max=1M"], &["would refuse nothing"]);
    done("set", &["--file", file.path(), "/acme", "max=1M"]);
    done("set", &["--file", file.path(), "/", "high=1M"]);
    assert_eq!((ledger.root().max(), acme.max()), (root, Limit::units(1 << 20)));
    assert_eq!(ledger.root().high(), Limit::units(1 << 20));
}

/// Returns whether this process is root's; only root can become another user.
fn is_root() -> bool {
    // SAFETY: a plain call.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("skipped: only root can run a command as another user");
    }
    root
}

/// Runs the command as the user `nobody`, who can read and execute it.
fn as_nobody(binary: &Path, arguments: &[&str]) -> Output {
    use std::os::unix::process::CommandExt;
    Command::new(binary)
        .arg("set")
        .args(arguments)
        .uid(65534)
        .gid(65534)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

#[test]
fn only_the_owner_and_root_change_limits() {
    if !is_root() {
        return;
    }
    // In a folder that all users may enter.
    let folder = tempfile::Builder::new().prefix("ledgerline-set").tempdir().unwrap();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(folder.path(), 0o755);
    let binary = folder.path().join("ledgerline");
    support::copy_executable(support::binary(), &binary);
    let path = folder.path().join("ledger");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let ledger = Ledger::builder().create_in(&file).unwrap();
    // Even if all users may write to it.
    open(&path, 0o666);
    let name = path.to_str().unwrap();
    let output = as_nobody(&binary, &["--file", name, "/", "max=1M"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("is user 0's, and this is user 65534: only its owner and root"),
        "{said}"
    );
    let (mut run, _, _) = support::started(&["sh", "-c", "echo started; read line"]);
    let output = as_nobody(&binary, &["--pid", &run.id().to_string(), "/", "max=1M"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is user 0's, and this is user 65534"), "{said}");
    drop(run.stdin.take());
    run.wait().unwrap();
    assert_eq!(ledger.root().max(), Limit::MAX);
    // A file that this user owns, to which root may write, too.
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    assert!(as_nobody(&binary, &["--file", name, "/", "max=1M"]).status.success());
    assert_eq!(ledger.root().max(), Limit::units(1 << 20));
    open(&path, 0o444);
    let output = as_nobody(&binary, &["--file", name, "/", "max=2M"]);
    assert!(stderr(&output).contains("may only be read"), "{}", stderr(&output));
    done("set", &["--file", name, "/", "max=3M"]);
}

/// A Python program that grows by a number of megabytes for each line that it reads, and prints whether it could.
const GROWS: &str = "
import sys
kept = []
print('started', flush=True)
for line in sys.stdin:
    try:
        kept.append(bytearray(int(line) << 20))
        print('grown', flush=True)
    except MemoryError:
        print('MemoryError', flush=True)
";

/// A run of that program; its account goes to a file.
struct Growing {
    run: Child,
    lines: Lines<BufReader<ChildStdout>>,
    account: PathBuf,
}

impl Growing {
    fn start(python: &str, options: &[&str]) -> Growing {
        let account = scratch("account.json");
        let mut run = support::ledgerline()
            .arg("run")
            .args(options)
            .args([
                "--by",
                "process",
                "--json",
                account.to_str().unwrap(),
                "--",
                python,
                "-c",
                GROWS,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut lines = BufReader::new(run.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "started");
        Growing { run, lines, account }
    }

    fn pid(&self) -> String {
        self.run.id().to_string()
    }

    fn grow(&mut self, megabytes: u32) -> String {
        writeln!(self.run.stdin.as_mut().expect("piped"), "{megabytes}").expect("it reads");
        self.lines.next().expect("a line").expect("text")
    }

    /// Returns the account as JSON, and as text.
    fn end(mut self) -> (Value, String) {
        drop(self.run.stdin.take());
        let output = self.run.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", stderr(&output));
        let text = std::fs::read_to_string(&self.account).expect("an account");
        std::fs::remove_file(&self.account).expect("it can be removed");
        (serde_json::from_str(&text).expect("JSON"), stderr(&output))
    }
}

#[test]
fn a_running_programs_max_is_lowered_raised_and_taken_away() {
    let Some(python) = support::python() else { return };
    let mut run = Growing::start(python, &[]);
    let pid = run.pid();
    assert_eq!(run.grow(100), "grown");
    because(&["--pid", &pid, "/", "max=64M"], &["/: max cannot be 64M", "too much", "python3"]);
    assert_eq!(done("set", &["--pid", &pid, "/", "max=200M"]), "/: max was max, is 200M\n");
    assert_eq!(done("show", &["--pid", &pid, "/", "memory.max"]), "209715200\n");
    assert_eq!((run.grow(50), run.grow(100)), ("grown".to_owned(), "MemoryError".to_owned()));
    assert_eq!(done("set", &["--pid", &pid, "/", "max=400M"]), "/: max was 200M, is 400M\n");
    assert_eq!(run.grow(100), "grown");
    let above = done("set", &["--pid", &pid, "--now", "/", "max=128M"]);
    assert!(above.starts_with("/: max was 400M, is 128M\n/: "), "{above}");
    // It had not even the memory to print that.
    assert_eq!(done("show", &["--pid", &pid, "memory.max"]), "134217728\n");
    assert_eq!(done("set", &["--pid", &pid, "/", "max=max"]), "/: max was 128M, is max\n");
    assert_eq!(run.grow(200), "grown");
    assert_eq!(done("set", &["--pid", &pid, "/", "max=900M", "high=1G"]).lines().count(), 2);
    let (account, text) = run.end();
    support::check(&account);
    let root = &groups(&account)[0];
    assert_eq!((number(root, "max"), number(root, "high")), (900 << 20, 1 << 30));
    assert!(number(root, "refused") >= 1, "{root}");
    assert!(text.contains("max 900M"), "{text}");
    assert!(!text.contains("damaged") && !text.contains("makes no sense"), "{text}");
}

#[test]
fn a_runs_new_max_has_the_reserve_inside_as_its_old_one() {
    let Some(python) = support::python() else { return };
    let mut run = Growing::start(python, &["--max", "512M"]);
    let pid = run.pid();
    assert_eq!(done("show", &["--pid", &pid, "memory.max"]), "536870912\n");
    assert_eq!(done("set", &["--pid", &pid, "/", "max=300M"]), "/: max was 512M, is 300M\n");
    assert_eq!(done("show", &["--pid", &pid, "memory.max"]), "314572800\n");
    assert_eq!((run.grow(200), run.grow(100)), ("grown".to_owned(), "MemoryError".to_owned()));
    because(&["--pid", &pid, "/", "--now", "max=1K"], &["keeps 1.0M of it as its reserve"]);
    // One process alone.
    let tree = done("show", &["--json", "--pid", &pid]);
    let tree: Value = serde_json::from_str(&tree).unwrap();
    let row = groups(&tree)[1]["path"].as_str().unwrap();
    done("set", &["--pid", &pid, row, "max=250M"]);
    assert_eq!(run.grow(50), "MemoryError");
    because(&["--pid", &pid, "/python3", "max=1M"], &["(like /python3."]);
    let (account, text) = run.end();
    support::check(&account);
    let [root, process] = [0, 1].map(|row| &groups(&account)[row]);
    assert_eq!((number(root, "max"), number(process, "max")), (300 << 20, 250 << 20));
    assert!(!text.contains("damaged"), "{text}");
}

#[test]
fn a_process_that_has_ended_has_no_limits_to_set() {
    let script = "sort /dev/null; echo started; read line";
    let (mut run, _, _) = support::started(&["sh", "-c", script]);
    let pid = run.id().to_string();
    let start = std::time::Instant::now();
    let row = loop {
        let tree: Value = serde_json::from_str(&done("show", &["--json", "--pid", &pid])).unwrap();
        let ended = groups(&tree).iter().find(|group| group["state"] == "exited");
        if let Some(row) = ended {
            break row["path"].as_str().unwrap().to_owned();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{tree:#}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(row.starts_with("/sort."), "{row}");
    because(&["--pid", &pid, &row, "max=1M"], &["has ended, so it charges nothing"]);
    drop(run.stdin.take());
    run.wait().unwrap();
}

#[test]
fn a_limit_that_a_program_wrote_over_is_damage_also_after_it_was_set() {
    let Some(python) = support::python() else { return };
    let run = Growing::start(python, &["--max", "512M"]);
    let pid = run.pid();
    done("set", &["--pid", &pid, "/", "max=300M"]);
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let is_ledger = |path: &PathBuf| {
        path.read_link().is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:ledgerline-"))
    };
    let path = fds.map(|fd| fd.unwrap().path()).find(is_ledger).expect("the run has it open");
    let file = File::options().write(true).open(path).unwrap();
    // The root's max, in row 0.
    let max = 4096 + 128;
    std::os::unix::fs::FileExt::write_all_at(&file, &(700u64 << 20).to_le_bytes(), max).unwrap();
    because(&["--pid", &pid, "/", "max=400M"], &["\"/\" is damaged"]);
    let (account, _) = run.end();
    assert_eq!(
        (&account["damaged"], &groups(&account)[0]["state"]),
        (&true.into(), &"damaged".into())
    );
}

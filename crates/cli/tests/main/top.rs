//! `ledgerline top` for scripts: one look as a table or as JSON, a line of JSON for each look, refusals.

use crate::support;
use ledgerline::{Ledger, Limit};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const M: u64 = 1 << 20;

/// A ledger that is removed with the test.
struct Shared {
    path: PathBuf,
    file: File,
    ledger: Ledger,
}

impl Shared {
    fn new() -> Shared {
        let path = support::scratch("top.ledger");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let ledger = Ledger::builder().batch(1).create_in(&file).unwrap();
        let acme = ledger.root().create("acme").unwrap();
        acme.set_max(Limit::units(400 * M)).unwrap();
        for (name, size) in [("q1", 100), ("q2", 200)] {
            acme.create(name).unwrap().try_charge_units(size * M).unwrap();
        }
        ledger.root().create("bolt").unwrap().try_charge_units(50 * M).unwrap();
        Shared { path, file, ledger }
    }

    fn top(&self, arguments: &[&str]) -> Output {
        let top = &mut support::ledgerline();
        top.arg("top").args(arguments).arg(&self.path).output().expect("the command runs")
    }

    fn shown(&self, arguments: &[&str]) -> String {
        let output = self.top(arguments);
        assert!(output.status.success(), "{}", support::stderr(&output));
        assert!(output.stderr.is_empty(), "{}", support::stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn one_look_is_a_table_that_options_sort_fold_filter_and_cut() {
    let shared = Shared::new();
    let expected = "\
group   current    peak  of max     max
/        350.0M  350.0M       -     max
  acme   300.0M  300.0M     75%  400.0M
    q2   200.0M  200.0M       -     max
    q1   100.0M  100.0M       -     max
  bolt    50.0M   50.0M       -     max
";
    assert_eq!(shared.shown(&["--once", "--interval", "0"]), expected);
    let names = |arguments: &[&str]| {
        let text = shared.shown(&[&["--once", "--interval", "0"], arguments].concat());
        let names =
            text.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&["--sort", "name"]), "/ acme q1 q2 bolt");
    assert_eq!(names(&["--reverse"]), "/ bolt acme q1 q2");
    assert_eq!(names(&["--depth", "1"]), "/ acme bolt");
    assert_eq!(names(&["--filter", "Q1"]), "/ acme q1");
    assert_eq!(names(&["--flat", "--sort", "peak"]), "/ /acme /acme/q2 /acme/q1 /bolt");
    assert_eq!(names(&["--rows", "2"]), "/ acme ...");
}

#[test]
fn two_looks_an_interval_apart_give_rates() {
    let shared = Shared::new();
    let bolt = shared.ledger.find("/bolt").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (text, read) = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: the flag orders nothing else.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                bolt.try_charge_units(1).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let text = shared.shown(&["--once", "--interval", "0.2"]);
        let json = shared.shown(&["--once", "--json", "--interval", "0.2", "--sort", "charges"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (text, serde_json::from_str::<Value>(&json).unwrap())
    });
    assert!(text.lines().next().unwrap().contains("growth/s  of max  limits/s"), "{text}");
    let group = &read["groups"][1];
    assert_eq!(group["path"], "/bolt", "what is charged most comes first: {read:#}");
    for rate in ["growth_per_second", "charges_per_second"] {
        assert!(group[rate].as_f64().unwrap() > 0.0, "{rate}: {group:#}");
    }
    let still = read["groups"].as_array().unwrap().iter().find(|group| group["path"] == "/acme");
    assert_eq!(still.unwrap()["charges_per_second"], 0.0);
}

#[test]
fn any_process_of_a_run_leads_to_its_ledger_and_without_one_all_are_listed() {
    let (mut run, program, _lines) = support::started(&["sh", "-c", "echo $$; read line"]);
    let supervisor = run.id().to_string();
    for pid in [&supervisor, &program] {
        let output = support::ledgerline().args(["top", "--once", "--interval", "0", pid]).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains(&format!("sh.{program}")),
            "{pid}: {text}{}",
            support::stderr(&output)
        );
    }
    let listed = |format| {
        let output = support::ledgerline().args(["top", format]).output().unwrap();
        assert!(output.status.success(), "{}", support::stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let text = listed("--once");
    assert!(text.lines().any(|line| line.trim_start().starts_with(&supervisor)), "{text}");
    let read: Value = serde_json::from_str(&listed("--json")).unwrap();
    let pids = |one: &Value| one["pid"] == run.id() && one["running"] == true;
    assert!(read["ledgers"].as_array().unwrap().iter().any(pids), "{read:#}");
    drop(run.stdin.take());
    run.wait().unwrap();
}

/// Two commands read a ledger in different ways: `show` maps it and takes the account, `top` copies it out of the file.
#[test]
fn top_and_show_say_the_same_of_a_run_that_is_still() {
    let script = "ls / >/dev/null; ls /nowhere 2>/dev/null; echo $$; read line";
    let (mut run, program, _lines) = support::started(&["sh", "-c", script]);
    let supervisor = run.id().to_string();
    let json = |arguments: &[&str]| {
        let output = support::ledgerline().args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", support::stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    // A process's last holding is `at_exit` in the account, and its row's holding in `top`.
    let figures = |document: &Value| {
        let groups = document["groups"].as_array().unwrap().iter().map(|group| {
            let exited = group["state"] == "exited";
            let held = if exited { "at_exit" } else { "current" };
            let held = group.get(held).unwrap_or(&group["current"]).to_string();
            let names = ["pid", "peak", "charges", "uncharges", "refused"];
            let figures = names.map(|name| group[name].to_string());
            (group["path"].as_str().unwrap().to_owned(), (exited, held, figures))
        });
        groups.collect::<std::collections::BTreeMap<_, _>>()
    };
    // The end of a process is seen within a moment.
    let give_up = Instant::now() + Duration::from_secs(60);
    let shown = loop {
        let shown = figures(&json(&["show", "--json", "--pid", &supervisor]));
        if shown.iter().filter(|(path, group)| path.ends_with("/ls") && group.0).count() == 2 {
            break shown;
        }
        assert!(Instant::now() < give_up, "both ended: {shown:#?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(shown.contains_key(&format!("/sh.{program}")), "{shown:#?}");
    let topped = figures(&json(&["top", "--once", "--json", "--interval", "0", &supervisor]));
    assert_eq!(topped, shown);
    drop(run.stdin.take());
    run.wait().unwrap();
}

/// The variable that tells a process of a test to announce a ledger and wait.
const ROLE: &str = "LEDGERLINE_TEST_ANNOUNCES";

#[test]
fn in_a_process_of_its_own() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let ledger = Ledger::builder().announce("orders").expect("a runtime directory");
    let _charge = ledger.root().create("acme").unwrap().try_charge(3 * M).unwrap();
    println!("announced");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn an_announced_ledger_is_watched_by_its_name_and_says_when_its_program_was_killed() {
    let runtime = tempfile::tempdir().unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(runtime.path(), permissions).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "top::in_a_process_of_its_own", "--nocapture"])
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("announced")));
    let top = |arguments: &[&str]| {
        let mut top = support::ledgerline();
        top.arg("top").args(arguments).env("XDG_RUNTIME_DIR", runtime.path());
        let output = top.output().unwrap();
        assert!(output.status.success(), "{}", support::stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let pid = program.id().to_string();
    for name in ["orders", &pid] {
        let text = top(&["--once", "--interval", "0", name]);
        assert!(text.contains("acme") && !text.contains("ended"), "{text}");
    }
    program.kill().unwrap();
    program.wait().unwrap();
    let text = top(&["--once", "--interval", "0", "orders"]);
    assert!(text.contains("acme") && text.ends_with("The program has ended.\n"), "{text}");
    let last: Value =
        serde_json::from_str(&top(&["--json", "--interval", "0.01", "orders"])).unwrap();
    assert_eq!((&last["ended"], &last["groups"][1]["path"]), (&true.into(), &"/acme".into()));
}

#[test]
fn json_without_once_is_a_line_for_each_look_until_the_program_ends() {
    let (mut run, line, _) = support::started(&["sh", "-c", "echo started; read line"]);
    assert_eq!(line, "started");
    let mut top = support::ledgerline()
        .args(["top", "--json", "--interval", "0.05", "--merge", &run.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut read = || serde_json::from_str::<Value>(&lines.next()?.unwrap()).ok();
    let first = read().expect("a look");
    assert_eq!(first["ended"], false, "{first:#}");
    let program = first["groups"].as_array().unwrap().iter().find(|group| group["name"] == "sh");
    assert_eq!(program.unwrap_or_else(|| panic!("{first:#}"))["groups"], 1);
    drop(run.stdin.take());
    run.wait().unwrap();
    let last = std::iter::from_fn(&mut read).last().expect("another look");
    assert_eq!(last["ended"], true, "{last:#}");
    assert!(top.wait().unwrap().success());
}

#[test]
fn a_reader_who_has_seen_enough_ends_it() {
    let shared = Shared::new();
    let mut top = support::ledgerline()
        .args(["top", "--json", "--interval", "0.01"])
        .arg(&shared.path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(top.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with('{') && line.ends_with("}\n"), "{line}");
    drop(reader);
    assert!(top.wait().unwrap().success());
}

#[test]
fn what_cannot_be_watched_is_refused_in_one_line_that_says_what_to_do() {
    let shared = Shared::new();
    let refused = |arguments: &[&str]| {
        let output = support::ledgerline().arg("top").args(arguments).output().unwrap();
        assert!(output.stdout.is_empty());
        let text = support::stderr(&output);
        (output.status.code(), text)
    };
    let path = shared.path.to_str().unwrap();
    let cases: [(&[&str], &str); 6] = [
        (&[path], "no terminal: --once prints one look as a table, --json a line for each look"),
        (&["/nonexistent/ledger"], "/nonexistent/ledger"),
        (&["/dev/null"], "is not a file"),
        (&["--once", env!("CARGO_MANIFEST_PATH")], "is not a ledger"),
        (&["--interval", "0", path], "--interval is at least 0.01, except with --once"),
        (&["4194305"], "there is no process 4194305"),
    ];
    for (arguments, message) in cases {
        let (code, text) = refused(arguments);
        assert!(text.contains(message), "{arguments:?}: {text}");
        assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
        assert!(text.starts_with("ledgerline: top: "), "{text}");
    }
    for bad in [&["--interval", "-1", path][..], &["--sort", "bogus", path]] {
        assert_eq!(refused(bad).0, Some(2));
    }
}

#[test]
fn what_another_process_wrote_for_a_name_steers_no_terminal() {
    let shared = Shared::new();
    shared.ledger.root().create("a_name_of_ours").unwrap().try_charge_units(5).unwrap();
    let mut start = vec![0; 64 << 10];
    shared.file.read_exact_at(&mut start, 0).unwrap();
    let name = b"a_name_of_ours";
    let at = start.windows(name.len()).position(|window| window == name).expect("it is there");
    shared.file.write_all_at(b"\x1b[2J\xe2\x80\xae\xc2\x9b/\n\0", at as u64).unwrap();
    for arguments in [&["--once", "--interval", "0"][..], &["--once", "--interval", "0", "--json"]]
    {
        let text = shared.shown(arguments);
        assert!(text.contains("u001b") || text.contains("u{1b}"), "{text:?}");
        let plain = |letter: char| letter == '\n' || ('\x20'..'\x7f').contains(&letter);
        assert!(text.chars().all(plain), "{text:?}");
    }
}

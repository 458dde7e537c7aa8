//! `ledgerline run --record` and `ledgerline report`, with real programs.

use crate::support::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

fn report(arguments: &[&str], file: &Path) -> Output {
    ledgerline().arg("report").args(arguments).arg(file).output().expect("the command starts")
}

fn json(file: &Path) -> Value {
    let output = report(&["--json"], file);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// A shell that grows by a few MiB, has children that do, and asks for more than the limit.
const GROWS: &str = "x=$(head -c 3000000 /dev/zero | tr '\\0' a); sleep 0.1; \
                     for i in 1 2 3; do head -c 3000000 /dev/zero | sort -S 200M >/dev/null; done; sleep 0.1; exit 3";

/// Waits for a condition that is true soon.
fn until(there: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !there() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_run_is_recorded_and_reported() {
    let file = scratch("job.rec");
    let arguments = ["--by", "process", "--max", "64M", "--record-every", "5ms", "--record"];
    let output = ledgerline()
        .arg("run")
        .args(arguments)
        .arg(&file)
        .args(["--", "sh", "-c", GROWS])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let read = json(&file);
    assert_eq!(read["ended"], "exit code 3");
    assert_eq!(read["torn_bytes"], 0);
    let groups = read["groups"].as_array().unwrap();
    let root = &groups[0];
    assert_eq!((&root["path"], &root["max"]), (&"/".into(), &(64_u64 << 20).into()));
    let peak = root["peak"].as_u64().unwrap();
    assert!((3_000_000..=64 << 20).contains(&peak), "{peak}");
    let points = root["points"].as_array().unwrap();
    assert!(points.iter().any(|point| point[3].as_u64().unwrap() == peak), "the peak is in it");
    assert!(root["peak_at"].as_f64().unwrap() > 0.0);
    let is_sort = |group: &&Value| group["path"].as_str().unwrap().starts_with("/sort.");
    let sorts: Vec<&Value> = groups.iter().filter(is_sort).collect();
    assert!(!sorts.is_empty() && sorts.iter().all(|sort| sort["ended"].is_f64()), "{groups:#?}");
    // `sort` asks for 200M at once, is refused, and takes less.
    let refused: u64 = points.iter().map(|point| point[5].as_u64().unwrap()).sum();
    assert_eq!(refused, root["refused"].as_u64().unwrap());
    assert!(refused >= 3, "{root}");

    let text = String::from_utf8(report(&[], &file).stdout).unwrap();
    assert!(text.starts_with("sh\n"), "the program alone: {text}");
    for words in ["exit code 3", "of max 64.0M", "charges refused", "/sort."] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let svg = report(&["--svg", "--title", "a <job>"], &file).stdout;
    let svg = String::from_utf8(svg).unwrap();
    assert!(
        svg.starts_with("<svg")
            && svg.contains("a &lt;job&gt;")
            && svg.contains("class=\"refused\"")
            && svg.contains("sort.")
    );
    let page = scratch("page.html");
    let over = report(&["-o", file.to_str().unwrap()], &file);
    assert!(stderr(&over).contains("-o names the recording itself"), "{}", stderr(&over));
    let output = report(&["-o", page.to_str().unwrap()], &file);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("/sort."));
}

#[test]
fn a_killed_supervisor_leaves_what_it_recorded() {
    // The last one is killed when the file has content.
    const LONG: u64 = 150;
    for milliseconds in [0, 1, 3, 10, 40, LONG] {
        let file = scratch("killed.rec");
        let mut child = ledgerline()
            .args(["run", "--by", "process", "--record-every", "1ms", "--record"])
            .arg(&file)
            .args(["--", "sh", "-c", "while :; do sh -c 'x=1'; sleep 0.01; done"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        // The file exists, with its header, before the program starts.
        until(|| file.exists());
        std::thread::sleep(Duration::from_millis(milliseconds));
        until(|| milliseconds < LONG || file.metadata().unwrap().len() >= 200);
        child.kill().unwrap();
        child.wait().unwrap();
        let output = report(&["--json"], &file);
        // SAFETY: kill takes no pointers; the group is the child's own, and the program is still in it.
        unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
        if !output.status.success() {
            assert!(milliseconds < LONG, "{}", stderr(&output));
            assert!(stderr(&output).contains("nothing stands yet"), "{}", stderr(&output));
            continue;
        }
        let read: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(read["ended"], Value::Null);
        assert_eq!(read["groups"][0]["path"], "/");
        let text = String::from_utf8(report(&[], &file).stdout).unwrap();
        assert!(text.contains("ended first"), "{text}");
    }
}

#[test]
fn a_recording_that_cannot_go_on_is_said_once_and_the_run_goes_on() {
    let file = scratch("full.rec");
    let busy = "echo up; read x; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do \
                for j in 1 2 3 4 5 6 7 8 9; do true | cat; done; done; exit 7";
    let mut child = ledgerline()
        .args(["run", "--record-every", "1ms", "--record"])
        .arg(&file)
        .args(["--", "sh", "-c", busy])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    // The program may be up before anything of it was recorded.
    let recorded = || report(&[], &file).status.success();
    assert!((0..1000).any(|_| recorded() || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        false
    }));
    // From now on the supervisor's files cannot grow, like on a full disk.
    let length = file.metadata().unwrap().len();
    let limit = libc::rlimit { rlim_cur: length, rlim_max: libc::RLIM_INFINITY };
    let pid = child.id().cast_signed();
    // SAFETY: the call reads a live struct, and writes nothing.
    let set =
        unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let told = stderr(&output);
    assert_eq!(told.matches("--record: writing").count(), 1, "{told}");
    assert!(told.contains("- cat x"), "the account is printed: {told}");
    let read = json(&file);
    assert_eq!((&read["groups"][0]["path"], &read["torn_bytes"]), (&"/".into(), &0.into()));
}

#[test]
fn a_program_that_runs_is_recorded_from_outside_until_it_ends() {
    let script = "echo up; read x; x=$(head -c 3000000 /dev/zero | tr '\\0' a); sleep 0.3";
    let (mut child, first, _lines) = started(&["sh", "-c", script]);
    assert_eq!(first, "up");
    let file = scratch("outside.rec");
    let recorder = ledgerline()
        .args(["record", &child.id().to_string(), "--every", "5ms", "-o"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until(|| file.exists());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let read = json(&file);
    let ended = read["ended"].as_str().unwrap();
    assert!(["the process ended", "the ledger cannot be read any more"].contains(&ended));
    assert!(read["groups"][0]["peak"].as_u64().unwrap() > 3_000_000);
    assert!(read["title"].as_str().unwrap().contains(&child.id().to_string()));
}

#[test]
fn what_cannot_be_recorded_or_reported_is_said_in_one_line() {
    let file = scratch("any.rec");
    let name = file.to_str().unwrap();
    for (arguments, says) in [
        (&["run", "--record", "/nonexistent/job.rec", "true"][..], "cannot be written"),
        (&["run", "--record", "/dev/null", "true"], "not a regular file"),
        (&["run", "--record", name, "--record-every", "soon", "true"], "is no time"),
        (&["run", "--record", name, "--record-every", "0s", "true"], "from 1ms to 3600s"),
        (&["run", "--record", name, "--record-size", "1K", "true"], "from 256K to 256M"),
        (&["run", "--record", name, "--record-size", "much", "true"], "is not a size"),
        (&["record", "/nonexistent", "-o", name], "/nonexistent"),
        (&["record", "no-such-name", "-o", name], "no ledger that a program announced"),
        (&["record", "1", "-o", name, "--for", "soon"], "--for"),
        (&["record", "1", "-o", name, "--size=-1"], "is not a size from 256K"),
        (&["report", "/nonexistent"], "/nonexistent"),
        (&["report", "/"], "is not a file"),
        (&["report", "/dev/zero"], "is not a file"),
        (&["report", "/etc/passwd"], "is no recording"),
    ] {
        let output = ledgerline().args(arguments).output().unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains(says) && told.lines().count() == 1, "{arguments:?}: {told}");
    }
    assert!(!file.exists(), "what is refused makes no file");
}

#[test]
fn a_recording_does_not_go_over_the_ledger_that_it_is_of() {
    let file = scratch("own.ledger");
    let open = std::fs::File::options().read(true).write(true).create_new(true).open(&file);
    let _ledger = ledgerline::Ledger::builder().create_in(&open.unwrap()).unwrap();
    let before = std::fs::read(&file).unwrap();
    let name = file.to_str().unwrap();
    let output = ledgerline().args(["record", name, "-o", name, "--for", "1s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("-o names the ledger itself"), "{}", stderr(&output));
    assert!(std::fs::read(&file).unwrap() == before);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_recording_is_its_users_alone_and_has_no_word_of_the_command_line_unless_asked() {
    use std::os::unix::fs::MetadataExt;
    for (options, has_words) in
        [(&["--record"][..], false), (&["--record-command", "--record"], true)]
    {
        let file = scratch("secret.rec");
        let mut run = ledgerline();
        run.arg("run").args(options).arg(&file).args(["--", "sh", "-c", ": a-secret-word"]);
        assert!(run.output().unwrap().status.success());
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600);
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes.windows(13).any(|word| word == b"a-secret-word");
        assert_eq!(found, has_words, "{options:?}");
    }
}

#[test]
fn a_command_of_several_lines_heads_its_recording_on_one() {
    let file = scratch("lines.rec");
    let name = file.to_str().unwrap();
    let words = ["--record-command", "--record", name, "--", "sh", "-c", "set -e\n\ttrue\nexit 0"];
    let output = run(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(report(&[], &file).stdout).unwrap();
    assert!(text.starts_with("sh -c set -e ⏎ true ⏎ exit 0\n"), "{text}");
    let page = scratch("lines.html");
    assert!(report(&["-o", page.to_str().unwrap()], &file).status.success());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h1>sh -c set -e ⏎ true ⏎ exit 0</h1>"), "{page:.2000}");
}

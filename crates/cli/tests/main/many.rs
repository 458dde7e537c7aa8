//! `ledgerline run` with a very large number of processes.

use crate::support::*;
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn groups(document: &Value) -> &[Value] {
    document["groups"].as_array().expect("a list")
}

#[test]
fn ended_processes_share_a_row_by_program_and_nothing_of_them_is_lost() {
    let script = "i=0; while [ $i -lt 400 ]; do /bin/true; /bin/echo; i=$((i+1)); done";
    let (output, document) = account(&["--by", "process"], &["sh", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = groups(&document);
    // Processes with rows of their own, those that ended since the last look, and a row for each program.
    assert!(rows.len() < 400, "{}", rows.len());
    let mut processes = 0;
    for row in &rows[1..] {
        let folded = number(&row["processes"]);
        processes += folded.max(1);
        if folded > 0 {
            assert!(["/true", "/echo"].contains(&row["path"].as_str().unwrap()), "{row}");
            assert_eq!((row["state"].as_str(), number(&row["pid"])), (Some("exited"), 0));
        }
    }
    assert_eq!(processes, 801, "each program, and the shell");
    let sum = |of: &str| rows[1..].iter().map(|row| number(&row[of])).sum::<u64>();
    for of in ["charges", "uncharges"] {
        assert_eq!(sum(of), number(&rows[0][of]), "{of}");
    }
    let text = stderr(&output);
    // All of them are below the shell that started them.
    let shell = text.lines().position(|line| line.starts_with("`- sh ")).expect(&text);
    let echo =
        text.lines().position(|line| line.starts_with("   ") && line.contains("- echo x400 "));
    assert!(echo.is_some_and(|echo| echo > shell), "{text}");
}

#[test]
fn a_ledger_takes_no_more_for_many_processes_than_for_few() {
    let taken = |count: u32| {
        // A look every hundred processes, however fast they end and however busy the machine is.
        let script = format!(
            "i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); [ $((i % 100)) = 0 ] && sleep 0.2; done; :"
        );
        let (output, document) = account(&[], &["sh", "-c", &script]);
        assert!(output.status.success(), "{}", stderr(&output));
        number(&document["ledger_bytes"])
    };
    let (few, many) = (taken(400), taken(1_600));
    // Rows for all would take four times as much.
    assert!(many < 2 * few, "{few} bytes for 400, {many} for 1600");
}

#[test]
fn what_folded_processes_were_refused_is_still_told() {
    if !have("dd") {
        return;
    }
    // The largest request is made by a process in the middle; its peak is as small as the others'.
    let script = "i=0; while [ $i -lt 300 ]; do size=30; [ $i -eq 120 ] && size=70
        dd if=/dev/zero of=/dev/null bs=${size}M count=1 2>/dev/null; i=$((i+1)); done; :";
    let (output, document) = account(&["--max", "20M"], &["sh", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = groups(&document);
    let folded = rows.iter().find(|row| number(&row["processes"]) > 0).expect("a folded row");
    assert_eq!(folded["path"], "/dd");
    let refused: u64 = rows[1..]
        .iter()
        .filter(|row| row["path"].as_str().unwrap().matches('/').count() == 1)
        .map(|row| number(&row["refused"]))
        .sum();
    assert_eq!((refused, number(&rows[0]["refused"])), (300, 300), "one each");
    assert!(number(&folded["first_refused"]["size"]) >= 30 << 20, "{folded}");
    let largest = rows.iter().filter_map(|row| row["largest_refused"].as_u64()).max();
    assert!(largest.is_some_and(|largest| largest >= 70 << 20), "{largest:?}");
    let text = stderr(&output);
    let first = text.lines().find(|line| line.starts_with("First refused: dd (")).expect(&text);
    assert!(
        first.contains(") asked for 30.0 MiB at ") && first.contains(" of 20.0 MiB were in use.")
    );
    assert!(first.ends_with("The largest request that was refused: 70.0 MiB, by dd."), "{text}");
}

/// Returns the number of processes that found no row left; no other reason excludes any from the account.
fn left_out(account: &Value) -> u64 {
    let list = account["not_accounted"].as_array().expect("a list");
    let count = |one: &Value| {
        assert_eq!((&one["program"], &one["reason"]), (&Value::Null, &Value::from("no row left")));
        number(&one["processes"])
    };
    list.iter().map(count).sum()
}

/// Starts eighty shells, which all live when the last one is up. None of them allocates before it is a shell. Then a
/// process executes three programs, one after the other.
const AT_A_TIME: &str = "\
from subprocess import PIPE, Popen\n\
shells = [Popen(['sh', '-c', 'echo; read line'], stdin=PIPE, stdout=PIPE) for _ in range(80)]\n\
for shell in shells: shell.stdout.readline()\n\
Popen(['sh', '-c', 'exec sh -c \"exec true\"']).wait()\n\
for shell in shells: shell.communicate()\n\
print('all')\n";

#[test]
fn processes_that_find_no_row_left_run_as_plain_and_are_counted() {
    let Some(python) = python() else { return };
    let words = [python, "-c", AT_A_TIME];
    for (rows, strict) in [("64", false), ("64", true), ("128", true)] {
        let mut options = vec!["--by", "process", "--rows", rows];
        options.extend(strict.then_some("--strict"));
        let (output, account) = account(&options, &words);
        assert_eq!(output.stdout, b"all\n", "{}", stderr(&output));
        let accounted = groups(&account).len() as u64 - 1;
        if rows == "128" {
            assert_eq!((accounted, left_out(&account)), (1 + 80 + 3, 0));
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        } else {
            assert_eq!(accounted, 63, "the root has one");
            assert_eq!(left_out(&account), 1 + 80 + 1 - 63);
            assert!(stderr(&output).contains("run --rows"), "{}", stderr(&output));
            assert_eq!(output.status.code(), Some(if strict { 125 } else { 0 }));
        }
    }
    for options in [&["--rows", "1048576"][..], &["--rows", "1048576", "--max-heap", "1G"]] {
        let output = run(&[options, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    for (rows, why) in [("63", "63 is not in 64..=1048576"), ("many", "invalid digit")] {
        let output = run(&["--rows", rows, "--", "true"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

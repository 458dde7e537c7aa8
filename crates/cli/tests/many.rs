//! `ledgerline run` over more processes than anybody lists.

mod support;

use serde_json::Value;
use support::*;

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
    // Those with rows of their own, those that ended since the last look, and a row for each program.
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
    let line = text.lines().find(|line| line.contains("- echo ") || line.contains("─ echo "));
    assert!(line.is_some_and(|line| line.ends_with(" processes")), "{text}");
}

#[test]
fn a_ledger_takes_no_more_for_many_processes_than_for_few() {
    let taken = |count: u32| {
        // (A look every hundred, however fast processes end and however busy the machine is.)
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
    // The largest request is that of a process in the middle; its peak is as small as all others'.
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
    assert!(text.contains("First refused: 30.0M for /dd"), "{text}");
    assert!(text.contains("Largest: 70.0M for /dd"), "{text}");
}

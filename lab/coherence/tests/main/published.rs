//! The model against published layout changes with figures, out of sample.

use crate::golden;
use ledgerline_coherence::BadFile;
use ledgerline_coherence::published::{BUILT_IN, Case, Predicted, table, turns_on};
use std::fmt::Write as _;

/// The number of points in the README's table.
const POINTS: usize = 32;

fn all() -> Vec<Case> {
    BUILT_IN.iter().map(|(name, _)| Case::built_in(name).unwrap()).collect()
}

#[test]
fn every_file_of_the_folder_is_a_case_that_says_what_it_rests_on() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/published");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let mut files: Vec<String> = files.map(|file| file.into_string().unwrap()).collect();
    files.sort_unstable();
    let names: Vec<String> = BUILT_IN.iter().map(|(name, _)| format!("{name}.toml")).collect();
    assert_eq!(files, names);
    for case in all() {
        for said in [&case.title, &case.source, &case.says, &case.why_machine, &case.unit] {
            assert!(!said.is_empty(), "{}", case.name);
        }
        assert!(!case.assumes.is_empty() && !case.rows.is_empty(), "{}", case.name);
        let file = format!("{folder}/{}.toml", case.name);
        assert_eq!(Case::open(&file).unwrap().rows, case.rows, "{file}");
    }
}

/// Checks the README's claim. It fails if fewer signs are right, or fewer published figures are inside.
#[test]
fn every_sign_is_right_and_eight_cases_or_more_hold_every_published_figure() {
    let cases: Vec<_> = all()
        .into_iter()
        .map(|case| {
            let (rows, decided) = (case.predict(POINTS).unwrap(), case.decide().unwrap());
            (case, rows, decided)
        })
        .collect();
    assert!(cases.len() >= 10);
    let text = table(&cases);
    golden::same("published.txt", &text);
    for (case, rows, _) in &cases {
        assert!(rows.iter().all(Predicted::right_sign), "{}: {text}", case.name);
    }
    let inside = cases.iter().filter(|(_, rows, _)| rows.iter().all(Predicted::inside)).count();
    assert!(inside >= 8, "{text}");
    // A case of unpublished work whose answer differs between the ends says so.
    for (case, _, decided) in &cases {
        let work = decided.alone.iter().find(|alone| alone.name == "work");
        let told = decided.turns_on().any(|alone| alone.name == "work");
        let turns = work.is_some_and(|alone| turns_on(decided.best, alone.changes));
        assert_eq!(told, turns, "{}", case.name);
        let line = text.lines().find(|line| line.starts_with(&format!("{} ", case.name))).unwrap();
        assert_eq!(line.contains("work"), told, "{line}");
    }
    assert!(text.contains("work"), "{text}");
}

#[test]
fn unknown_work_widens_the_interval_and_is_told() {
    let file = |work: &str| {
        format!(
            r#"
title = "a limit leaves the line of a counter"
source = "a test"
says = "nothing"
unit = "% of charges"
machine = "haswell-ep-2699v3"
why_machine = "a test"
published = [{{ cpus = 72, change = 5 }}]
work = {{ {work}, source = "a test" }}
assumes = []
[fields]
usage = {{ before = 0, after = 128 }}
max = {{ before = 32, after = 0 }}
[[roles]]
name = "charge"
steps = [{{ work = 1.0 }}, {{ load = "max" }}, {{ times = 0.25, atomic = "usage" }}]
"#
        )
    };
    let width = |case: &Case| {
        let interval = case.predict(8).unwrap()[0].predicted;
        interval.high - interval.low
    };
    let known = Case::parse("known", &file("low = 8000, best = 8000, high = 8000")).unwrap();
    let unknown = Case::parse("unknown", &file("low = 1500, best = 4000, high = 8000")).unwrap();
    assert!(width(&unknown) > 1.5 * width(&known));
    let turns = |case: &Case| {
        let decided = case.decide().unwrap();
        decided.turns_on().any(|alone| alone.name == "work")
    };
    assert!(turns(&unknown) && !turns(&known));
}

/// Each mistake's name, the text that it replaces in a good case, and the replacement.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("not TOML", "[fields]", "[fields"),
    ("an unknown key", "unit = ", "units = "),
    ("no source", "source = \"Linux 8e5", "source = \" \" # \"Linux 8e5"),
    ("an unknown machine", "haswell-ep-2699v3", "abacus"),
    ("more CPUs than there are", "cpus = 16", "cpus = 1600"),
    ("no figure", "before = 4.2, after = 6.0", "before = 4.2"),
    ("nothing changes", "after = 6.0", "after = 4.2"),
    ("a fit without a time", "operations = 1e6", ""),
    ("a range upside down", "low = 0.85", "low = 8.5"),
    ("a range of no machine", "latency_scale = {", "latency = {"),
    ("a range beyond its bounds", "high = 1.9", "high = 190"),
    ("a field that is not there", "load_all = \"chain\"", "load_all = \"chains\""),
    ("a step of two kinds", "load_all = \"chain\"", "load = \"keys\", load_all = \"chain\""),
    ("times that are not said", "{ load_all", "{ times = \"often\", load_all"),
    ("times beyond reason", "{ load_all", "{ times = 1e9, load_all"),
    ("work that is not all", "work = 0.6", "work = 0.5"),
    ("an offset beyond reason", "before = 120", "before = 120000000000"),
    ("elements that lie on each other", "strides = [2048, 2048]", "strides = [0, 2048]"),
];

#[test]
fn a_bad_case_is_refused_in_one_line_that_says_where_and_what_is_expected() {
    let good = BUILT_IN.iter().find(|(name, _)| *name == "sock-refcnt").unwrap().1;
    let mut text = String::new();
    for (mistake, from, to) in MISTAKES {
        assert!(good.contains(from), "{from}");
        let refused: Result<Case, BadFile> = Case::parse("case", &good.replace(from, to));
        let error = refused.expect_err(mistake).to_string();
        assert!(error.starts_with("case:") && error.lines().count() == 1, "{error}");
        let _ = writeln!(text, "{mistake}: {error}");
    }
    let missing = Case::open("nowhere").unwrap_err().to_string();
    assert!(missing.starts_with("nowhere: no such file, and no case comes with this name: dentry"));
    golden::same("case_files.txt", &text);
}

#[test]
fn no_points_are_refused() {
    let case = Case::built_in("sock-refcnt").unwrap();
    assert_eq!(case.predict(0).unwrap_err().to_string(), "no design points; one is the least");
}

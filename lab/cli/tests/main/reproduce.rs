//! Tests of `ledgerline reproduce` through the command line. Predictions are deterministic, so they are compared with
//! golden files.

use crate::{golden, held, support};
use ledgerline_coherence::experiments::ours;
use serde_json::Value;
use std::collections::HashMap;
use std::process::{Command, Output};

fn reproduce(arguments: &[&str]) -> Output {
    Command::new(support::binary())
        .arg("reproduce")
        .args(arguments)
        .output()
        .expect("the command runs")
}

/// Returns the output of a run that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = reproduce(arguments);
    assert!(output.status.success(), "{}", support::stderr(&output));
    // Progress is written only to a terminal.
    assert!(output.stderr.is_empty(), "{}", support::stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn rows(text: &str) -> Vec<Value> {
    let rows = text.lines().map(|line| serde_json::from_str(line).expect("an object a line"));
    rows.inspect(held::held_as_it_says).collect()
}

#[test]
fn a_table_of_predictions_is_as_it_was() {
    let text = printed(&["numa-threshold", "--no-measure", "--points", "2", "--row", "64"]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    golden::same("reproduce-numa-threshold.txt", &text);
    let text = printed(&["memcg-layout", "--no-measure", "--points", "3"]);
    golden::same("reproduce-memcg-layout.txt", &text);
}

#[test]
fn predictions_as_json_are_as_they_were() {
    let text = printed(&["memcg-layout", "--no-measure", "--points", "2", "--json"]);
    golden::same("reproduce-memcg-layout.json", &text);
}

#[test]
fn a_curve_is_as_it_was() {
    let arguments = ["memcg-layout", "--no-measure", "--points", "2", "--cpus", "2,36..80"];
    let text = printed(&arguments);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    golden::same("reproduce-curve.txt", &text);
}

#[test]
fn repairs_of_which_the_mail_has_words_alone_are_shown_with_them_and_with_what_is_resolved() {
    let rows = rows(&printed(&["memcg-layout", "--no-measure", "--points", "2", "--json"]));
    for row in &rows[2..] {
        assert!(row["published"].is_null() && row["resolves"].as_f64().unwrap() > 0.0, "{row}");
    }
    let words = "the performance restored a lot but still not as good as base";
    assert_eq!(rows[3]["published_words"], words);
    let page =
        printed(&["memcg-layout", "--no-measure", "--points", "1", "--cpus", "2", "--html", "-"]);
    assert!(page.contains("in words") && page.contains("cannot tell it from the base"), "{page}");
}

#[test]
fn a_published_change_is_told_with_its_source_and_all_that_it_rests_on() {
    let text = printed(&["--published", "libdb-buffer-header", "--points", "4"]);
    for said in ["source: ", "says: ", "machine: ", "work: fitted", "assumes: ", "+0.3 %"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(
        text.ends_with("1 case: the sign is right in 1, every published figure is inside in 1\n")
    );
    let rows = rows(&printed(&["--published", "libdb-buffer-header", "--points", "4", "--json"]));
    assert_eq!(
        (rows.len(), &rows[0]["inside"], &rows[0]["right_sign"]),
        (1, &true.into(), &true.into())
    );
    let output = reproduce(&["--published", "nowhere.toml"]);
    let stderr = support::stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("nowhere.toml: no such file") && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert_eq!(reproduce(&["--published", "--quick"]).status.code(), Some(2));
}

#[test]
fn every_row_says_what_it_is_in_json() {
    for name in ["page-counter-lockless", "numa-threshold", "page-counter-layout"] {
        let rows = rows(&printed(&[name, "--no-measure", "--points", "2", "--json"]));
        assert!(rows.len() > 4);
        for row in rows {
            assert_eq!(row["experiment"], name);
            let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
            assert!(number("low") <= number("predicted") && number("predicted") <= number("high"));
            assert!(row["calibration"].is_boolean() && row["unit"].is_string());
            for key in ["measured_before", "measured_after", "measured_ours", "transfer_ns"] {
                assert!(row.get(key).is_some_and(Value::is_null), "{key}: {row}");
            }
        }
    }
}

#[test]
fn a_curve_in_json_has_three_designs_a_number_of_cpus() {
    let rows = rows(&printed(&["memcg-layout", "--points", "1", "--cpus", "2,80", "--json"]));
    let told: Vec<(&str, u64, bool)> = rows
        .iter()
        .map(|row| {
            let grown = row["grown"].as_bool().unwrap();
            (row["row"].as_str().unwrap(), row["cpus"].as_u64().unwrap(), grown)
        })
        .collect();
    let at = |cpus, grown| ["before", "after", "ours"].map(|row| (row, cpus, grown));
    assert_eq!(told, [at(2, false), at(80, true)].concat());
    let first = &rows[0];
    let rate = 2.0 * 1e9 / first["predicted"].as_f64().unwrap();
    assert!((first["operations_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 0.001);
}

#[test]
fn what_a_document_reports_of_whole_programs_stands_behind_what_is_measured() {
    let output = reproduce(&["rss-cache", "--quick", "--json"]);
    assert!(output.status.success(), "{}", support::stderr(&output));
    let rows = rows(&String::from_utf8(output.stdout).unwrap());
    let of = |kind: &str| {
        let schema = format!("ledgerline/reproduce-{kind}.v1");
        rows.iter().filter(|row| row["schema"] == *schema).count()
    };
    assert!(of("row") > 0 && of("reported") == 12, "{rows:#?}");
}

#[test]
fn what_is_measured_stands_beside_what_is_predicted() {
    let output = reproduce(&["memcg-layout", "--quick", "--points", "1", "--json"]);
    assert!(output.status.success(), "{}", support::stderr(&output));
    let rows = rows(&String::from_utf8(output.stdout).unwrap());
    for row in rows.iter().filter(|row| row["row"] != "before") {
        assert!(row["predicted"].is_number() && row["measured_ours"].is_number(), "{row}");
        assert!(row["measured_unit"].is_string(), "{row}");
    }
}

#[test]
fn the_page_stands_alone_and_every_tag_is_closed() {
    let file = support::scratch("page.html");
    let name = file.to_str().unwrap();
    let arguments = ["numa-threshold", "--no-measure", "--points", "1", "--cpus", "2,100"];
    let output = reproduce(&[&arguments[..], &["--html", name]].concat());
    assert!(output.status.success() && output.stdout.is_empty(), "{}", support::stderr(&output));
    let page = std::fs::read_to_string(&file).expect("the page was written");
    std::fs::remove_file(&file).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for elsewhere in ["<script", "<link", "<img", "@import", "url(", "http://", "https://"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf,"), "a place that is nowhere");
    check_tags(&page);
    for said in ["published", "65533", "calibrated on", "broadwell-2x22", "does not give", "grown"]
    {
        assert!(page.contains(said), "{said}");
    }
    // The same page on standard output.
    let again = printed(&[&arguments[..], &["--html", "-"]].concat());
    assert_eq!(again, page);
}

/// Checks that every tag that is opened is closed, in order.
fn check_tags(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
        let name = tag.trim_start_matches('/').split_whitespace().next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in another order");
        } else if !tag.ends_with('/') && !tag.starts_with('!') && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn what_does_not_go_together_is_told_in_one_line_that_says_what_to_do() {
    for (arguments, told) in [
        (
            &["memcg-layout", "--row", "64"][..],
            "--row chooses what numa-threshold is calibrated on",
        ),
        (&["rss-cache", "--no-measure"], "rss-cache is measured alone"),
        (&["rss-cache", "--cpus", "2"], "--cpus is for the other four"),
        (&["--json", "--html", "-"], "both write to standard output"),
    ] {
        let output = reproduce(arguments);
        let stderr = support::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(told) && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.starts_with("ledgerline: reproduce: ") && output.stdout.is_empty());
        assert!(stderr.len() < 300, "{stderr}");
    }
}

#[test]
fn a_bad_value_is_told_with_what_would_be_a_good_one() {
    let long = "x".repeat(10_000);
    for (arguments, value, good) in [
        (&["abacus"][..], "'abacus' for '[EXPERIMENT]'", ": page-counter-lockless, "),
        (&["\u{1b}[31m"], "'\\u{1b}[31m' for '[EXPERIMENT]'", ": page-counter-lockless, "),
        (&[&long], "xxx...' for '[EXPERIMENT]'", ": page-counter-lockless, "),
        (&["--points", "0"], "'0' for '--points <N>'", "0 is not in 1..=1000"),
        (&["--row", "33"], "'33' for '--row <R>'", ": 32, 64, 125, 256, 512]"),
        (&["--cpus", "0..4"], "'0..4' for '--cpus <LIST>'", "not a number from 1 to 1024"),
        (
            &["--html", "memcg-layout"],
            "'memcg-layout'",
            "`ledgerline reproduce memcg-layout --html`",
        ),
    ] {
        let output = reproduce(arguments);
        let stderr = support::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(value) && stderr.contains(good), "{stderr}");
        assert!(stderr.starts_with("error: invalid value '") && output.stdout.is_empty());
        assert!(stderr.len() < 300 && !stderr.contains('\u{1b}'), "{stderr}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_told_in_one_line() {
    let arguments = ["memcg-layout", "--no-measure", "--points", "1", "--cpus", "2"];
    let output = reproduce(&[&arguments[..], &["--html", "/nowhere/page.html"]].concat());
    let stderr = support::stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("cannot write /nowhere/page.html: ") && stderr.lines().count() == 1);
}

/// Returns the offsets of the members of some of the library's types, by type and member.
fn members(types: &[&str]) -> Option<HashMap<String, (u64, String)>> {
    let binary = support::binary();
    let output = Command::new(binary)
        .args(["layout", "show", binary, "--json"])
        .args(types)
        .output()
        .expect("the command runs");
    let text = String::from_utf8(output.stdout).expect("text");
    if !output.status.success() {
        eprintln!("skipped: this build of the command has no types: {}", text.trim());
        return None;
    }
    let mut members = HashMap::new();
    for object in rows(&text) {
        for member in object["members"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let name = format!("{}.{}", text(&object["name"]), text(&member["name"]));
            members.insert(name, (member["offset"].as_u64().unwrap(), text(&member["type"])));
        }
    }
    Some(members)
}

#[test]
fn ours_is_predicted_with_the_librarys_own_layout() {
    let types = [
        "ledgerline::table::row::Row",
        "ledgerline::counter::PageCounter",
        "ledgerline::counter::Hot",
        "ledgerline::counter::Track",
        "ledgerline::counter::Limits",
        "ledgerline::gate::Gate",
        "ledgerline::gate::Stripe",
        "ledgerline::gate::Slot",
    ];
    let Some(members) = members(&types) else { return };
    let offset = |path: &str| {
        let mut parts = path.split('.');
        let (mut at, mut ty) = (0, parts.next().unwrap().to_owned());
        for part in parts {
            let found = members.get(&format!("{ty}.{part}"));
            let (offset, of) = found.unwrap_or_else(|| panic!("{ty} has no {part}"));
            at += offset;
            ty.clone_from(of);
        }
        (at, ty)
    };
    for (field, expected) in ours::walk::ROW {
        assert_eq!(offset(&format!("ledgerline::table::row::Row.{field}")).0, expected, "{field}");
    }
    for (field, expected) in ours::walk::STRIPE {
        assert_eq!(offset(&format!("ledgerline::gate::Stripe.{field}")).0, expected, "{field}");
    }
    for (field, expected) in ours::walk::SLOT {
        assert_eq!(offset(&format!("ledgerline::gate::Slot.{field}")).0, expected, "{field}");
    }
    let (_, stripes) = offset("ledgerline::gate::Gate.stripes");
    assert!(stripes.ends_with(&format!("[{}]", ours::walk::STRIPES)), "{stripes}");
}

/// Numbers of the library's sources that debug information does not hold.
#[test]
fn ours_is_predicted_with_the_librarys_own_numbers() {
    use ledgerline::stat::{Item, numa::NumaItem, threshold};
    let places = [NumaItem::Hit, NumaItem::Local].map(|item| item.index() as u64);
    assert_eq!(places, ours::counters::HIT_AND_LOCAL);
    assert_eq!(threshold::MOST, ours::counters::MOST_OF_A_BYTE);
    let has = |source: &str, line: String| assert!(source.contains(&line), "{line}");
    has(
        include_str!("../../../../crates/ledgerline/src/stat/layout.rs"),
        format!("const STRIPES_MAX: u32 = {};", ours::counters::STRIPES),
    );
    has(
        include_str!("../../../../crates/ledgerline/src/stat/width.rs"),
        format!("if self == WidthKind::I64 {{ 0 }} else {{ {} }}", ours::counters::BLOCK_HEADER),
    );
    has(
        include_str!("../../../../crates/ledgerline/src/making/builder.rs"),
        format!("const DEFAULT_BATCH: u64 = {} * 4096;", ours::BATCH_PAGES),
    );
    has(
        include_str!("../../../../crates/ledgerline/src/gate/mod.rs"),
        format!("const STRIPES: usize = {};", ours::walk::STRIPES),
    );
}

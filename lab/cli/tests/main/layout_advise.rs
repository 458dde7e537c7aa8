//! Tests of `ledgerline layout advise` through the command line, on an object that a C compiler makes.

use crate::support::{self, object};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const COUNTER: &str = "struct counter { long usage; long max; struct counter *parent; char name[40]; } counter;\n\
                       struct other { int a; } other;\n\
                       union both { int a; float b; } both;\n";

const PROFILE: &str = "\
machine = 'haswell-ep-2699v3'
cpus = 36

[types.counter]
work_ns = 2000

[types.counter.fields]
max = { load = 1 }
parent = { load = 1 }

[[types.counter.phases]]
name = 'add'
times = 0.25
fields = { usage = { atomic = 1 } }
";

fn written(name: &str, text: &str) -> String {
    let path = support::scratch(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().expect("scratch names are text").to_owned()
}

fn advise(file: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(support::binary())
        .args(["layout", "advise"])
        .arg(file)
        .args(arguments)
        .output()
        .expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("an exit"), text(output.stdout), text(output.stderr))
}

#[test]
fn without_a_profile_it_refuses_and_says_how_to_get_one() {
    let Some(file) = object(COUNTER) else { return };
    let (code, out, errors) = advise(&file, &["counter"]);
    assert_eq!((code, &*out, errors.lines().count()), (2, "", 1), "{errors}");
    assert!(errors.starts_with("ledgerline: layout advise: "), "{errors}");
    assert!(errors.contains("--profile") && errors.contains("perf c2c report"), "{errors}");
}

#[test]
fn a_better_order_is_printed_with_its_reasons_and_as_json() {
    let Some(file) = object(COUNTER) else { return };
    let profile = written("advise.toml", PROFILE);
    let (code, text, errors) = advise(&file, &["counter", "--profile", &profile, "--points", "4"]);
    assert_eq!((code, &*errors), (0, ""), "{text}");
    for part in
        ["36 CPUs of Haswell-EP", "usage -> ", "A better order gains", "struct counter {", "  1. "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b') && text.lines().all(|line| line.len() <= 130), "{text}");
    let (code, json, _) =
        advise(&file, &["counter", "--profile", &profile, "--points", "4", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["proposed"]), (0, &Value::Bool(true)));
    let gain = &json["proposal"]["gain_ns"];
    assert!(gain["low"].as_f64().unwrap() > 0.0, "{gain}");
    let members = json["proposal"]["members"].as_array().unwrap();
    let offset = |name: &str| {
        let member = members.iter().find(|member| member["name"] == name).expect(name);
        member["offset"].as_u64().unwrap()
    };
    assert_ne!(offset("usage") / 128, offset("parent") / 128);
    assert_eq!(offset("max") / 64, offset("parent") / 64);
    // All lines have the size that was asked for, also in the moves.
    let wide = ["counter", "--profile", &profile, "--points", "4", "--line", "128"];
    let (code, text, _) = advise(&file, &wide);
    assert_eq!(code, 0);
    assert!(text.contains("(pair 0 to 1") || text.contains("(stay on pair 0"), "{text}");
    let (_, json, _) = advise(&file, &[&wide[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let members = json["proposal"]["members"].as_array().unwrap();
    for moved in json["proposal"]["moves"].as_array().unwrap() {
        let member = members.iter().find(|member| member["name"] == moved["fields"][0]).unwrap();
        assert_eq!(moved["to_line"], member["line"], "{moved}");
        assert_eq!(moved["from_line"].as_u64().unwrap(), member["was"].as_u64().unwrap() / 128);
    }
    // The layout is already good: nothing is proposed.
    let good = "struct counter { long usage; char name[120]; \
                struct counter *parent; long max; } counter;\n";
    let Some(file) = object(good) else { return };
    let (code, text, _) = advise(&file, &["counter", "--profile", &profile, "--points", "4"]);
    assert_eq!(code, 0);
    assert!(text.contains("Keep today's order") && !text.contains("  1. "), "{text}");
}

/// If a program hides all of its waiting, an order gains nothing and costs nothing.
#[test]
fn an_order_is_proposed_that_gains_something_or_nothing_and_never_costs() {
    let Some(file) = object("struct counts { long hits; long misses; } counts;\n") else { return };
    let role = |name, field| {
        format!(
            "[[types.counts.roles]]\nname = '{name}'\nshare = 0.5\ntakes_ns = 200\n\
             fields = {{ {field} = {{ atomic = 1 }} }}\n"
        )
    };
    let roles = role("one", "hits") + &role("other", "misses");
    let profile = format!("machine = 'zen4-2vcpu'\ncpus = 2\n[types.counts]\n{roles}");
    let profile = written("advise-hidden.toml", &profile);
    let (code, text, errors) = advise(&file, &["counts", "--profile", &profile, "--json"]);
    assert_eq!((code, &*errors), (0, ""), "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    let gain = &json["proposal"]["gain_ns"];
    let of = |which: &str| gain[which].as_f64().unwrap();
    assert!(json["proposed"] == true && of("low").abs() < 0.1 && of("median") > 5.0, "{gain}");
    // An atomic alone takes longer than 3 ns.
    let (_, text, _) = advise(&file, &["counts", "--profile", &profile, "--takes", "3"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Even without work the simulation takes "), "{text}");
    assert!(text.contains(" whatever the program hides. "), "{text}");
}

#[test]
fn what_cannot_be_is_one_line_and_status_two() {
    let Some(file) = object(COUNTER) else { return };
    let profile = written("advise-ok.toml", PROFILE);
    let misspelt = written("advise-misspelt.toml", &PROFILE.replace("parent", "parnet"));
    let of_both = written(
        "advise-both.toml",
        "[types.both]\nwork_ns = 1\n[types.both.fields]\na = { load = 1 }\n",
    );
    let cases: [(&[&str], &str); 9] = [
        (&["countre", "--profile", &profile], "did you mean `counter`?"),
        (&["other", "--profile", &profile], "it says nothing of other; it knows counter"),
        (
            &["counter", "--profile", &misspelt],
            "line 9: counter has no field \"parnet\"; did you mean `parent`?",
        ),
        (&["both", "--profile", &of_both], "both is a union"),
        (&["counter", "--profile", "/nonexistent"], "/nonexistent: "),
        (&["counter", "--profile", &profile, "--machine", "abacus"], "abacus: "),
        (
            &["counter", "--profile", &profile, "--cpus", "100000"],
            "advise: --cpus: 100000 CPUs are asked for",
        ),
        (&["counter", "--profile", &profile, "--pin", "mux"], "has no field \"mux\" to pin"),
        (&["c*", "--profile", &profile, "--size-max", "8"], "has 64 bytes today"),
    ];
    for (arguments, message) in cases {
        let (code, out, errors) = advise(&file, arguments);
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        assert_eq!((code, &*out, errors.lines().count()), (2, "", 1), "{errors}");
    }
}

#[test]
fn a_time_of_today_says_which_work_there_is_and_a_wrong_one_says_what_to_write() {
    let Some(file) = object(COUNTER) else { return };
    let profile = written("advise-takes.toml", PROFILE);
    let options = ["counter", "--profile", &*profile, "--points", "2"];
    let (code, text, errors) = advise(&file, &[&options[..], &["--takes", "2500"]].concat());
    assert_eq!((code, &*errors), (0, ""), "{text}");
    assert!(text.contains("Of the 2500 ns that were measured, "), "{text}");
    let (_, json, _) = advise(&file, &[&options[..], &["--takes", "all=2500", "--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let work = json["works"][0]["work_ns"]["median"].as_f64().unwrap();
    let today = json["today"]["nanoseconds"]["median"].as_f64().unwrap();
    assert!(work < 2500.0 && (today / 2500.0 - 1.0).abs() < 0.05, "{work} {today}");
    let both = [&options[..], &["--takes", "2500", "--alone=2200"]].concat();
    let (_, text, _) = advise(&file, &both);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = "Of the 2200 ns that were measured alone, ";
    assert!(text.contains(told) && text.contains("Beside others it takes 2500 ns"), "{text}");
    let (_, json, _) = advise(&file, &[&both[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let today = json["today"]["nanoseconds"]["median"].as_f64().unwrap();
    assert!((today / 2500.0 - 1.0).abs() < 0.1, "{today}");
    assert!(json["works"][0]["waits"]["median"].as_f64().unwrap() > 0.0, "{json}");
    let (code, _, errors) = advise(&file, &[&options[..], &["--alone=reader=9"]].concat());
    assert_eq!(code, 2);
    assert!(errors.contains("--alone: the profile has no role \"reader\"; it has all"), "{errors}");
    for (takes, part) in [
        ("reader=9", "the profile has no role \"reader\"; it has all"),
        ("soon", "write nanoseconds, 0.1 to 1e9, or ROLE=NANOSECONDS"),
        ("-3", "write nanoseconds"),
    ] {
        let takes = format!("--takes={takes}");
        let (code, _, errors) = advise(&file, &[&options[..], &[&takes]].concat());
        assert_eq!(code, 2, "{takes}");
        assert!(errors.contains(part), "{takes}: {errors}");
    }
}

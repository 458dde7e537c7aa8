//! Tests of `ledgerline layout trial` through the command line, on an object that a C compiler makes. They check only
//! that the figures are there; the tests of the crate check ratios.

use crate::golden;
use crate::support::{self, lab, object};
use std::path::Path;

use serde_json::Value;

const TODAY: &str = "struct inner { int a; int b; };\n\
                     struct counter { long usage; long max; struct counter *parent; struct inner in; } counter;\n\
                     struct other { int a; } other;\n\
                     union both { int a; float b; } both;\n";

const PROFILE: &str = "\
machine = 'zen4-2vcpu'

[types.counter]
work_ns = 100

[types.counter.fields]
max = { load = 1 }
parent = { load = 1 }
'in.b' = { store = 0.1 }

[[types.counter.phases]]
name = 'add'
times = 0.5
fields = { usage = { atomic = 1 } }

[types.both]
work_ns = 1

[types.both.fields]
a = { load = 1 }
";

/// Options of a short replay, for tests that do not use its figures.
const QUICK: [&str; 2] = ["--seconds", "0.2"];

fn written(name: &str, text: &str) -> String {
    let path = support::scratch(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().expect("scratch names are text").to_owned()
}

fn layout(what: &str, file: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = lab()
        .args(["layout", what])
        .arg(file)
        .args(arguments)
        .args(["--points", "2"])
        .args(QUICK.iter().filter(|_| what == "trial" || arguments.contains(&"--trial")))
        .output()
        .expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("an exit"), text(output.stdout), text(output.stderr))
}

fn json(what: &str, file: &Path, arguments: &[&str]) -> Value {
    let (code, out, errors) = layout(what, file, &[arguments, &["--json"]].concat());
    assert_eq!((code, &*errors), (0, ""), "{out}");
    assert!(out.ends_with("}\n") && out.lines().count() == 1, "{out}");
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn the_help_stands_as_it_was_looked_at() {
    let output = lab()
        .env_remove("COLUMNS")
        .args(["layout", "trial", "--help"])
        .output()
        .expect("the command runs");
    golden::same("layout-trial-help.txt", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn what_advice_proposes_is_replayed_beside_today() {
    let Some(file) = object(TODAY) else { return };
    let profile = written("trial.toml", PROFILE);
    let (code, text, errors) = layout("trial", &file, &["counter", "--profile", &profile]);
    assert_eq!((code, &*errors), (0, ""), "{text}");
    assert!(text.starts_with("counter: 32 bytes"), "{text}");
    for part in ["measured on ", "predicted for ", "\ntoday, ns an operation ", " rounds"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b') && !text.contains("Nobody said which machine"), "{text}");
    let both = json("advise", &file, &["counter", "--profile", &profile, "--trial"]);
    let trial = &both["trial"];
    assert_eq!(trial["against"].is_string(), both["proposed"].as_bool().unwrap());
    assert_eq!(trial["name"], both["name"]);
    let (code, text, _) = layout("advise", &file, &["counter", "--profile", &profile, "--trial"]);
    assert_eq!((code, text.matches("\nTrial of counter: 32 bytes").count()), (0, 1), "{text}");
}

#[test]
fn an_order_is_a_list_or_advice_or_another_build() {
    let Some(file) = object(TODAY) else { return };
    let profile = written("trial-orders.toml", PROFILE);
    let against = |order: &str| {
        let trial = json("trial", &file, &["counter", "--profile", &profile, "--against", order]);
        assert_eq!(trial["against"], order);
        for side in ["measured", "predicted"] {
            for figure in ["today_ns", "proposed_ns", "gain_ns", "throughput_percent"] {
                assert!(trial[side][figure]["median"].is_f64(), "{side} {figure}: {trial}");
            }
        }
        // If other work disturbs the replay, no figure is compared with a prediction.
        let quiet = trial["disturbed"].as_f64().unwrap() <= 0.2 && trial["faithful"] == true;
        assert_eq!(trial["within"].is_boolean(), quiet, "{trial}");
        trial
    };
    let bytes = |trial: &Value| trial["proposed_bytes"].as_u64().unwrap();
    let list = written("order.txt", "max\nparent\nin.b\nusage 128 # alone\n");
    let listed = against(&list);
    assert_eq!(bytes(&listed), 256);

    let moved = "struct inner { int a; int b; };\nstruct counter { long max; struct counter *parent; struct inner in; \
                 char pad[104]; long usage; char more[120]; } counter;\n";
    let Some(build) = object(moved) else { return };
    let rebuilt = against(build.to_str().unwrap());
    assert_eq!(bytes(&rebuilt), 256);
    // Both orders have `usage` on its own pair of lines and everything else on another.
    if listed["cpus"] == 2 {
        let throughput =
            |trial: &Value| trial["predicted"]["throughput_percent"]["median"].as_f64().unwrap();
        assert!((throughput(&listed) - throughput(&rebuilt)).abs() < 1.0, "{listed} {rebuilt}");
    }

    let (code, advice, _) =
        layout("advise", &file, &["counter", "--profile", &profile, "--cpus", "2", "--json"]);
    let of: Value = serde_json::from_str(&advice).unwrap();
    assert_eq!((code, &of["proposed"]), (0, &Value::Bool(true)));
    let advised = against(&written("advice.json", &advice));
    assert_eq!(advised["proposed_bytes"], of["proposal"]["size"]);
    if advised["cpus"] == 2 {
        // Both predictions are of the same question, with the same number of CPUs.
        assert_eq!(advised["predicted"]["gain_ns"], of["proposal"]["gain_ns"]);
    }
}

#[test]
fn no_more_cpus_take_part_than_are_asked_for_or_there_are() {
    let Some(file) = object(TODAY) else { return };
    let profile = written("trial-cpus.toml", PROFILE);
    let order = written("cpus.txt", "usage 128\n");
    let trial = |cpus: &str, machine: &str| {
        let cpus = ["--cpus", cpus, "--machine", machine, "--against", &order];
        json("trial", &file, &[&["counter", "--profile", &profile][..], &cpus].concat())
    };
    let one = trial("1", "zen4-2vcpu");
    assert_eq!((&one["cpus"], &one["transfer_ns"]), (&Value::from(1), &Value::Null));
    let says = |trial: &Value, start: &str| {
        let notes = trial["notes"].as_array().unwrap();
        notes.iter().any(|note| note.as_str().unwrap().starts_with(start))
    };
    assert!(says(&one, "With one CPU nothing is shared"), "{one}");
    let many = trial("144", "four-socket-144");
    let cpus = many["cpus"].as_u64().unwrap();
    assert_eq!(many["cpus_asked"], 144);
    if cpus < 144 {
        let note = format!("The question is about 144 CPUs, and {cpus} took part");
        assert!(says(&many, &note), "{many}");
    }
}

#[test]
fn what_cannot_be_is_one_line_and_status_two() {
    let Some(file) = object(TODAY) else { return };
    let Some(without) = object("int other;\n") else { return };
    let profile = written("trial-ok.toml", PROFILE);
    let misnamed = written("misnamed.txt", "usage\nmux\n");
    let twice = written("twice.txt", "usage\nusage\n");
    let empty = written("empty.txt", "# nothing yet\n");
    let broken = written("broken.json", "{\"name\": 3}");
    let foreign = written("foreign.json", "{\"name\": \"other\"}");
    let kept = written("kept.json", "{\"name\": \"counter\"}");
    let old = "{\"name\": \"counter\", \"proposal\": {\"size\": 8, \"align\": 8, \"members\": []}}";
    let old = written("old.json", old);
    let without = without.to_str().unwrap().to_owned();
    let cases: [(&str, &str); 9] = [
        (&misnamed, "there is no member \"mux\"; the members are usage, max, parent, in"),
        (&twice, "the member \"usage\" is named twice"),
        (&empty, "it names no member; name the members in their order, one a line"),
        (&broken, "this is no advice: "),
        (&foreign, "it is about other, not about counter"),
        (&kept, "this advice proposes nothing; leave --against out"),
        (&old, "it does not say where max lies; it is advice about another build"),
        (&without, "counter"),
        ("/nonexistent", "/nonexistent: "),
    ];
    for (order, message) in cases {
        let (code, out, errors) =
            layout("trial", &file, &["counter", "--profile", &profile, "--against", order]);
        assert!(errors.contains(message), "{order}: {errors}");
        assert!(errors.starts_with(&format!("ledgerline: layout trial: {order}: ")), "{errors}");
        assert_eq!((code, &*out, errors.lines().count()), (2, "", 1), "{errors}");
    }
    let (code, out, errors) = layout("trial", &file, &["counter"]);
    assert_eq!((code, &*out), (2, ""));
    assert!(errors.contains("there is nothing to replay without --profile"), "{errors}");
    let (code, _, errors) =
        layout("advise", &file, &["counter", "--profile", &profile, "--seconds", "1"]);
    assert!(code == 2 && errors.contains("--trial"), "{errors}");
    let (code, _, errors) = layout("trial", &file, &["both", "--profile", &profile]);
    assert!(code == 2 && errors.contains("both is a union"), "{errors}");
}

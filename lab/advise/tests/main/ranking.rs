//! Predicted costs of the differences between two builds, for the structures of the documents that this project starts
//! from.

use std::path::{Path, PathBuf};

use crate::compile;
use crate::golden;
use ledgerline_advise::cost::Question;
use ledgerline_advise::profile::{Known, Profile};
use ledgerline_advise::ranking::{Near, Priced, json, price, text};
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::diff::{Difference, Sides, compare};
use ledgerline_layout::model::Types;
use ledgerline_layout::pick::pick;

const POINTS: usize = 8;

/// Returns the two builds of a structure; `None`, and a printed line, without a C compiler.
fn builds(source: &Path) -> Option<[Types; 2]> {
    Some([compile::types(source, &[])?, compile::types(source, &["-DAFTER"])?])
}

/// Returns the two builds of a structure of a source document.
fn documented(name: &str) -> Option<[Types; 2]> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../layout/tests/fixtures");
    builds(&fixtures.join(format!("{name}.c")))
}

fn profile(name: &str) -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/profiles/{name}.toml"));
    Profile::open(&path, &Known::default()).unwrap()
}

struct Told {
    difference: Difference,
    priced: Priced,
    text: String,
    json: serde_json::Value,
}

fn told(types: &[Types; 2], name: &str, profile: &Profile) -> Result<Told, String> {
    let find = |types| pick(types, &[name.to_owned()]).unwrap()[0].1;
    let [old, new] = types;
    let sides = Sides { old: (old, find(old)), new: (new, find(new)) };
    let difference = compare(name, sides, 64).expect("a change");
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let question = Question { machine: &machine, cpus: 72, points: POINTS };
    let of = profile.of(name).unwrap();
    let priced = price(sides, &difference, of, &question, None, None).map_err(|e| e.to_string())?;
    let mut out = String::new();
    text(&difference, &priced, &question, &mut out);
    let json = json(&difference, &priced, &question);
    Ok(Told { difference, priced, text: out, json })
}

/// Compares with a golden file. Nanoseconds and per cent depend on the simulator, so they are `#` there. The tests
/// check their values.
fn golden(name: &str, text: &str) {
    let figure = |line: &str| {
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, digits) = rest.split_at(at);
            let end =
                digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
            out.push_str(before.trim_end_matches(['+', '-']));
            out.push('#');
            rest = &digits[end..];
        }
        out + rest
    };
    let masked: String = text
        .lines()
        .map(|line| match line.split_once(" ns") {
            // The figures stand before the names of fields.
            Some((before, _)) if line.contains("predicted") || !before.contains('`') => {
                let (figures, names) = line.split_once('`').unwrap_or((line, ""));
                let tick = if names.is_empty() { "" } else { "`" };
                format!("{}{tick}{names}\n", figure(figures))
            }
            _ => match line.rsplit_once("wait ") {
                Some((who, figures)) => format!("{who}wait {}\n", figure(figures)),
                None => format!("{line}\n"),
            },
        })
        .collect();
    golden::same(name, &masked);
}

/// Does the same for JSON, with null for figures.
fn golden_json(name: &str, value: &serde_json::Value) {
    fn masked(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(number) if number.is_f64() => {
                *value = serde_json::Value::Null
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(masked),
            serde_json::Value::Object(values) => values.values_mut().for_each(masked),
            _ => {}
        }
    }
    let mut value = value.clone();
    masked(&mut value);
    golden::same(name, &format!("{}\n", serde_json::to_string_pretty(&value).unwrap()));
}

#[test]
fn of_the_group_the_parting_of_stat_cpu_is_the_loss_and_the_written_neighbour_the_culprit() {
    let Some(types) = documented("mem_cgroup") else { return };
    let told = told(&types, "mem_cgroup", &profile("mem_cgroup")).unwrap();
    // Published: 27.2 % less.
    let throughput = told.priced.difference.throughput;
    assert!(told.priced.difference.is_sure() && throughput.high < 0.0, "{}", told.text);
    let parted = told.difference.changes.iter().position(|change| {
        change.fields.iter().any(|field| field == "stat_cpu")
            && change.left.iter().any(|mates| mates.0.iter().any(|field| field == "moving_account"))
    });
    let share = &told.priced.changes[parted.expect("stat_cpu left moving_account")];
    let culprit = &share.culprits[0];
    assert_eq!((&*culprit.writer, &*culprit.victim), ("stat[13]", "stat_cpu"), "{}", told.text);
    assert_eq!(culprit.near, Near::Neighbour);
    assert!(share.change.low > 0.0, "{}", told.text);
    // It comes first, and has most of the loss.
    assert!(share.change.median > 0.5 * told.priced.difference.change.median, "{}", told.text);
    let first = &told.json["changes"][0];
    assert!(first["fields"].as_array().unwrap().iter().any(|field| field == "stat_cpu"));
    assert_eq!(first["predicted"]["culprits"][0]["writer"], "stat[13]");
    assert_eq!(told.json["predicted"]["sure"], true);
    golden("memcg-layout.ranked", &told.text);
    golden_json("memcg-layout.ranked.json", &told.json);
}

#[test]
fn of_the_counter_usage_leaving_the_limits_is_the_gain() {
    let Some(types) = documented("page_counter") else { return };
    let told = told(&types, "page_counter", &profile("page_counter")).unwrap();
    // Published: 18.4 % more.
    let throughput = told.priced.difference.throughput;
    assert!(told.priced.difference.is_sure() && throughput.low > 0.0, "{}", told.text);
    let usage = told.difference.changes.iter().position(|change| change.fields == ["usage"]);
    let share = &told.priced.changes[usage.expect("usage left alone")];
    assert!(share.change.high < 0.0, "{}", told.text);
    assert!(share.culprits.iter().any(|culprit| culprit.writer == "usage"), "{}", told.text);
    assert_eq!(told.json["changes"][0]["fields"][0], "usage");
    golden("page-counter-layout.ranked", &told.text);
}

/// Returns two builds from text.
fn written(name: &str, old: &str, new: &str) -> Option<[Types; 2]> {
    let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ranking-{name}.c"));
    let body = |fields: &str| format!("struct t {{ {fields} }} t;\n");
    std::fs::write(&path, format!("#ifdef AFTER\n{}#else\n{}#endif\n", body(new), body(old)))
        .unwrap();
    builds(&path)
}

fn by_hand(fields: &str) -> Profile {
    let text = format!("[types.t]\nwork_ns = 3000\nfields = {{ {fields} }}\n");
    Profile::parse(&text, "here", &Known::default()).unwrap()
}

#[test]
fn renamed_fields_are_followed_and_what_one_build_lacks_is_said() {
    let (old, new) =
        ("long hot; long read;", "long counter; char pad[120]; long read; long extra;");
    let Some(types) = written("renamed", old, new) else { return };
    // With the old name and with the new one.
    for name in ["hot", "counter"] {
        let fields = format!("{name} = {{ atomic = 1 }}, read = {{ load = 1 }}");
        let told = told(&types, "t", &by_hand(&fields)).unwrap();
        assert!(told.priced.difference.change.high < 0.0, "{}", told.text);
        assert_eq!(told.priced.changes[0].culprits[0].writer, name, "{}", told.text);
        assert!(told.priced.not_before.is_empty() && told.priced.not_after.is_empty());
    }
    let extra = by_hand("hot = { atomic = 1 }, extra = { load = 1 }");
    let told_extra = told(&types, "t", &extra).unwrap();
    assert_eq!(told_extra.priced.not_before, ["extra"]);
    assert!(
        told_extra.text.contains("without fields that the build before does not have: `extra`")
    );
    let error = told(&types, "t", &by_hand("raed = { load = 1 }")).err().unwrap();
    assert!(
        error.contains("t has no field \"raed\" in either build; did you mean `read`?"),
        "{error}"
    );
}

#[test]
fn what_changes_nothing_that_is_touched_costs_nothing() {
    let Some(types) = written("cold", "long a; long b; long c;", "long a; long c; long b;") else {
        return;
    };
    let told = told(&types, "t", &by_hand("a = { atomic = 1 }")).unwrap();
    let change = told.priced.difference.change;
    assert_eq!((change.low, change.high), (0.0, 0.0), "{}", told.text);
    assert!(!told.priced.difference.is_sure());
    assert!(
        told.text.contains("every field shares lines with the same fields as before"),
        "{}",
        told.text
    );
}

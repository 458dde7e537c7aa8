//! Tests of `ledgerline layout` through the command line, on objects that a C compiler makes.

#[path = "../../../advise/tests/support/perf.rs"]
#[allow(dead_code, reason = "it writes more than is asked of it here")]
mod perf;

use crate::support::{self, object};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const COUNTER: &str = "struct counter { long usage; long max; char name[60]; } counter;\n\
                       struct other { int a; } other;\n";
const PADDED: &str = "struct counter { long usage; char pad[56]; long max; char name[60]; } counter;\n\
                      struct other { int a; } other;\n";

fn layout(arguments: &[&str], files: &[&Path]) -> (i32, String, String) {
    let (subcommand, rest) = arguments.split_first().unwrap();
    let output = Command::new(support::binary())
        .args(["layout", subcommand])
        .args(files)
        .args(rest)
        .output()
        .expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("an exit"), text(output.stdout), text(output.stderr))
}

#[test]
fn types_are_shown_by_lines_as_text_and_json() {
    let Some(file) = object(COUNTER) else { return };
    let (code, text, errors) = layout(&["show", "counter"], &[&file]);
    assert_eq!((code, &*errors), (0, ""));
    assert!(text.starts_with("struct counter\n"), "{text}");
    assert!(text.contains("76 bytes on 2 lines of 64") || text.contains("80 bytes"), "{text}");
    assert!(text.contains("assumed to begin a line") && !text.contains('\x1b'), "{text}");
    let (_, both, _) = layout(&["show", "coun*", "--lines", "both"], &[&file]);
    assert!(both.contains("lines of 64") && both.contains("1 line of 128"), "{both}");
    let (_, placed, _) = layout(&["show", "counter", "--base", "align=8"], &[&file]);
    assert!(placed.contains("at best: 2 lines") && placed.contains("at worst"), "{placed}");
    let (code, json, _) = layout(&["show", "--all", "--json"], &[&file]);
    let objects: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, objects.len()), (0, 2));
    let counter = objects.iter().find(|object| object["name"] == "counter").unwrap();
    assert_eq!(counter["members"][1]["name"], "max");
    assert_eq!(counter["members"][1]["offset"], 8);
    assert_eq!(counter["lines"], 2);
}

#[test]
fn rules_decide_the_exit_status() {
    let (Some(bad), Some(good)) = (object(COUNTER), object(PADDED)) else { return };
    let rules = support::scratch("layout.toml");
    std::fs::write(&rules, "[[type]]\nname = 'counter'\napart = [{ among = ['usage', 'max'] }]\n")
        .unwrap();
    let rules = rules.to_str().unwrap();
    let (code, text, _) = layout(&["check", "--rules", rules], &[&bad]);
    assert_eq!(code, 1);
    assert!(text.starts_with("counter: apart: usage (8 bytes at 0) shares 64 bytes with max"));
    assert_eq!(layout(&["check", "--rules", rules], &[&good]), (0, String::new(), String::new()));
    let (code, json, _) = layout(&["check", "--rules", rules, "--json"], &[&bad]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["broken"][0]["rule"]), (1, &"apart".into()));
    let (code, sarif, _) = layout(&["check", "--rules", rules, "--sarif"], &[&bad]);
    let sarif: Value = serde_json::from_str(&sarif).unwrap();
    assert_eq!((code, &sarif["runs"][0]["results"][0]["level"]), (1, &"error".into()));
    let (code, c, _) = layout(&["check", "--rules", rules, "--emit", "c"], &[&good]);
    assert_eq!(code, 0);
    assert!(c.contains("_Static_assert(((offsetof(struct counter, usage) + 7) / 64 <"), "{c}");
}

#[test]
fn what_rules_miss_is_told_with_what_breaks_unless_it_is_optional() {
    let Some(file) = object(COUNTER) else { return };
    let path = support::scratch("missing.toml");
    let text = "[[type]]\nname = 'gone'\n[[type]]\nname = 'counter'\nsize_max = 8\n\
                together = [['usage', 'maxx', 'low']]\n";
    std::fs::write(&path, text).unwrap();
    let rules = path.to_str().unwrap();
    let (code, said, errors) = layout(&["check", "--rules", rules], &[&file]);
    assert_eq!(code, 2, "{errors}");
    assert!(said.starts_with("counter: size_max: ") && said.lines().count() == 1, "{said}");
    let missed = ["no type \"gone\"", "no field \"maxx\"; did you mean `max`?", "no field \"low\""];
    assert_eq!(errors.lines().count(), missed.len(), "{errors}");
    for (line, missed) in errors.lines().zip(missed) {
        assert!(line.starts_with("ledgerline: layout check: ") && line.contains(missed), "{line}");
    }
    let (code, json, _) = layout(&["check", "--rules", rules, "--json"], &[&file]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let broken = json["broken"].as_array().unwrap();
    let told: Vec<&str> = broken.iter().map(|one| one["rule"].as_str().unwrap()).collect();
    assert_eq!((code, &*told), (2, &["missing", "missing", "missing", "size_max"][..]));
    let optional = text
        .replace("'gone'", "'gone'\noptional = true")
        .replace("size_max", "optional_fields = ['maxx', 'low']\nsize_max");
    std::fs::write(&path, &optional).unwrap();
    let (code, said, errors) = layout(&["check", "--rules", rules], &[&file]);
    assert_eq!((code, said.lines().count(), &*errors), (1, 1, ""));
    std::fs::write(&path, optional.replace("size_max = 8", "")).unwrap();
    assert_eq!(layout(&["check", "--rules", rules], &[&file]), (0, String::new(), String::new()));
}

#[test]
fn what_init_writes_holds_and_a_change_breaks_it() {
    let (Some(before), Some(after)) = (object(COUNTER), object(PADDED)) else { return };
    let (code, text, _) = layout(&["check", "--init", "counter"], &[&before]);
    assert_eq!(code, 0);
    let rules = support::scratch("init.toml");
    std::fs::write(&rules, text).unwrap();
    let rules = rules.to_str().unwrap();
    assert_eq!(layout(&["check", "--rules", rules], &[&before]).0, 0);
    let (code, text, _) = layout(&["check", "--rules", rules], &[&after]);
    assert_eq!(code, 1);
    assert!(text.contains("counter: together: not on one line"), "{text}");
}

#[test]
fn a_difference_names_the_cause_and_who_parted() {
    let (Some(old), Some(new)) = (object(COUNTER), object(PADDED)) else { return };
    let (code, text, _) = layout(&["diff"], &[&old, &new]);
    assert_eq!(code, 1);
    assert!(text.contains("cause: `pad` was inserted (char[56], 56 bytes at 8)"), "{text}");
    assert!(text.contains("`usage` left the line of `max`"), "{text}");
    assert!(!text.contains("other"), "{text}");
    assert_eq!(layout(&["diff"], &[&old, &old]), (0, String::new(), String::new()));
    let (_, json, _) = layout(&["diff", "counter", "--json"], &[&old, &new]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["changed"][0]["causes"][0]["what"], "inserted");
    // A type that exists in only one build is a difference, even if it is named.
    let Some(more) = object(&format!("{COUNTER}struct third {{ int b; }} third;\n")) else {
        return;
    };
    for (files, what) in [([&old, &more], "is new"), ([&more, &old], "is gone")] {
        let (code, text, _) = layout(&["diff", "third", "counter"], &files.map(|file| &**file));
        assert_eq!((code, text), (1, format!("third {what}\n")));
    }
    assert_eq!(layout(&["diff", "fourth"], &[&old, &more]).0, 2);
}

#[test]
fn what_cannot_be_read_is_one_line_and_status_two() {
    let Some(file) = object(COUNTER) else { return };
    let (broken, unknown) = (support::scratch("broken.toml"), support::scratch("unknown.toml"));
    std::fs::write(&broken, "[[type]]\nname = 'counter'\nsize = 3\n").unwrap();
    std::fs::write(&unknown, "[[type]]\nname = 'counter'\nalone = ['usge']\n").unwrap();
    let empty = support::scratch("empty.toml");
    std::fs::write(&empty, "# later\n").unwrap();
    let (code, text, errors) = layout(&["check", "--rules", empty.to_str().unwrap()], &[&file]);
    assert_eq!((code, &*text, errors.lines().count()), (2, "", 1), "{errors}");
    assert!(errors.contains("has no rules"), "{errors}");
    let rules = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let missing = Path::new("/nonexistent");
    let cases: [(&[&str], &[&Path], &str); 7] = [
        (&["show", "countre"], &[&file], "no type \"countre\"; did you mean `counter`?"),
        (&["show", "--all"], &[missing], "/nonexistent: "),
        (&["show", "--all"], &[Path::new("/dev/null")], "/dev/null: "),
        (&["diff"], &[&file, missing], "/nonexistent"),
        (&["check", "--rules", &rules(&broken)], &[&file], "line 3: unknown field `size`"),
        (&["check", "--rules", &rules(&unknown)], &[&file], "did you mean `usage`?"),
        (&["check", "--rules", "/nonexistent"], &[&file], "/nonexistent: "),
    ];
    for (arguments, files, message) in cases {
        let (code, out, errors) = layout(arguments, files);
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        assert_eq!((code, &*out, errors.lines().count()), (2, "", 1), "{errors}");
        assert!(errors.starts_with("ledgerline: layout "), "{errors}");
    }
    // Line tables without types, as in many release builds.
    let (source, lines) = (support::scratch("lines.c"), support::scratch("lines.o"));
    std::fs::write(&source, COUNTER).unwrap();
    let compiled = Command::new("gcc").args(["-g1", "-c", "-o"]).args([&lines, &source]).status();
    assert!(compiled.unwrap().success());
    let (code, _, errors) = layout(&["show", "counter"], &[&lines]);
    assert!(code == 2 && errors.contains("build it with -g\n"), "{errors}");
    assert_eq!(layout(&["show", "t", "--base", "align=3"], &[&file]).0, 2);
    assert_eq!(layout(&["show"], &[&file]).0, 2);
}

#[test]
fn a_profile_is_shown_beside_the_fields_and_in_the_picture() {
    let Some(file) = object(COUNTER) else { return };
    let (hand, script, svg) = (
        support::scratch("profile.toml"),
        support::scratch("script.txt"),
        support::scratch("lines.svg"),
    );
    std::fs::write(
        &hand,
        "[types.counter]\nwork_ns = 100\nfields = { max = { load = 2 }, \"name[4]\" = { load = 1 } }\n\
         [[types.counter.phases]]\nname = 'fold'\ntimes = 0.25\nfields = { usage = { atomic = 1 } }\n",
    )
    .unwrap();
    let path = hand.to_str().unwrap();
    let (code, text, errors) = layout(&["show", "counter", "--profile", path], &[&file]);
    assert_eq!((code, &*errors), (0, ""));
    assert!(text.contains("       0      8       -    0.25  usage"), "{text}");
    assert!(text.contains("       8      8       2       -  max"), "{text}");
    assert!(text.contains("1 line touched"), "{text}");
    let (_, json, _) = layout(&["show", "counter", "--profile", path, "--json"], &[&file]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["members"][0]["writes"], &json["members"][1]["reads"]),
        (&0.25.into(), &2.0.into())
    );
    let arguments = ["show", "counter", "--profile", path, "--svg", svg.to_str().unwrap()];
    assert_eq!(layout(&arguments, &[&file]), (0, String::new(), String::new()));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("class=\"hot\"") && drawn.contains("class=\"warm\""), "{drawn}");

    // The script has addresses; `--object` says which object is there.
    std::fs::write(
        &script,
        "a 1 [002] 1.5: 7 mem-stores: 1008 5080144 |OP STORE|LVL L1 hit|LCK No\n",
    )
    .unwrap();
    let script = script.to_str().unwrap();
    let named = ["show", "counter", "--profile", script, "--object", "counter@0x1000"];
    let (code, text, _) = layout(&named, &[&file]);
    assert_eq!(code, 0);
    assert!(text.contains("       8      8       -       1  max"), "{text}");
    // The profile as TOML has the same accesses.
    let (code, toml, _) =
        layout(&["profile", "--profile", script, "--object", "counter@0x1000"], &[&file]);
    assert_eq!(code, 0);
    assert!(toml.contains("[types.counter.fields]\nmax = { store = 1 }"), "{toml}");
    let written = support::scratch("written.toml");
    std::fs::write(&written, toml).unwrap();
    let (_, again, _) =
        layout(&["show", "counter", "--profile", written.to_str().unwrap()], &[&file]);
    assert!(again.contains("       8      8       -       1  max"), "{again}");
    for (arguments, message) in [
        (&["profile"][..], "no profile is named; add --profile FILE"),
        (&["show", "counter", "--profile", script][..], "name objects: --object TYPE@"),
        (
            &["show", "other", "--profile", path],
            "says nothing of the types that are shown; it knows counter",
        ),
        (&["show", "other", "--profile", "/nonexistent"], "/nonexistent: cannot be read"),
        (&["show", "counter", "--object", "counter"], "is no object: write TYPE@0xADDRESS"),
    ] {
        let (code, out, errors) = layout(arguments, &[&file]);
        assert_eq!((code, &*out), (2, ""), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
    std::fs::write(&hand, "[types.counter]\nwork_ns = 1\nfields = { usge = { load = 2 } }\n")
        .unwrap();
    let (_, _, errors) = layout(&["show", "counter", "--profile", path], &[&file]);
    assert!(errors.contains("counter has no field \"usge\"; did you mean `usage`?"), "{errors}");
    assert_eq!(errors.lines().count(), 1);
}

#[test]
fn who_holds_a_type_is_found_by_value_and_by_pointer() {
    let holding = "struct link { struct link *next; };\n\
                   struct item { int key; struct link link; } item;\n\
                   struct table { long size; struct item rows[3]; struct item *first; } table;\n";
    let Some(file) = object(holding) else { return };
    let (code, text, errors) = layout(&["find", "--contains", "struct link"], &[&file]);
    let item = "struct item\n  offset   size  path  type\n       8      8  link  struct link\n\n";
    let table = "struct table\n  offset   size  path         type\n\
                 \x20     16      8  rows[].link  struct link  3 times, 16 bytes apart\n\n";
    assert_eq!((code, text, &*errors), (0, format!("{item}{table}"), ""));
    let (_, text, _) = layout(&["find", "ta*", "--contains", "link"], &[&file]);
    assert_eq!(text, table);
    let (_, json, _) = layout(&["find", "--points-to", "item", "--json"], &[&file]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["name"], &json["places"][0]["path"]), (&"table".into(), &"first".into()));
    assert_eq!(json["places"][0]["offset"], 56);
    let (code, text, _) = layout(&["find", "--contains", "table"], &[&file]);
    assert_eq!((code, &*text), (0, "no type contains \"table\"\n"));
    let (code, _, errors) = layout(&["find", "--points-to", "itme"], &[&file]);
    assert_eq!((code, errors.lines().count()), (2, 1), "{errors}");
    assert!(errors.contains("there is no type \"itme\"; did you mean `item`?"), "{errors}");
    let (code, _, errors) = layout(&["find"], &[&file]);
    assert!(code == 2 && errors.contains("--contains"), "{errors}");
}

#[test]
fn a_perf_data_is_a_profile() {
    let Some(file) = object(COUNTER) else { return };
    let holds = perf::TID | perf::ADDR | perf::CPU | perf::PERIOD | perf::DATA_SRC;
    let events = [perf::Event { name: "mem-stores".to_owned(), holds }];
    let sample = |cpu, address, source| perf::Sample {
        event: 0,
        thread: 1,
        cpu,
        address,
        period: 1,
        source,
    };
    let samples = [sample(0, 0x1000, 0x508_0144), sample(1, 0x1008, 0x508_0142)];
    let path = support::scratch("written.perf.data");
    std::fs::write(&path, perf::file(perf::PLAIN, &events, &samples)).unwrap();
    let path = path.to_str().unwrap();
    let (code, toml, errors) =
        layout(&["profile", "--profile", path, "--object", "counter@0x1000"], &[&file]);
    assert_eq!((code, &*errors), (0, ""), "{toml}");
    assert!(toml.contains("usage = { store = 1") && toml.contains("max = { load = 1"), "{toml}");
    let (code, _, errors) = layout(&["profile", "--profile", path], &[&file]);
    assert_eq!((code, errors.lines().count()), (2, 1), "{errors}");
    assert!(errors.contains("--object TYPE@0xADDRESS"), "{errors}");
}

#[test]
fn differences_are_ranked_by_what_they_cost() {
    let source = |padded: bool| {
        let pad = if padded { "char pad[120];" } else { "" };
        format!(
            "struct first {{ long hot; long read; }} a;\n\
             struct cold {{ long x; {pad} }} b;\n\
             struct second {{ long hot; {pad} long read; }} c;\n\
             struct third {{ long hot; {} long read; }} d;\n",
            if padded { "" } else { "char pad[120];" },
        )
    };
    let (Some(old), Some(new)) = (object(&source(false)), object(&source(true))) else { return };
    let profile = support::scratch("ranked.toml");
    let of = |name: &str| {
        format!(
            "[types.{name}]\nwork_ns = 3000\nfields = {{ hot = {{ atomic = 1 }}, read = {{ load = 1 }} }}\n"
        )
    };
    std::fs::write(&profile, of("first") + &of("second") + &of("third")).unwrap();
    let path = profile.to_str().unwrap();
    let options = [
        "diff",
        "--profile",
        path,
        "--machine",
        "haswell-ep-2699v3",
        "--cpus",
        "72",
        "--points",
        "4",
    ];
    let (code, text, errors) = layout(&options, &[&old, &new]);
    assert_eq!((code, &*errors), (1, ""));
    let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
    // `third` lost its padding and `second` got some. The profile does not know `cold`. `first` did not change.
    assert!(at("third: ") < at("second: ") && at("second: ") < at("cold: "), "{text}");
    assert!(text.contains("`hot`, written on its line, makes `read` wait +"), "{text}");
    assert!(text.contains("4 machines within what is known of"), "{text}");
    let (_, json, _) = layout(&[&options[..], &["--json"]].concat(), &[&old, &new]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["changed"][0]["name"], "third");
    assert!(json["changed"][0]["predicted"]["change"]["low"].as_f64().unwrap() > 0.0);
    assert!(json["changed"][1]["predicted"]["change"]["high"].as_f64().unwrap() < 0.0);
    assert!(json["changed"][2]["predicted"].is_null());
    for (arguments, message) in [
        (
            &["diff", "cold", "--profile", path][..],
            "says nothing of the types that are compared; it knows first",
        ),
        (&["diff", "--profile", path, "--machine", "vax"], "vax"),
        (&["diff", "--profile", path, "--cpus", "73"], "diff: --cpus: 73 CPUs are asked for"),
        (&["diff", "--cpus", "3"], "--profile"),
    ] {
        let (code, out, errors) = layout(arguments, &[&old, &new]);
        assert_eq!((code, &*out), (2, ""), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
}

//! Schemas of the subcommands of `layout`.

use crate::held::held;
use crate::support::{have, lab, object, recorder, scratch, stderr};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Types with bitfields, holes, arrays, and a type that another contains.
const TYPES: &str = "struct link { struct link *next; };\n\
                     struct counter { long usage; long max; struct link links[2][3]; char on : 1; char kind : 3;\n\
                                      char name[60]; short tail; } counter;\n\
                     union both { int a; double b; } both;\n";

/// The same types with other neighbours; one type is removed and one added.
const CHANGED: &str = "struct link { struct link *next; };\n\
                       struct counter { long usage; char pad[64]; long max; struct link links[2][3]; char on : 1;\n\
                                        char kind : 3; char name[60]; int tail; } counter;\n\
                       struct fresh { int a; } fresh;\n";

const PROFILE: &str = "\
machine = 'haswell-ep-2699v3'
cpus = 36

[[types.counter.roles]]
name = 'reader'
share = 0.5
takes_ns = 2000
fields = { max = { load = 1 }, tail = { load = 0.5 } }

[[types.counter.roles]]
name = 'writer'
share = 0.5
work_ns = 2000
fields = { usage = { atomic = 1 } }
";

fn written(name: &str, text: &str) -> PathBuf {
    let path = scratch(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns the documents that the command prints, one object a line. `status` is the expected exit status.
fn printed(status: i32, arguments: &[&str], files: &[&Path]) -> Vec<Value> {
    let (subcommand, rest) = arguments.split_first().unwrap();
    let mut command = lab();
    command.args(["layout", subcommand]).args(files).args(rest).arg("--json");
    let output = command.output().expect("the command runs");
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let documents: Vec<Value> = text.lines().map(read).collect();
    assert!(!documents.is_empty(), "{arguments:?}");
    documents
}

#[test]
fn types_and_who_holds_them() {
    let Some(file) = object(TYPES) else { return };
    let profile = written("schemas-show.toml", PROFILE);
    let profile = profile.to_str().unwrap();
    for arguments in [
        &["show", "--all", "--expand", "--lines", "both"][..],
        &["show", "counter", "--base", "align=8", "--profile", profile],
    ] {
        printed(0, arguments, &[&file]).iter().for_each(|one| held("layout-show", one));
    }
    for link in ["--contains", "--points-to"] {
        let found = printed(0, &["find", link, "link"], &[&file]);
        found.iter().for_each(|one| held("layout-find", one));
    }
}

#[test]
fn the_variants_of_a_rust_enum() {
    if !have("rustc") {
        return;
    }
    let source = written(
        "schemas.rs",
        "pub enum Either { Small(u8), Large([u64; 9]), Text(&'static str) }\n\
         #[unsafe(no_mangle)] pub static EITHER: Either = Either::Small(1);\n\
         #[unsafe(no_mangle)] pub static NONE: Option<&'static u64> = None;\n",
    );
    let file = source.with_extension("o");
    let compiled = Command::new("rustc")
        .args(["--crate-type", "lib", "--edition", "2024", "--emit", "obj", "-g", "-o"])
        .args([&file, &source])
        .status();
    assert!(compiled.unwrap().success());
    let all = printed(0, &["show", "--all"], &[&file]);
    all.iter().for_each(|one| held("layout-show", one));
    for field in ["niche", "gaps"] {
        let variants = all.iter().filter_map(|one| one["variants"].as_array()).flatten();
        assert!(variants.into_iter().any(|variant| variant.get(field).is_some()), "{field}");
    }
}

#[test]
fn rules_that_hold_and_rules_that_do_not() {
    let Some(file) = object(TYPES) else { return };
    for (status, fields) in [(0, "['usage', 'tail']"), (1, "['usage', 'max']")] {
        let text = format!("[[type]]\nname = 'counter'\napart = [{{ among = {fields} }}]\n");
        let rules = written("schemas-rules.toml", &text);
        let told = printed(status, &["check", "--rules", rules.to_str().unwrap()], &[&file]);
        held("layout-check", &told[0]);
        assert_eq!(told[0]["holds"], status == 0);
    }
}

#[test]
fn two_builds_plain_and_priced() {
    let (Some(old), Some(new)) = (object(TYPES), object(CHANGED)) else { return };
    held("layout-diff", &printed(1, &["diff"], &[&old, &new])[0]);
    let profile = written("schemas-diff.toml", PROFILE);
    let priced = ["diff", "--points", "2", "--profile", profile.to_str().unwrap()];
    let told = &printed(1, &priced, &[&old, &new])[0];
    held("layout-diff", told);
    assert!(told["changed"][0]["predicted"].is_object(), "{told:#}");
}

#[test]
fn advice_and_its_trial() {
    let Some(file) = object(TYPES) else { return };
    let profile = written("schemas-advise.toml", PROFILE);
    let of = ["counter", "--points", "2", "--profile", profile.to_str().unwrap()];
    let trial = ["--trial", "--seconds", "0.2"];
    let advice = &printed(0, &[&["advise"][..], &of, &trial].concat(), &[&file])[0];
    held("layout-advise", advice);
    for field in ["proposal", "trial", "works"] {
        assert!(advice.get(field).is_some(), "{field}: {advice:#}");
    }
    let order = written("schemas-order.txt", "max\nusage 64\n");
    let against = ["--seconds", "0.2", "--against", order.to_str().unwrap()];
    held("layout-trial", &printed(0, &[&["trial"][..], &of, &against].concat(), &[&file])[0]);
}

#[test]
fn what_is_recorded_of_a_program() {
    if !have("gcc") {
        return;
    }
    let source = written(
        "schemas-record.c",
        "#include <pthread.h>\n\
         struct s { _Atomic long x; long y; } object;\n\
         __attribute__((noinline)) static void operation(void) { object.x++; object.y; }\n\
         static void *work(void *_) { for (int i = 0; i < 1000; i++) operation(); return 0; }\n\
         int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); work(0); pthread_join(t, 0); return 0; }\n",
    );
    let (compiled, program) = (source.with_extension("o"), source.with_extension(""));
    let gcc = |arguments: &[&str], files: &[&Path]| {
        let done = Command::new("gcc").args(files).args(arguments).status();
        assert!(done.unwrap().success());
    };
    gcc(&["-g", "-O2", "-fsanitize=thread", "-c", "-o", compiled.to_str().unwrap()], &[&source]);
    let library = recorder().parent().unwrap().to_str().unwrap();
    let link = ["-o", program.to_str().unwrap(), "-L", library, "-lledgerline_record", "-lpthread"];
    gcc(&link, &[&compiled]);
    let json = scratch("schemas-record.json");
    for operations in [&["--operation", "operation"][..], &[]] {
        let output = lab()
            .args(["layout", "record", "--json", json.to_str().unwrap()])
            .args(operations)
            .args(["--", program.to_str().unwrap()])
            .output()
            .expect("the command starts");
        assert!(output.status.success(), "{}", stderr(&output));
        let text = std::fs::read_to_string(&json).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        held("layout-record", &recorded);
        assert!(!recorded["types"].as_array().unwrap().is_empty());
    }
}

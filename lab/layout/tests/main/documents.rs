//! The two source documents about layouts: their structures, compiled before and after. They are Linux commit
//! 408587baee39, "mm: page_counter: rearrange struct page_counter fields", and the report against e27be240df53,
//! "mm: memcg: make sure memory.events is uptodate when waking pollers".

use std::path::Path;
use std::process::Command;

use crate::compile;
use crate::golden;
use ledgerline_layout::diff::{Sides, compare, text};
use ledgerline_layout::model::Types;
use ledgerline_layout::pick::pick;
use ledgerline_layout::rules::{self, File, Language};

fn both(name: &str) -> Option<(Types, Types)> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.c"));
    Some((compile::types(&source, &[])?, compile::types(&source, &["-DAFTER"])?))
}

fn difference(old: &Types, new: &Types, name: &str) -> String {
    let find = |types| pick(types, &[name.to_owned()]).unwrap()[0].1;
    let sides = Sides { old: (old, find(old)), new: (new, find(new)) };
    let mut out = String::new();
    text(&compare(name, sides, 64).expect("a change"), &mut out);
    out
}

const RULES: &str = "\
[[type]]
name = 'page_counter'
together = [['min', 'low', 'high', 'max', 'parent']]
no_rmw_with_read_mostly = { rmw = ['usage'], read_mostly = ['min', 'low', 'high', 'max', 'parent'] }
starts_line = ['usage']
max_lines = 3
";

#[test]
fn of_the_counter_usage_leaves_the_limits_and_parent_joins_them() {
    let Some((old, new)) = both("page_counter") else { return };
    let said = difference(&old, &new, "page_counter");
    let line = |start: &str| said.lines().find(|line| line.starts_with(start)).expect(start);
    assert!(line("  `usage` left the line of").contains("`min, low, high, max`"), "{said}");
    let parent = line("  `parent` left");
    assert!(parent.contains("now shares one with `min, low, high, max`"), "{said}");
    golden::same("page-counter-layout.diff", &said);
}

#[test]
fn the_rule_of_the_counter_is_broken_before_and_holds_after() {
    let Some((old, new)) = both("page_counter") else { return };
    let rules = File::parse(RULES).unwrap();
    let broken = rules::check(&old, &rules, None).unwrap();
    let said = rules::text(&broken);
    assert!(said.contains("no_rmw_with_read_mostly: usage (8 bytes at 0)"), "{said}");
    assert!(said.contains("min (8 bytes at 8)"), "{said}");
    assert_eq!(rules::check(&new, &rules, None).unwrap(), []);
    let mut sarif = rules::sarif(&broken, "page_counter.o");
    for result in sarif["runs"][0]["results"].as_array_mut().unwrap() {
        // The place of the sources differs from machine to machine.
        let place = &mut result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert!(place.as_str().unwrap().ends_with("tests/fixtures/page_counter.c"), "{place}");
        *place = "page_counter.c".into();
    }
    golden::same(
        "page-counter-layout.sarif",
        &format!("{}\n", serde_json::to_string_pretty(&sarif).unwrap()),
    );
}

#[test]
fn of_the_group_stat_cpu_parts_from_moving_account_and_memory_events_is_why() {
    let Some((old, new)) = both("mem_cgroup") else { return };
    let said = difference(&old, &new, "mem_cgroup");
    let first = said.lines().nth(1).unwrap();
    assert!(first.starts_with("  cause: `memory_events` was inserted"), "{said}");
    assert_eq!(said.matches("cause:").count(), 1, "{said}");
    let parted = said.lines().find(|line| {
        let (who, whom) = line.split_once(" left the line of ").unwrap_or_default();
        who.contains("stat_cpu") && whom.contains("moving_account")
    });
    assert!(parted.is_some_and(|line| line.contains("stat[0..5]")), "{said}");
    golden::same("memcg-layout.diff", &said);
}

#[test]
fn assertions_compile_where_the_rules_hold_and_fail_where_they_are_broken() {
    let Some((_, new)) = both("page_counter") else { return };
    let rules = File::parse(RULES).unwrap();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/page_counter.c");
    let text = rules::emit(&new, &rules, None, Language::C).unwrap();
    golden::same("page-counter-layout.c", &text);
    let source = directory.join("documents-assertions.c");
    std::fs::write(&source, format!("#include {fixture:?}\n{text}")).unwrap();
    compile::types(&source, &["-DAFTER"]);
    let before = Command::new("cc").args(["-fsyntax-only"]).arg(&source).output().unwrap();
    let said = String::from_utf8_lossy(&before.stderr);
    assert!(!before.status.success() && said.contains("usage apart from min"), "{said}");

    let text = rules::emit(&new, &rules, None, Language::Rust).unwrap();
    golden::same("page-counter-layout.rs", &text);
    let layout = |after: bool| {
        let limits = "min: u64, low: u64, high: u64, max: u64,";
        let pad = if after { "pad: [u64; 7]," } else { limits };
        let end = if after { limits } else { "" };
        format!(
            "#![allow(dead_code, non_camel_case_types)]\n#[repr(C, align(64))]\npub struct \
             page_counter {{ usage: u64, {pad} others: [u64; 8], {end} parent: u64 }}\n{text}"
        )
    };
    for after in [true, false] {
        let source = directory.join(format!("documents-assertions-{after}.rs"));
        std::fs::write(&source, layout(after)).unwrap();
        let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        compiler.args(["--edition", "2021", "--crate-type", "lib", "--emit", "metadata"]);
        compiler.arg("--out-dir").arg(directory).arg(&source);
        let output = compiler.output().expect("rustc runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), after, "{said}");
    }
}

#[test]
fn assertions_about_types_of_rust_compile_in_their_crate_and_name_what_they_leave_out() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = directory.join("asserted.rs");
    let text = "pub mod inner { pub struct Pair(pub u32, pub (u64, u8)); pub struct Of<T> { pub a: T, \
                pub pair: Pair } }\npub fn call<F: Fn() -> u64>(f: F) -> u64 { f() }\npub fn used(pair: \
                &inner::Pair, of: &inner::Of<u16>) -> u64 { let many = [pair.1.0; 9]; call(move || many[3] + \
                u64::from(of.a)) }\n";
    std::fs::write(&source, text).unwrap();
    let compile = |emit: &str, more: &[&str], out: &Path| {
        let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        compiler.args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "asserted"]);
        compiler.args(["--emit", emit, "-g"]).args(more).arg("-o").arg(out).arg(&source);
        compiler.output().expect("rustc runs")
    };
    let object = directory.join("asserted.o");
    assert!(compile("obj", &[], &object).status.success());
    let types = ledgerline_layout::open(&object).unwrap().types;
    let rules = "line = 64\n[[type]]\nname = \"asserted::inner::*\"\nsize_max = 64\n\
                 [[type]]\nname = \"asserted::inner::Of<u16>\"\nstarts_line = [\"pair.__1.__0\"]\n\
                 [[type]]\nname = \"asserted::used::*\"\nsize_max = 128\n";
    let text = rules::emit(&types, &File::parse(rules).unwrap(), None, Language::Rust).unwrap();
    assert!(text.contains("offset_of!(asserted::inner::Of<u16>, pair.1.0)"), "{text}");
    assert!(text.contains("asserted::used::{closure_env#0}, left to"), "{text}");
    assert!(text.contains("Rust has no name for the type"), "{text}");
    let whole = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, format!("extern crate self as asserted;\n{whole}{text}")).unwrap();
    let output = compile("metadata", &[], &directory.join("asserted.rmeta"));
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

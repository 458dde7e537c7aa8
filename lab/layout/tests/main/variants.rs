//! The bytes that variants of Rust enums use, against rustc's own report (`-Zprint-type-sizes`).

use std::collections::HashMap;
use std::process::Command;

use crate::golden;
use crate::support::folder;
use crate::support::truth::fixture;
use ledgerline_layout::model::{Kind, Types};
use ledgerline_layout::open;
use ledgerline_layout::show::{self, Options};
use ledgerline_layout::variants::{Variant, variants};

/// rustc's report of a type: its size, the size of its tag if that is not a niche, and for each variant the bytes of
/// its fields and of the padding between them.
#[derive(Debug, Default)]
struct Said {
    size: u64,
    tag: Option<u64>,
    variants: HashMap<String, (u64, u64)>,
}

fn parse(text: &str) -> HashMap<String, Said> {
    let mut all: HashMap<String, Said> = HashMap::new();
    let (mut name, mut variant) = (String::new(), String::new());
    for line in text.lines().filter_map(|line| line.strip_prefix("print-type-size ")) {
        // `type: `NAME`: SIZE bytes, alignment: ...`, and the like.
        let quoted = line.split('`').nth(1).unwrap_or_default();
        let size = || {
            let rest = line.rsplit_once('`').map_or(line, |(_, rest)| rest);
            let (_, rest) = rest.split_once(": ").unwrap();
            rest.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        if line.starts_with("type: ") {
            name = quoted
                .replace("std::option", "core::option")
                .replace("std::result", "core::result");
            all.entry(name.clone()).or_default().size = size();
            continue;
        }
        let said = all.get_mut(&name).unwrap();
        match (indent, line.split([' ', ':']).next().unwrap()) {
            (4, "discriminant") => said.tag = Some(size()),
            (4, "variant") => {
                variant = quoted.to_owned();
                said.variants.insert(variant.clone(), (0, 0));
            }
            (8, what @ ("field" | "padding")) => {
                let (data, padding) = said.variants.get_mut(&variant).unwrap();
                *if what == "field" { data } else { padding } += size();
            }
            _ => {}
        }
    }
    all
}

fn compiled(test: &str) -> Option<(Types, String)> {
    let folder = folder(test);
    let mut rustc = Command::new("rustc");
    // The option is for testing the compiler.
    rustc.env("RUSTC_BOOTSTRAP", "1").current_dir(&folder).args([
        "-g",
        "-Zprint-type-sizes",
        "--edition=2024",
    ]);
    let output = rustc.arg(fixture("variants.rs")).output();
    let Ok(output) =
        output.inspect_err(|error| eprintln!("skipped: rustc cannot be run ({error})"))
    else {
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let types = open(&folder.join("variants")).unwrap().types;
    Some((types, String::from_utf8(output.stdout).unwrap()))
}

fn of<'t>(types: &'t Types, name: &str) -> (u64, Vec<Variant<'t>>) {
    let (_, record) =
        types.records().find(|(_, record)| types.name(record.name) == name).expect(name);
    (record.size, variants(types, record))
}

#[test]
fn data_tag_and_padding_are_as_rustc_says() {
    let Some((types, text)) = compiled("variants_rustc") else { return };
    let said = parse(&text);
    let mut seen = 0;
    for (_, record) in types.records().filter(|(_, record)| record.kind == Kind::Enum) {
        let name = types.name(record.name);
        let Some(said) = said.get(name.strip_prefix("variants::").unwrap_or(name)) else {
            continue;
        };
        assert_eq!(record.size, said.size, "{name}");
        for variant in variants(&types, record) {
            let name = format!("{name}::{}", variant.name);
            let all = variant.data + variant.tag + variant.padding();
            assert_eq!(all, 8 * record.size, "{name}: {variant:?}");
            let Some(&(data, padding)) = said.variants.get(variant.name) else {
                // It can never exist, but debug information does not show that.
                assert_eq!((&*name, variant.data), ("variants::OneOf::Never", 0));
                continue;
            };
            assert_eq!(variant.data, 8 * data, "{name}");
            seen += 1;
            if let Some(tag) = said.tag {
                assert_eq!((variant.tag, variant.niche), (8 * tag, false), "{name}");
                // Gaps before the last field are rustc's padding between fields; it does not list those behind.
                let last = types
                    .records()
                    .find(|(_, of)| of.kind == Kind::Variant && types.name(of.name) == name);
                let (_, last) = last.expect(&name);
                let end = last.members.iter().filter(|m| types.size(m.ty) != Some(0));
                let end = end.map(|m| 8 * m.offset).max().unwrap_or(0);
                let between: u64 =
                    variant.gaps.iter().filter(|gap| gap.start < end).map(|gap| gap.bits).sum();
                assert_eq!(between, 8 * padding, "{name}: {variant:?}");
            }
        }
    }
    assert!(seen > 30, "only {seen} variants compared");
}

/// The expected values of a variant: data, tag, whether it is a niche, padding; in bytes.
type Known = (u64, u64, bool, u64);
/// An enum's name and size, and its variants.
type KnownEnum<'a> = (&'a str, u64, &'a [(&'a str, Known)]);

fn bytes(variant: &Variant<'_>) -> Known {
    (variant.data / 8, variant.tag / 8, variant.niche, variant.padding() / 8)
}

#[test]
fn known_layouts_are_told_variant_by_variant() {
    let Some((types, _)) = compiled("variants_known") else { return };
    let known: [KnownEnum<'_>; 9] = [
        // A null pointer stands for `None`, so the tag is in the pointer.
        (
            "core::option::Option<alloc::boxed::Box<u32, alloc::alloc::Global>>",
            8,
            &[("None", (0, 8, false, 0)), ("Some", (8, 0, true, 0))],
        ),
        ("core::option::Option<u32>", 8, &[("None", (0, 4, false, 4)), ("Some", (4, 4, false, 0))]),
        (
            "core::option::Option<core::num::nonzero::NonZero<u32>>",
            4,
            &[("None", (0, 4, false, 0)), ("Some", (4, 0, true, 0))],
        ),
        // The outer tag is another value of the inner one.
        (
            "core::option::Option<core::option::Option<u32>>",
            8,
            &[("None", (0, 4, false, 4)), ("Some", (8, 0, true, 0))],
        ),
        (
            "variants::AsInC",
            24,
            &[("A", (1, 4, false, 19)), ("B", (9, 4, false, 11)), ("C", (0, 4, false, 20))],
        ),
        (
            "variants::Big",
            808,
            &[
                ("Small", (1, 1, false, 806)),
                ("Huge", (802, 1, false, 5)),
                ("None", (0, 1, false, 807)),
            ],
        ),
        ("variants::Only", 8, &[("One", (5, 0, false, 3))]),
        (
            "variants::Possible",
            16,
            &[("Yes", (4, 1, false, 11)), ("No", (8, 1, false, 7)), ("Maybe", (1, 1, false, 14))],
        ),
        // A string's capacity has values that it never takes.
        (
            "variants::Many",
            24,
            &[
                ("First", (5, 8, false, 11)),
                ("Second", (10, 8, false, 6)),
                ("Third", (0, 8, false, 16)),
                ("Fourth", (24, 0, true, 0)),
            ],
        ),
    ];
    for (name, size, expected) in known {
        let (found, list) = of(&types, name);
        let list: Vec<_> = list.iter().map(|variant| (variant.name, bytes(variant))).collect();
        assert_eq!((found, &list[..]), (size, expected), "{name}");
    }
    // A record that contains an enum has no variants of its own.
    assert_eq!(of(&types, "variants::Holder").1, []);
}

#[test]
fn what_no_variant_uses_is_a_hole_of_the_enum_and_padding_at_its_end() {
    let Some((types, _)) = compiled("variants_holes") else { return };
    let shown = |name: &str, json: bool| {
        let (id, _) = types.records().find(|(_, record)| types.name(record.name) == name).unwrap();
        let (mut text, mut bytes) = (String::new(), Vec::new());
        if json {
            show::json(&types, name, id, &Options::default(), &mut bytes);
        } else {
            show::text(&types, name, id, &Options::default(), &mut text);
        }
        text + std::str::from_utf8(&bytes).unwrap()
    };
    // Layouts that the language guarantees, or nearly so.
    let names = ["variants::AsInC", "variants::Tagged", "core::option::Option<u32>"];
    let text: String = names.iter().map(|name| shown(name, false)).collect();
    golden::same("variants.txt", &text);
    golden::same("variants.json", &names.map(|name| shown(name, true)).concat());
}

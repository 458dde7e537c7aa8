//! Holders of a type in the output of a C compiler: the compiler agrees on each place, and pahole finds nothing more.

use std::process::Command;

use crate::golden;
use crate::support::compile::compile;
use crate::support::{folder, have};
use ledgerline_layout::holders::{self, Holder, Link, Targets, holders};
use ledgerline_layout::model::Types;
use ledgerline_layout::open;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/holders.c");

fn object(test: &str) -> Option<(std::path::PathBuf, Types)> {
    let folder = folder(test);
    compile("gcc", &folder, &["-g", "-c", FIXTURE, "-o", "holders.o"])?;
    let path = folder.join("holders.o");
    let types = open(&path).unwrap().types;
    Some((path, types))
}

fn find<'t>(types: &'t Types, name: &str, link: Link) -> Vec<Holder<'t>> {
    holders(types, &Targets::of(types, name).unwrap(), link).unwrap()
}

/// The questions that the golden file answers.
const QUESTIONS: [(&str, Link); 7] = [
    ("link", Link::Contains),
    ("struct direct", Link::Contains),
    ("atomic", Link::Contains),
    ("word", Link::Contains),
    ("link_t", Link::PointsTo),
    ("unknown", Link::PointsTo),
    ("pointing", Link::PointsTo),
];

#[test]
fn every_way_to_hold_a_type_is_found() {
    let Some((_, types)) = object("holders_golden") else { return };
    let (mut out, mut json) = (String::new(), Vec::new());
    for (name, link) in QUESTIONS {
        out.push_str(&format!("== {link:?} {name}\n"));
        for holder in find(&types, name, link) {
            holders::text(&types, &holder, &mut out);
            holders::json(&types, &holder, &mut json);
        }
    }
    golden::same("holders.txt", &out);
    golden::same("holders.json", &String::from_utf8(json).unwrap());
}

#[test]
fn the_compiler_agrees_on_every_place() {
    let Some((path, types)) = object("holders_asserted") else { return };
    let mut source = format!("#include <stddef.h>\n#include \"{FIXTURE}\"\n");
    let mut asserted = 0;
    for (name, link) in QUESTIONS {
        for holder in find(&types, name, link) {
            let union = if holder.name == "either" { "union" } else { "struct" };
            for place in &holder.places {
                let (path, outer) = (place.path.replace("[]", "[0]"), holder.name);
                let (offset, size) = (place.start / 8, place.size);
                source.push_str(&format!(
                    "_Static_assert(offsetof({union} {outer}, {path}) == {offset}, \"{outer}.{path}\");\n\
                     _Static_assert(sizeof((({union} {outer} *)0)->{path}) == {size}, \"{outer}.{path}\");\n"
                ));
                asserted += 1;
            }
        }
    }
    assert!(asserted > 25, "{source}");
    let folder = path.parent().unwrap();
    std::fs::write(folder.join("asserted.c"), &source).unwrap();
    let gcc = Command::new("gcc").current_dir(folder).args(["-c", "asserted.c"]).output().unwrap();
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
}

#[test]
fn what_pahole_finds_is_found() {
    if !have("pahole") {
        return;
    }
    let Some((path, types)) = object("holders_pahole") else { return };
    let pahole = |option: &str| {
        let output = Command::new("pahole").arg(option).arg(&path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let found = find(&types, "link", Link::Contains);
    let theirs = pahole("--contains=link");
    assert!(!theirs.is_empty(), "pahole finds nothing");
    for name in theirs.lines() {
        assert!(found.iter().any(|holder| holder.name == name), "{name}");
    }
    let found = find(&types, "link", Link::PointsTo);
    let theirs = pahole("--find_pointers_to=link");
    assert!(!theirs.is_empty(), "pahole finds nothing");
    for line in theirs.lines() {
        let (name, path) = line.split_once(": ").unwrap();
        let holder = found.iter().find(|holder| holder.name == name).expect(line);
        assert!(holder.places.iter().any(|place| place.path == path), "{line}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_near_ones() {
    let Some((_, types)) = object("holders_unknown") else { return };
    let error = Targets::of(&types, "struct lnik").unwrap_err().to_string();
    assert!(error.starts_with("there is no type \"struct lnik\"; did you mean `link`"), "{error}");
    assert!(find(&types, "deeper", Link::PointsTo).is_empty());
}

const CPLUSPLUS: &str = "\
namespace a { struct node { node *next; int x; }; template <class T> struct box { T *to; }; }\n\
struct base { a::node first; virtual ~base() {} };\n\
struct derived : base { a::node &ref; a::node &&moved; a::box<a::node> boxed; derived(a::node &n) : ref(n), moved((a::node &&)n) {} };\n\
a::node n; derived d(n);\n";

#[test]
fn classes_of_cplusplus_have_qualified_names_bases_and_references() {
    let folder = folder("holders_cplusplus");
    std::fs::write(folder.join("a.cc"), CPLUSPLUS).unwrap();
    if compile("g++", &folder, &["-g", "-c", "a.cc"]).is_none() {
        return;
    }
    let types = open(&folder.join("a.o")).unwrap().types;
    let said = |link| -> Vec<String> {
        let found = find(&types, "a::node", link);
        let said = found.iter().map(|holder| {
            let paths: Vec<&str> = holder.places.iter().map(|place| &*place.path).collect();
            format!("{}: {}", holder.name, paths.join(" "))
        });
        said.collect()
    };
    assert_eq!(said(Link::Contains), ["base: first", "derived: base.first"]);
    // The holder of a smart pointer does not itself point.
    assert_eq!(
        said(Link::PointsTo),
        ["a::box<a::node>: to", "a::node: next", "derived: ref moved"]
    );
}

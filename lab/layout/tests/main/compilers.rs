//! BTF written by compilers: the reader agrees with the output of a program that was compiled from the same source.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{folder, have};
use ledgerline_layout::model::{Member, Name, Record, Type, Types};
use ledgerline_layout::{Options, Prefer, Source, open_with};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/places.c");

/// Returns whether the program succeeded; it prints nothing.
fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Returns the program's output about its own types.
fn truth(folder: &Path) -> String {
    let program = folder.join("places");
    assert!(run("gcc", &["-w", "-o", program.to_str().unwrap(), SOURCE]), "gcc compiles {SOURCE}");
    String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap()
}

fn types(file: &Path) -> Types {
    let opened = open_with(file, &Options { prefer: Prefer::Btf, base: None }).unwrap();
    assert_eq!(opened.source, Source::Btf);
    opened.types
}

fn record<'a>(types: &'a Types, name: &str) -> &'a Record {
    let (_, record) = types
        .records()
        .find(|(_, record)| types.name(record.name) == name)
        .unwrap_or_else(|| panic!("no {name}"));
    record
}

/// Compares line by line; returns the number of lines. `aligned` types are those whose alignment an attribute raised,
/// which BTF does not state.
fn compare(types: &Types, truth: &str, aligned: &[&str]) -> usize {
    for line in truth.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().ok();
        let record = record(types, words[1]);
        if words[0] == "type" {
            assert_eq!(Some(record.size), number(2), "{line}");
            if !aligned.contains(&words[1]) {
                assert_eq!(Some(record.align.bytes()), number(3), "{line}");
            }
            continue;
        }
        let member =
            record.members.iter().find(|member| types.name(member.name) == words[2]).unwrap();
        match words[0] {
            "member" => {
                assert_eq!(Some(member.offset), number(3), "{line}");
                assert_eq!(member.bits, None, "{line}");
                assert_eq!(types.size(member.ty), number(4), "{line}");
            }
            "bits" => {
                let bits = member.bits.unwrap();
                assert_eq!(Some(8 * member.offset + u64::from(bits.offset)), number(3), "{line}");
                assert_eq!(Some(bits.size.into()), number(4), "{line}");
                let unit = types.size(member.ty).unwrap();
                assert!(
                    member.offset.is_multiple_of(unit),
                    "{line}: the unit is at {}",
                    member.offset
                );
            }
            _ => panic!("{line}"),
        }
    }
    truth.lines().count()
}

/// Types whose alignment an attribute on a member raised.
const ALIGNED: [&str; 2] = ["aligned", "all"];

#[test]
fn btf_by_gcc_says_what_the_program_says_of_itself() {
    if !have("gcc") {
        return;
    }
    let folder = folder("by_gcc");
    let object = folder.join("places.o");
    if !run("gcc", &["-w", "-gbtf", "-c", "-o", object.to_str().unwrap(), SOURCE]) {
        println!("skipped: this gcc writes no BTF");
        return;
    }
    assert!(compare(&types(&object), &truth(&folder), &ALIGNED) > 60);
}

#[test]
fn btf_by_pahole_says_what_the_program_says_of_itself() {
    if !have("gcc") || !have("pahole") {
        return;
    }
    let folder = folder("by_pahole");
    let truth = truth(&folder);
    let object = folder.join("places.o");
    assert!(run("gcc", &["-w", "-g", "-c", "-o", object.to_str().unwrap(), SOURCE]));
    let detached: PathBuf = folder.join("places.btf");
    let encode = format!("--btf_encode_detached={}", detached.display());
    assert!(run("pahole", &[&encode, object.to_str().unwrap()]));
    assert!(compare(&types(&detached), &truth, &ALIGNED) > 60);
    // The BTF may also lie within the object, beside DWARF.
    assert!(run("pahole", &["-J", object.to_str().unwrap()]));
    assert!(compare(&types(&object), &truth, &ALIGNED) > 60);
}

/// The compiler itself checks the expected layout.
const OF_I386: &str = "
struct mixed { void *p; long long w; char c; double d; } mixed;
_Static_assert(sizeof(struct mixed) == 24 && _Alignof(struct mixed) == 4, \"i386\");
_Static_assert(__builtin_offsetof(struct mixed, w) == 4, \"i386\");
_Static_assert(__builtin_offsetof(struct mixed, d) == 16, \"i386\");
";

#[test]
fn elf_says_the_machine_that_btf_does_not() {
    if !have("gcc") {
        return;
    }
    let folder = folder("elf_says");
    let (source, object) = (folder.join("mixed.c"), folder.join("mixed.o"));
    std::fs::write(&source, OF_I386).unwrap();
    if !run(
        "gcc",
        &["-m32", "-gbtf", "-c", "-o", object.to_str().unwrap(), source.to_str().unwrap()],
    ) {
        println!("skipped: this gcc does not compile for i386");
        return;
    }
    let types = types(&object);
    assert_eq!((types.pointer_size, types.widest_scalar_align), (4, 4));
    let mixed = record(&types, "mixed");
    assert_eq!((mixed.size, mixed.align.bytes()), (24, 4));
    let expected = [("p", 0, 4), ("w", 4, 8), ("c", 12, 1), ("d", 16, 8)];
    let expected =
        expected.map(|(name, byte, size)| (name.to_string(), 8 * byte, None, Some(size)));
    assert_eq!(places(&types, mixed), expected);
}

/// Returns the name, first bit, width of a bitfield and size of each member.
fn places(types: &Types, record: &Record) -> Vec<(String, u64, Option<u8>, Option<u64>)> {
    let place = |member: &Member| {
        let bit = member.bits.map_or(0, |bits| u64::from(bits.offset));
        let width = member.bits.map(|bits| bits.size);
        let name = types.name(member.name).to_string();
        (name, 8 * member.offset + bit, width, types.size(member.ty))
    };
    record.members.iter().map(place).collect()
}

#[test]
fn btf_and_dwarf_of_one_object_say_the_same() {
    if !have("gcc") || !have("pahole") {
        return;
    }
    let folder = folder("btf_and_dwarf");
    let object = folder.join("places.o");
    assert!(run("gcc", &["-w", "-g", "-c", "-o", object.to_str().unwrap(), SOURCE]));
    assert!(run("pahole", &["-J", object.to_str().unwrap()]));
    let btf = types(&object);
    let opened = open_with(&object, &Options::default()).unwrap();
    assert_eq!(opened.source, Source::Dwarf);
    let dwarf = opened.types;
    let mut compared = 0;
    for (_, ours) in btf.records().filter(|(_, record)| record.name != Name::NONE) {
        let name = btf.name(ours.name);
        let theirs = record(&dwarf, name);
        assert_eq!((ours.size, ours.kind), (theirs.size, theirs.kind), "{name}");
        let mut expected = places(&dwarf, theirs);
        if let Some(last) = expected.last_mut()
            && last.3 == Some(0)
            && matches!(dwarf.get(theirs.members.last().unwrap().ty), Type::Array { .. })
        {
            // DWARF distinguishes `[0]` from `[]`, BTF does not.
            last.3 = None;
        }
        assert_eq!(places(&btf, ours), expected, "{name}");
        if !ALIGNED.contains(&name) {
            assert_eq!(ours.align.bytes(), theirs.align.bytes(), "{name}");
        }
        compared += 1;
    }
    assert!(compared > 12, "{compared}");
}

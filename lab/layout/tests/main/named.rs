//! A type that is read by its name alone equals the same type in a read of the whole file.
//!
//! The oracle is the read of the whole file: for every name of every file, both must print the same.

use crate::support::compile::compile;
use crate::support::elf::elf;
use crate::support::truth::fixture;
use crate::support::{folder, have};
use ledgerline_layout::dwarf::{self, Options};
use ledgerline_layout::leaf::Expand;
use ledgerline_layout::model::Types;
use ledgerline_layout::pick::{Pattern, named, pick};
use ledgerline_layout::{open, open_named, show};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the printed forms of a type, as text and as JSON, opened and not.
fn printed(types: &Types, name: &str) -> String {
    let picked = pick(types, &[name.to_owned()]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (mut text, mut json) = (String::new(), Vec::new());
    for (name, id) in picked {
        for expand in [Expand::Anonymous, Expand::All] {
            let options = show::Options { expand, ..show::Options::default() };
            show::text(types, name, id, &options, &mut text);
            show::json(types, name, id, &options, &mut json);
        }
    }
    text + &String::from_utf8(json).unwrap()
}

/// Returns the names of a file's types, about `most` of them, spread over all, since there may be too many to try
/// each.
fn names(types: &Types, most: usize) -> Vec<&str> {
    let all: BTreeSet<&str> = named(types).into_iter().map(|(name, _)| name).collect();
    let plain = |name: &&str| Pattern::new(name).is_ok_and(|pattern| pattern.exact().is_some());
    let all: Vec<&str> = all.into_iter().filter(plain).collect();
    let step = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(step).collect()
}

/// Reads every type by its name alone, and all types; returns the number of compared types.
fn compare(path: &Path, most: usize) -> usize {
    compare_with(&dwarf::open(path).unwrap(), path, most)
}

fn compare_with(all: &Types, path: &Path, most: usize) -> usize {
    let names = names(all, most);
    for &name in &names {
        let alone = dwarf::open_named(path, &[name.to_owned()]);
        let alone = alone.unwrap_or_else(|| panic!("{}: {name} was not read", path.display()));
        assert_eq!(printed(&alone.types, name), printed(all, name), "{}: {name}", path.display());
    }
    // Several names at once.
    let some: Vec<String> = names.iter().take(5).map(|&name| name.to_owned()).collect();
    let several = dwarf::open_named(path, &some).expect("each of them was read alone");
    for name in &some {
        assert_eq!(printed(&several.types, name), printed(all, name), "{name}");
    }
    names.len()
}

fn source(name: &str) -> String {
    format!("{}/tests/fixtures/named/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Links sources with each set of flags, and compares all types.
fn each(
    test: &str,
    compiler: &str,
    sources: &[&str],
    flags: &[&[&str]],
    least: usize,
    most: usize,
) {
    let folder = folder(test);
    let mut compared = 0;
    for (index, flags) in flags.iter().enumerate() {
        let name = format!("program{index}");
        let arguments = [sources, &["-o", &name][..], flags].concat();
        if compile(compiler, &folder, &arguments).is_none() {
            continue;
        }
        let types = compare(&folder.join(&name), most);
        assert!(types >= least, "only {types} types were compared with {flags:?}");
        compared += 1;
    }
    assert!(compared > 0 || !have(compiler), "{compiler} could do none of this");
}

const C: &[&[&str]] = &[
    &["-gdwarf-5"],
    &["-gdwarf-4", "-O2"],
    &["-gdwarf-5", "-gz=zlib"],
    &["-gdwarf-5", "-gz=zstd", "-Wl,--compress-debug-sections=zstd"],
    &["-gdwarf-5", "-gdwarf64"],
    &["-gdwarf-3", "-gno-strict-dwarf"],
    &["-gdwarf-5", "-Wl,-O2"],
    &["-gdwarf-5", "-fno-eliminate-unused-debug-types"],
];

#[test]
fn each_type_of_c_alone_is_as_in_a_read_of_all() {
    let units = ["one.c", "two.c", "three.c"].map(source);
    let units = units.each_ref().map(String::as_str);
    each("named-c-units", "gcc", &units, C, 10, 1000);
    each("named-c-units-clang", "clang", &units, &[&["-g"], &["-gdwarf-4"]], 10, 1000);
    each("named-c", "gcc", &[&fixture("types.c")], C, 20, 1000);
    each("named-c-clang", "clang", &[&fixture("types.c")], &[&["-g"], &["-gdwarf-4"]], 20, 1000);
}

const CPP: &[&[&str]] =
    &[&["-gdwarf-5"], &["-gdwarf-4", "-O2"], &["-gdwarf-5", "-femit-struct-debug-reduced"]];

#[test]
fn each_type_of_cpp_alone_is_as_in_a_read_of_all() {
    let units = ["first.cpp", "second.cpp"].map(source);
    let units = units.each_ref().map(String::as_str);
    each("named-cpp-units", "g++", &units, CPP, 20, 60);
    each("named-cpp-units-clang", "clang++", &units, &[&["-g"], &["-gdwarf-4"]], 20, 60);
    each("named-cpp", "g++", &[&fixture("types.cpp")], CPP, 20, 60);
}

#[test]
fn each_type_of_rust_alone_is_as_in_a_read_of_all() {
    // DWARF 5 names entries by their numbers in a table.
    let flags: &[&[&str]] = &[&["-g"], &["-g", "-O"], &["-g", "-Cdwarf-version=5"]];
    each("named-rust", "rustc", &[&fixture("types.rs")], flags, 15, 20);
    // Structures without a size, one at the end of the other, are recognised by pointers to both.
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("named-rust/program1");
    let (name, all) = ("types::Nested", dwarf::open(&program).unwrap());
    let alone = dwarf::open_named(&program, &[name.to_owned()]).unwrap();
    assert_eq!(printed(&alone.types, name), printed(&all, name));
    assert!(printed(&all, name).contains("u8[]"));
}

/// Returns modules with types `PREFIX1` and on, each of which is a unit for the compiler.
fn modules(prefix: &str) -> String {
    let module = |number: usize| {
        format!(
            "pub mod m{number} {{
                pub struct {prefix}{number} {{ field: [u8; {number}] }}
                pub struct Rich {{ name: String, of: Vec<(u32, Option<Box<u8>>)> }}
                #[inline(never)] fn size(plain: &{prefix}{number}, rich: &Rich) -> usize {{
                    plain.field.len() + rich.name.len() + rich.of.len()
                }}
                #[inline(never)] pub fn all() -> usize {{
                    let rich = Rich {{ name: String::new(), of: Vec::new() }};
                    size(&{prefix}{number} {{ field: [1; {number}] }}, &rich)
                }}
            }}\n"
        )
    };
    (1..=12).map(module).collect()
}

/// Returns a program of two crates with modules.
fn crates(test: &str) -> Option<PathBuf> {
    let folder = folder(test);
    let call = |number: usize| format!("library::m{number}::all() + m{number}::all() + ");
    let calls: String = (1..=12).map(call).collect();
    let program = format!("{}fn main() {{ assert!({calls}0 > 0) }}\n", modules("Own"));
    std::fs::write(folder.join("library.rs"), modules("Of")).unwrap();
    std::fs::write(folder.join("program.rs"), program).unwrap();
    let flags = ["--edition=2024", "-g", "-Ccodegen-units=16"];
    let library = ["--crate-type=rlib", "library.rs"];
    compile("rustc", &folder, &[&flags[..], &library].concat())?;
    let program = ["--extern=library=liblibrary.rlib", "program.rs"];
    compile("rustc", &folder, &[&flags[..], &program].concat())?;
    Some(folder.join("program"))
}

#[test]
fn a_type_of_a_library_of_this_build_is_as_in_a_read_of_all() {
    if let Some(program) = crates("named-crates") {
        assert!(compare(&program, 30) >= 20);
    }
    // This very program: Rust from many crates, some of them built by others.
    let this = std::env::current_exe().unwrap();
    let all = dwarf::open(&this).unwrap_or_else(|error| {
        assert!(error.to_string().contains("has no debug information"), "{error}");
        Types::new(8)
    });
    if named(&all).iter().any(|(name, _)| name.starts_with("ledgerline_layout::")) {
        assert!(compare_with(&all, &this, 4) >= 3);
    } else {
        eprintln!("skipped: this program was built without the types of its crates");
    }
}

/// Returns the C units, linked.
fn units(test: &str, flags: &[&str]) -> Option<PathBuf> {
    let folder = folder(test);
    let sources = ["one.c", "two.c", "three.c"].map(source);
    let sources = sources.each_ref().map(String::as_str);
    compile("gcc", &folder, &[&sources[..], &["-o", "program"], flags].concat())?;
    Some(folder.join("program"))
}

#[test]
fn what_cannot_be_read_in_part_is_read_as_a_whole() {
    let whole: [(&str, &[&str]); 4] = [
        ("named-type-units", &["-gdwarf-5", "-fdebug-types-section"]),
        ("named-old-type-units", &["-gdwarf-4", "-fdebug-types-section"]),
        ("named-split", &["-gdwarf-5", "-gsplit-dwarf"]),
        ("named-old-split", &["-gdwarf-4", "-gsplit-dwarf"]),
    ];
    for (test, flags) in whole {
        let Some(path) = units(test, flags) else { continue };
        let name = ["holder".to_owned()];
        assert!(dwarf::open_named(&path, &name).is_none(), "{flags:?}");
        let (all, alone) = (open(&path).unwrap(), open_named(&path, &name).unwrap());
        assert_eq!(printed(&alone.types, "holder"), printed(&all.types, "holder"), "{flags:?}");
    }
    let Some(path) = units("named-whole", &["-g"]) else { return };
    for absent in ["hold", "holder*", "no_such_type"] {
        assert!(dwarf::open_named(&path, &[absent.to_owned()]).is_none(), "{absent}");
        assert!(open_named(&path, &[absent.to_owned()]).is_ok(), "{absent}");
    }
    let absent = open_named(&path, &["hodler".to_owned()]).unwrap();
    let error = pick(&absent.types, &["hodler".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("`holder`"), "{error}");
}

/// A header, whose types are on one line.
const PROBE: &str = "struct inner { int a; }; enum e { A }; struct probe { int a; char b[2][2]; struct inner c; \
    struct other *d; enum e e; unsigned f : 3; int (*g)(int); const int *h; struct { int i; }; };";

/// The changes to it, one at a time.
const CHANGES: [(&str, &str); 16] = [
    ("", ""),
    ("b[2][2]", "b[4][1]"),
    ("f : 3", "f : 4"),
    ("inner { int a", "inner { unsigned a"),
    ("inner { int a", "inner { int b"),
    ("struct inner", "union inner"),
    ("struct other", "struct another"),
    ("A }", "A } __attribute__((packed))"),
    ("(int)", "(long)"),
    ("(int)", "(int, ...)"),
    ("const", "volatile"),
    ("int i", "int j"),
    ("*h", "**h"),
    ("int i; }", "int i; } __attribute__((aligned(8)))"),
    ("struct inner {", "\nstruct inner {"),
    ("struct inner {", "\n#line 1 \"include/another.h\"\nstruct inner {"),
];

#[test]
fn units_that_differ_in_one_thing_are_told_apart_and_equal_ones_are_read_once() {
    let mut tried = 0;
    for (compiler, flags) in
        [("gcc", "-gdwarf-5"), ("gcc", "-gdwarf-4"), ("clang", "-gdwarf-5"), ("clang", "-gdwarf-4")]
    {
        let folder = folder(&format!("named-probes-{compiler}{flags}"));
        // Each occurs three times: unchanged, behind other types, and with its pointers' targets defined.
        let befores = [
            "",
            "struct before { long a[3]; }; struct before before_@;",
            "struct other { int x; };",
        ];
        let probes = CHANGES.map(|(from, to)| match from {
            "" => PROBE.to_owned(),
            _ => PROBE.replace(from, to),
        });
        let units = probes.iter().flat_map(|probe| befores.map(|before| (before, probe)));
        let mut sources = Vec::new();
        for (index, (before, probe)) in units.enumerate() {
            let name = format!("unit{index}.c");
            let before = before.replace('@', &index.to_string());
            let text = format!(
                "{before}\n#line 1 \"include/probe.h\"\n{probe}\nstruct probe use_{index};\n"
            );
            std::fs::write(folder.join(&name), text).unwrap();
            sources.push(name);
        }
        std::fs::write(folder.join("main.c"), "int main(void) { return 0; }\n").unwrap();
        let mut arguments: Vec<&str> = sources.iter().map(String::as_str).collect();
        arguments.extend(["main.c", "-o", "program", flags]);
        if compile(compiler, &folder, &arguments).is_none() {
            continue;
        }
        let program = folder.join("program");
        compare(&program, 1000);
        let alone = dwarf::open_named(&program, &["probe".to_owned()]).unwrap();
        let found = pick(&alone.types, &["probe".to_owned()]).unwrap().len();
        assert_eq!(found, CHANGES.len(), "{compiler} {flags}");
        assert_eq!(alone.read.0, sources.len(), "{compiler} {flags}");
        assert_eq!(alone.distinct, CHANGES.len(), "{compiler} {flags}: each is read once");
        tried += 1;
    }
    assert!(tried > 0 || !have("gcc"));
}

const BYTE: u8 = 0x0b;
const VARIABLE_LENGTH: u8 = 0x0f;

/// Returns a linked file with a unit of C for each form: it has `struct probe { int a; }`, aligned to a number of
/// bytes. Sizes, alignments and places are numbers of this form.
fn by_hand(units: &[(u8, u8)]) -> Vec<u8> {
    let names = b"\0probe\0a\0int\0";
    let (mut info, mut tables) = (Vec::new(), Vec::new());
    for &(form, align) in units {
        let start = info.len();
        info.extend([0, 0, 0, 0, 5, 0, 1, 8]);
        info.extend((tables.len() as u32).to_le_bytes());
        let int = 12 + 2 + 7 + 10 + 1;
        // The unit, the structure, its member, the end of the members, the number, the end of the unit.
        info.extend([1, 0x0c]);
        info.extend([2, 1, 0, 0, 0, align, align]);
        info.extend([3, 7, 0, 0, 0, int, 0, 0, 0, 0]);
        info.push(0);
        info.extend([4, 9, 0, 0, 0, 5, 4]);
        info.push(0);
        let length = (info.len() - start - 4) as u32;
        info[start..start + 4].copy_from_slice(&length.to_le_bytes());
        tables.extend([1, 0x11, 1, 0x13, BYTE, 0, 0]);
        tables.extend([2, 0x13, 1, 0x03, 0x0e, 0x0b, form, 0x88, 0x01, form, 0, 0]);
        tables.extend([3, 0x0d, 0, 0x03, 0x0e, 0x49, 0x13, 0x38, form, 0, 0]);
        tables.extend([4, 0x24, 0, 0x03, 0x0e, 0x3e, BYTE, 0x0b, form, 0, 0, 0]);
    }
    let sections: [(&str, &[u8]); 4] = [
        (".debug_info", &info),
        (".debug_abbrev", &tables),
        (".debug_str", names),
        (".debug_line", &[]),
    ];
    let mut file = elf(62, &sections);
    // It is a program, which needs no relocation.
    file[16] = 2;
    file
}

#[test]
fn numbers_of_either_form_say_the_same_and_are_read_once() {
    let path = folder("named-forms").join("program");
    for (units, distinct) in [
        (&[(BYTE, 8), (VARIABLE_LENGTH, 8), (BYTE, 8), (VARIABLE_LENGTH, 8)][..], 1),
        (&[(VARIABLE_LENGTH, 8), (VARIABLE_LENGTH, 16), (VARIABLE_LENGTH, 8)], 2),
    ] {
        std::fs::write(&path, by_hand(units)).unwrap();
        let alone = dwarf::open_named(&path, &["probe".to_owned()]).unwrap();
        let found = pick(&alone.types, &["probe".to_owned()]).unwrap();
        assert_eq!((alone.read.0, alone.distinct), (units.len(), distinct), "{units:?}");
        assert_eq!(found.len(), distinct, "{units:?}");
        let all = dwarf::open(&path).unwrap();
        assert_eq!(printed(&alone.types, "probe"), printed(&all, "probe"), "{units:?}");
    }
}

#[test]
fn an_anonymous_record_goes_by_each_of_its_typedefs() {
    let Some(path) = units("named-typedefs", &["-g"]) else { return };
    let all = dwarf::open(&path).unwrap();
    for name in ["first_alias", "second_alias"] {
        let alone = dwarf::open_named(&path, &[name.to_owned()]).unwrap();
        let text = printed(&all, name);
        assert_eq!(printed(&alone.types, name), text, "{name}");
        assert!(text.contains(&format!("{name}\n")), "{text}");
    }
    let error = pick(&all, &["handler".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("is a typedef of no structure"), "{error}");
}

#[test]
fn units_without_the_name_are_not_read() {
    let Some(path) = units("named-ratio", &["-gdwarf-5"]) else { return };
    let read = |name: &str| dwarf::open_named(&path, &[name.to_owned()]).unwrap().read;
    // `points` is in one unit of three.
    assert_eq!(read("points").0, 1);
    assert_eq!(read("defined_later").0, 2);
    // Of two crates and the standard library, a type of one module is in few units.
    let Some(program) = crates("named-few") else { return };
    let alone = dwarf::open_named(&program, &["library::m3::Of3".to_owned()]).unwrap();
    assert!(alone.units >= 10 && alone.read.0 <= 2, "{:?} of {}", alone.read, alone.units);
    assert_eq!(alone.types.records().count(), 1);
}

#[test]
fn a_stripped_program_leads_to_its_debug_file() {
    let Some(program) = units("named-stripped", &["-g"]) else { return };
    let folder = program.parent().unwrap();
    let all = dwarf::open(&program).unwrap();
    let made = compile("objcopy", folder, &["--only-keep-debug", "program", "program.debug"])
        .and_then(|()| {
            let link = "--add-gnu-debuglink=program.debug";
            compile("objcopy", folder, &["--strip-debug", link, "program", "stripped"])
        });
    if made.is_none() {
        return;
    }
    let alone = dwarf::open_named(&folder.join("stripped"), &["holder".to_owned()]).unwrap();
    assert_eq!(printed(&alone.types, "holder"), printed(&all, "holder"));
}

#[test]
fn one_thread_or_several_make_no_difference_and_hostile_bytes_no_panic() {
    let Some(program) = units("named-lies", &["-gdwarf-5"]) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let find = |name: &[u8]| {
        let names = [b"\0".as_slice(), name, b"\0"].concat();
        bytes.windows(names.len()).position(|window| window == names)
    };
    assert!(find(b".debug_info").is_some(), "the file has names of sections");
    let lie = program.with_file_name("lie");
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % bound as u64) as usize
    };
    // Most of the file is debug information; the code before it does not matter here.
    let start = bytes.len() / 3;
    for _ in 0..400 {
        let mut lies = bytes.clone();
        for _ in 0..1 + below(8) {
            let at = start + below(lies.len() - start);
            lies[at] = match below(3) {
                0 => below(256) as u8,
                1 => lies[at] ^ 1 << below(8),
                _ => [0, 1, 0x7f, 0x80, 0xff][below(5)],
            };
        }
        if below(10) == 0 {
            lies.truncate(start + below(lies.len() - start));
        }
        std::fs::write(&lie, &lies).unwrap();
        let options = Options { threads: 1, ..Options::default() };
        for name in ["holder", "variant", "list"] {
            let alone = dwarf::open_named(&lie, &[name.to_owned()]);
            // Any result can be printed.
            if let Some(alone) = alone {
                printed(&alone.types, name);
            }
        }
        let _ = dwarf::read(&lies, &options);
    }
}

#[test]
fn a_record_that_has_a_name_is_found_by_a_typedef_too() {
    let folder = folder("named-through");
    let text = "typedef struct inner { int a; } inner_t; typedef inner_t inner_tt; enum color { RED };\n\
                struct outer { inner_tt x; enum color c; }; struct outer use; int main(void) { return 0; }\n";
    std::fs::write(folder.join("through.c"), text).unwrap();
    if compile("gcc", &folder, &["-g", "through.c", "-o", "program"]).is_none() {
        return;
    }
    let path = folder.join("program");
    let all = dwarf::open(&path).unwrap();
    for name in ["inner_t", "inner_tt"] {
        let alone = dwarf::open_named(&path, &[name.to_owned()]).unwrap();
        for types in [&alone.types, &all] {
            assert!(printed(types, name).starts_with("struct inner\n"), "{name}");
        }
    }
    for (name, wanted) in [
        ("color", "\"color\" is an enumeration of 4 bytes"),
        ("int", "\"int\" is a number of 4 bytes"),
        ("Inner", "did you mean `inner`?"),
        ("inner_x", "did you mean `inner`?"),
    ] {
        let error = pick(&all, &[name.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{name}: {error}");
    }
}

//! Compiles programs, and checks their types against the programs' own output.

use crate::support::compile::compile;
use crate::support::truth::{check, fixture, record, run};
use crate::support::{folder, have};
use ledgerline_layout::dwarf::{self, Options};
use ledgerline_layout::model::{Align, Kind, Role, Type, TypeId, Types};
use std::path::Path;

/// Compiles a fixture with each set of flags and compares.
fn each(test: &str, compiler: &str, source: &str, flags: &[&[&str]], least: usize) {
    let folder = folder(test);
    let source = fixture(source);
    let mut compared = 0;
    for (index, flags) in flags.iter().enumerate() {
        let name = format!("types{index}");
        let arguments = [&[&source, "-o", &name][..], flags].concat();
        if compile(compiler, &folder, &arguments).is_none() {
            continue;
        }
        let program = folder.join(&name);
        let types = dwarf::open(&program).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        // gcc writes `Holder<long int, 3>` and clang writes `Holder<long, 3>`.
        let said = run(&program);
        let said = if compiler == "clang++" { said.replace("long int", "long") } else { said };
        let lines = check(&types, &said);
        assert!(lines >= least, "only {lines} lines were compared with {flags:?}");
        compared += 1;
    }
    assert!(compared > 0 || !have(compiler), "{compiler} could do none of this");
}

#[test]
fn what_c_lays_out_is_read_from_every_form_of_dwarf() {
    each(
        "dwarf-c",
        "gcc",
        "types.c",
        &[
            &["-g"],
            &["-gdwarf-5", "-O2"],
            &["-gdwarf-4", "-O0"],
            &["-gdwarf-3", "-gno-strict-dwarf"],
            &["-gdwarf-5", "-gz=zlib"],
            &["-gdwarf-4", "-gz=zlib-gnu"],
            &["-gdwarf-5", "-gz=zstd"],
            &["-gdwarf-5", "-fdebug-types-section"],
            &["-gdwarf-4", "-fdebug-types-section"],
            &["-gdwarf-5", "-gsplit-dwarf"],
            &["-gdwarf-4", "-gsplit-dwarf"],
            &["-gdwarf-5", "-gsplit-dwarf", "-fdebug-types-section"],
            &["-gdwarf-4", "-gsplit-dwarf", "-fdebug-types-section"],
            &["-gdwarf-5", "-flto", "-O2"],
            &["-gdwarf64", "-gdwarf-5"],
        ],
        100,
    );
}

#[test]
fn what_clang_lays_out_is_read() {
    let flags: &[&[&str]] = &[&["-g"], &["-gdwarf-4", "-O2"], &["-gdwarf-5", "-gsplit-dwarf"]];
    each("dwarf-clang", "clang", "types.c", flags, 100);
    let flags: &[&[&str]] = &[&["-std=c++20", "-g"], &["-std=c++20", "-gdwarf-4", "-O2"]];
    each("dwarf-clang-cpp", "clang++", "types.cpp", flags, 55);
}

#[test]
fn what_cpp_lays_out_is_read_with_bases_and_scopes() {
    each(
        "dwarf-cpp",
        "g++",
        "types.cpp",
        &[
            &["-std=c++20", "-g"],
            &["-std=c++20", "-gdwarf-4", "-O2"],
            &["-std=c++20", "-gdwarf-5", "-fdebug-types-section"],
            &["-std=c++20", "-gdwarf-4", "-fdebug-types-section"],
            &["-std=c++20", "-gdwarf-5", "-gsplit-dwarf"],
        ],
        55,
    );
}

#[test]
fn what_rust_lays_out_is_read_with_variants() {
    each(
        "dwarf-rust",
        "rustc",
        "types.rs",
        &[
            &["--edition=2021", "--crate-name=types", "-g"],
            &["--edition=2021", "--crate-name=types", "-g", "-O"],
            &["--edition=2021", "--crate-name=types", "-g", "-Cdwarf-version=5"],
            &["--edition=2021", "--crate-name=types", "-g", "-Csplit-debuginfo=unpacked"],
            &["--edition=2021", "--crate-name=types", "-g", "-Csplit-debuginfo=packed"],
            &["--edition=2021", "--crate-name=types", "-g", "-Clto=fat"],
        ],
        30,
    );
}

/// Compiles `source` and reads it; `None` without a compiler.
fn read(test: &str, source: &str, flags: &[&str]) -> Option<Types> {
    let folder = folder(test);
    std::fs::write(folder.join("source.c"), source).unwrap();
    compile("gcc", &folder, &[&["-g", "source.c"], flags].concat())?;
    let name = if flags.contains(&"-c") { "source.o" } else { "a.out" };
    Some(dwarf::open(&folder.join(name)).unwrap_or_else(|error| panic!("{flags:?}: {error}")))
}

/// Returns every record of C as assertions, by which the compiler checks its own layout with these flags.
fn asserted(types: &Types) -> (String, usize) {
    let mut text = String::new();
    let mut count = 0;
    for (_, record) in types.records() {
        let name = types.name(record.name);
        let keyword = if record.kind == Kind::Union { "union" } else { "struct" };
        if name.is_empty() || name.starts_with('_') {
            continue;
        }
        let mut assert = |what: String, is: u64| {
            text += &format!("_Static_assert({what} == {is}, \"{name}: {what}\");\n");
            count += 1;
        };
        assert(format!("sizeof({keyword} {name})"), record.size);
        assert(format!("__alignof__({keyword} {name})"), record.align.bytes());
        for member in &record.members {
            let field = types.name(member.name);
            if !field.is_empty() && member.bits.is_none() {
                assert(format!("__builtin_offsetof({keyword} {name}, {field})"), member.offset);
            }
        }
    }
    (text, count)
}

#[test]
fn an_object_file_says_the_same_before_it_is_linked_on_64_and_on_32_bits() {
    let folder = folder("dwarf-object");
    // Only the types are compiled, since there may be no 32-bit library to print with.
    let text = std::fs::read_to_string(fixture("types.c")).unwrap();
    let (text, _) = text.split_once("int main").unwrap();
    let text = text.replace("#include \"truth.h\"", "").replace("char d; __int128 d; ", "");
    for (index, flags) in [
        &["-g"][..],
        &["-gdwarf-4"],
        &["-gdwarf-5", "-fdebug-types-section"],
        &["-gdwarf-4", "-fdebug-types-section"],
        &["-gdwarf-5", "-gz=zlib"],
        &["-gdwarf-5", "-gsplit-dwarf"],
        &["-m32"],
        &["-m32", "-gdwarf-4", "-gz=zlib"],
        &["-mx32"],
    ]
    .into_iter()
    .enumerate()
    {
        // i386 has no integer of 128 bits, and its vectors and long longs are laid out by other rules.
        let narrow = flags[0] == "-m32";
        let text = if narrow {
            text.replace("__int128 d;", "long long d;")
                .replace("high = 1L << 40", "high = 1LL << 40")
        } else {
            text.replace("1L << 40", "1LL << 40")
        };
        let text = text
            .replace("#include <stdint.h>", "")
            .replace("long d : 33", "long long d : 33")
            .replace("unsigned long c : 50", "unsigned long long c : 50");
        // DWARF 4 cannot say `_Atomic`, which aligns more than its members do.
        let text = if flags.contains(&"-gdwarf-4") { text.replace("_Atomic", "") } else { text };
        std::fs::write(folder.join("types.c"), &text).unwrap();
        let object = format!("types{index}.o");
        let base = ["-g", "-c", "types.c", "-o", &object];
        if compile("gcc", &folder, &[&base[..], flags].concat()).is_none() {
            continue;
        }
        let types =
            dwarf::open(&folder.join(&object)).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        assert_eq!(types.pointer_size, if flags[0].starts_with("-m") { 4 } else { 8 });
        let (assertions, count) = asserted(&types);
        assert!(count > 80, "only {count} assertions with {flags:?}");
        std::fs::write(folder.join("asserted.c"), text + &assertions).unwrap();
        let machine = flags.iter().filter(|flag| flag.starts_with("-m")).copied();
        let arguments: Vec<&str> =
            ["-fsyntax-only", "asserted.c"].into_iter().chain(machine).collect();
        compile("gcc", &folder, &arguments).expect("what compiled once compiles with assertions");
    }
}

#[test]
fn what_was_asked_for_is_known_and_the_rest_inferred() {
    let source = "struct asked { char a; } __attribute__((aligned(32))); struct plain { long a; };
        typedef int four __attribute__((aligned(4))); struct member { char a; four b __attribute__((aligned(8))); };
        struct asked a; struct plain b; struct member c; int main(void) { return 0; }";
    let Some(types) = read("dwarf-align", source, &[]) else { return };
    let align = |name| record(&types, name).unwrap().align;
    assert_eq!(align("asked"), Align::Known(32));
    assert_eq!(align("plain"), Align::Inferred(8));
    assert_eq!(align("member").bytes(), 8);
    assert_eq!(record(&types, "member").unwrap().members[1].align, Some(8));
}

#[test]
fn a_header_read_by_many_units_gives_each_type_once_and_definitions_that_differ_are_kept() {
    let folder = folder("dwarf-units");
    let header = "struct node { struct node *next; struct later *later; int bits : 3; };
        typedef struct { struct node n; } wrapped; union either { wrapped w; char c; };";
    std::fs::write(folder.join("header.h"), header).unwrap();
    std::fs::write(folder.join("even.h"), "struct own { int a; };").unwrap();
    std::fs::write(folder.join("odd.h"), "struct own { char a, b; };").unwrap();
    let mut sources = Vec::new();
    for index in 0..20 {
        let own = if index % 2 == 0 { "even.h" } else { "odd.h" };
        let later = if index == 7 { "struct later { int found; } later;" } else { "" };
        let text = format!(
            "#include \"header.h\"\n#include \"{own}\"\n{later}
            struct own own_{index}; struct node node_{index}; union either either_{index};"
        );
        let name = format!("unit{index}.c");
        std::fs::write(folder.join(&name), text).unwrap();
        sources.push(name);
    }
    std::fs::write(folder.join("main.c"), "int main(void) { return 0; }").unwrap();
    for flags in
        [&["-g"][..], &["-g", "-gsplit-dwarf"], &["-flto", "-g"], &["-g", "-fdebug-types-section"]]
    {
        let mut arguments: Vec<&str> = sources.iter().map(String::as_str).collect();
        arguments.extend(["main.c", "-o", "units"]);
        arguments.extend(flags);
        if compile("gcc", &folder, &arguments).is_none() {
            return;
        }
        let types = dwarf::open(&folder.join("units")).unwrap();
        let count =
            |name: &str| types.records().filter(|(_, r)| types.name(r.name) == name).count();
        assert_eq!((count("node"), count("either"), count("later")), (1, 1, 1), "{flags:?}");
        assert_eq!(count("own"), 2, "{flags:?}");
        assert_eq!(record(&types, "wrapped").unwrap().size, 24);
        // One unit defines it, and the nineteen that only declare it get the definition.
        let node = record(&types, "node").unwrap();
        let Type::Pointer { to: Some(to), .. } = *types.get(node.members[1].ty) else {
            panic!("no pointer")
        };
        assert!(
            matches!(types.get(to), Type::Record(later) if later.members.len() == 1),
            "{flags:?}"
        );
        let declared = (0..types.len() as u32).map(|id| types.get(TypeId(id)));
        let declared = declared.filter(|ty| matches!(ty, Type::Declaration { .. }));
        assert_eq!(declared.count(), 0, "{flags:?}");
    }
}

#[test]
fn the_same_file_gives_the_same_model_on_any_number_of_threads() {
    let folder = folder("dwarf-threads");
    let program = folder.join("types");
    let arguments = [&fixture("types.rs"), "--edition=2021", "-g", "-o", "types"];
    if compile("rustc", &folder, &arguments).is_none() {
        return;
    }
    let bytes = std::fs::read(&program).unwrap();
    let all = |threads| {
        let types = dwarf::read(&bytes, &Options { threads, ..Options::beside(&program) }).unwrap();
        let ids = (0..types.len() as u32).map(TypeId);
        ids.map(|id| format!("{:?}", types.get(id))).collect::<Vec<String>>()
    };
    let one = all(1);
    assert!(one.len() > 100);
    for threads in [2, 3, 8] {
        assert_eq!(all(threads), one, "{threads} threads");
    }
}

#[test]
fn sections_compressed_in_any_way_are_read() {
    let folder = folder("dwarf-compressed");
    if compile("gcc", &folder, &["-g", "-w", &fixture("types.c"), "-o", "types"]).is_none() {
        return;
    }
    let truth = run(&folder.join("types"));
    for how in ["none", "zlib", "zlib-gnu", "zstd"] {
        let flag = format!("--compress-debug-sections={how}");
        if compile("objcopy", &folder, &[&flag, "types", "compressed"]).is_some() {
            check(&dwarf::open(&folder.join("compressed")).unwrap(), &truth);
        }
    }
}

#[test]
fn machines_of_either_byte_order_and_width_are_read() {
    // They need no library, and the layout of repr(C) is known.
    let source = r#"#![feature(no_core, lang_items)] #![no_core] #![crate_type = "lib"]
        #[lang = "pointee_sized"] trait PointeeSized {} #[lang = "meta_sized"] trait MetaSized: PointeeSized {}
        #[lang = "sized"] trait Sized: MetaSized {} #[lang = "copy"] trait Copy {} impl Copy for u32 {}
        #[repr(C)] pub struct Fields { a: u8, b: u32, c: u16, d: &'static u8 }
        #[repr(u8)] pub enum Tagged { A(u32), B(u8) }
        #[unsafe(no_mangle)] pub extern "C" fn f(fields: &Fields, tagged: &Tagged) -> u32 { fields.b }"#;
    let folder = folder("dwarf-machines");
    std::fs::write(folder.join("machines.rs"), source).unwrap();
    for (machine, pointer) in [
        ("powerpc64-unknown-linux-gnu", 8),
        ("powerpc-unknown-linux-gnu", 4),
        ("s390x-unknown-linux-gnu", 8),
        ("sparc64-unknown-linux-gnu", 8),
        ("riscv64gc-unknown-linux-gnu", 8),
        ("aarch64-unknown-linux-gnu", 8),
        ("armv7-unknown-linux-gnueabihf", 4),
        ("i686-unknown-linux-gnu", 4),
    ] {
        let arguments =
            ["-Zunstable-options", "-g", "-Awarnings", "--edition=2024", "--emit=obj", "--target"];
        let arguments = [&arguments[..], &[machine, "machines.rs", "-o", "machine.o"]].concat();
        // A crate without any library needs features that stable compilers do not offer.
        let run = std::process::Command::new("rustc")
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(&folder)
            .args(arguments)
            .output();
        match run {
            Ok(output) if output.status.success() => {}
            _ => {
                println!("skipped: rustc does not compile without a library for {machine}");
                continue;
            }
        }
        let types = dwarf::open(&folder.join("machine.o")).unwrap();
        assert_eq!(types.pointer_size, pointer, "{machine}");
        let fields = record(&types, "machines::Fields").unwrap();
        let offsets: Vec<u64> = fields.members.iter().map(|member| member.offset).collect();
        assert_eq!(offsets, if pointer == 8 { [0, 4, 8, 16] } else { [0, 4, 8, 12] }, "{machine}");
        assert_eq!(fields.align, Align::Known(pointer.into()), "{machine}");
        let tagged = record(&types, "machines::Tagged").unwrap();
        assert_eq!((tagged.size, tagged.members.len()), (8, 3), "{machine}");
        let variant = record(&types, "machines::Tagged::A").unwrap();
        assert_eq!(variant.members[0].offset, 4, "{machine}");
    }
}

#[test]
fn table_pointers_statics_and_virtual_bases_are_what_they_are() {
    let folder = folder("dwarf-roles");
    let arguments = [&fixture("types.cpp"), "-std=c++20", "-g", "-o", "types"];
    if compile("g++", &folder, &arguments).is_none() {
        return;
    }
    let types = dwarf::open(&folder.join("types")).unwrap();
    let roles = |name| {
        let members = &record(&types, name).unwrap().members;
        members.iter().map(|member| member.role).collect::<Vec<Role>>()
    };
    assert_eq!(roles("Virtual"), [Role::VirtualTable, Role::Field]);
    assert_eq!(roles("Derived"), [Role::Base, Role::Field]);
    assert_eq!(roles("Static"), [Role::Field]);
    // A base with one possible place is known. One that may share a place is not.
    let known = Role::VirtualBase { known: true };
    let unknown = Role::VirtualBase { known: false };
    assert_eq!(roles("Left"), [Role::VirtualTable, Role::Field, known]);
    assert!(roles("Empties").contains(&unknown));
    assert_eq!(roles("Several").iter().filter(|&&role| role == known).count(), 2);
    // Inherited members belong to the class, and its bases lack them.
    assert_eq!(roles("Diamond"), [Role::Base, Role::Base, Role::Field, known]);
    let left = &record(&types, "Diamond").unwrap().members[0];
    let Type::Record(left) = types.get(left.ty) else { panic!("a base is a record") };
    assert_eq!((types.name(left.name), left.kind), ("Left", Kind::StructPart));
    assert_eq!(left.members.len(), record(&types, "Left").unwrap().members.len() - 1);
    let named = types.records().filter(|(_, record)| types.name(record.name) == "Left");
    assert_eq!(named.count(), 1);
}

#[test]
fn a_rust_enum_has_its_discriminant_and_all_its_variants() {
    let folder = folder("dwarf-variants");
    let arguments =
        [&fixture("types.rs"), "--edition=2021", "--crate-name=types", "-g", "-o", "types"];
    if compile("rustc", &folder, &arguments).is_none() {
        return;
    }
    let types = dwarf::open(&folder.join("types")).unwrap();
    for (name, variants) in [
        ("types::Many", &["First", "Second", "Third", "Fourth"][..]),
        ("types::Niche", &["Nothing", "Something"]),
        ("types::Tagged", &["A", "B"]),
    ] {
        let record = record(&types, name).unwrap();
        assert_eq!(record.kind, Kind::Enum, "{name}");
        let of = |role| record.members.iter().filter(move |member| member.role == role);
        assert_eq!(of(Role::Discriminant).count(), 1, "{name}");
        let names: Vec<&str> = of(Role::Variant).map(|member| types.name(member.name)).collect();
        assert_eq!(names, variants, "{name}");
        for variant in of(Role::Variant) {
            assert!(
                matches!(types.get(variant.ty), Type::Record(r) if r.kind == Kind::Variant),
                "{name}"
            );
        }
    }
}

#[test]
fn what_has_no_size_in_rust_has_none_here() {
    let folder = folder("dwarf-unsized");
    let arguments =
        [&fixture("types.rs"), "--edition=2021", "--crate-name=types", "-g", "-o", "types"];
    if compile("rustc", &folder, &arguments).is_none() {
        return;
    }
    let types = dwarf::open(&folder.join("types")).unwrap();
    // The compiler describes one element of a slice at the end.
    let tail = record(&types, "types::Tail").unwrap().members.last().unwrap();
    assert!(matches!(types.get(tail.ty), Type::Array { count: None, .. }));
    let nested = record(&types, "types::Nested").unwrap().members.last().unwrap();
    assert!(matches!(types.get(nested.ty), Type::Record(_)), "its tail is the inner one's");
    // The compiler describes a function by its own type as a pointer.
    let (_, calling) = types
        .records()
        .find(|(_, record)| types.name(record.name).starts_with("types::Calling<fn"))
        .expect("it is used");
    assert_eq!(calling.size, 8);
    let function = calling.members.iter().find(|member| types.name(member.name) == "f").unwrap();
    assert_eq!(types.size(function.ty), Some(0));
}

#[test]
fn what_is_no_program_is_refused_in_one_line() {
    let folder = folder("dwarf-refused");
    for (name, bytes, expected) in [
        ("empty", &b""[..], "is not an ELF file that can be read"),
        ("text", b"#!/bin/sh\necho\n", "is not an ELF file that can be read"),
        ("short", b"\x7fELF\x02\x01\x01", "is not an ELF file that can be read"),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
        let error = dwarf::open(&folder.join(name)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let error = dwarf::open(Path::new("/nowhere/at/all")).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/at/all: cannot be read"), "{error}");
}

#[test]
fn pointers_to_functions_are_spelled_with_result_and_parameters() {
    let source = "struct file; typedef long off;\n\
        struct operations {\n\
            off (*seek)(struct file *, off, int);\n\
            int (*print)(const char *, ...);\n\
            void (*const handlers[4])(void);\n\
            void (**table)(int (*)(int));\n\
            int (*(*row)[2])(char);\n\
        } operations; int main(void) { return operations.seek != 0; }";
    let Some(dwarf) = read("dwarf-functions", source, &[]) else { return };
    let object = folder("btf-functions");
    std::fs::write(object.join("source.c"), source).unwrap();
    let btf = compile("gcc", &object, &["-gbtf", "-c", "source.c"]).map(|()| {
        let prefer = ledgerline_layout::Prefer::Btf;
        let options = ledgerline_layout::Options { prefer, base: None };
        ledgerline_layout::open_with(&object.join("source.o"), &options).unwrap().types
    });
    for types in [Some(dwarf), btf].into_iter().flatten() {
        let (_, operations) = types
            .records()
            .find(|(_, record)| types.name(record.name) == "operations")
            .expect("the file has operations");
        let spelled: Vec<String> = operations
            .members
            .iter()
            .map(|member| ledgerline_layout::spell::spell(&types, member.ty).to_string())
            .collect();
        assert_eq!(
            spelled,
            [
                "off (*)(struct file *, off, int)",
                "int (*)(const char *, ...)",
                "void (*const[4])(void)",
                "void (**)(int (*)(int))",
                "int (*(*)[2])(char)",
            ]
        );
    }
}

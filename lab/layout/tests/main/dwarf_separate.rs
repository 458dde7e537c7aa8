//! Reads debug information that is not in the program: debug files, split files, packages, dwz's common files.

use crate::support::compile::compile;
use crate::support::folder;
use crate::support::truth::{check, fixture, record, run};
use ledgerline_layout::dwarf;
use ledgerline_layout::model::Types;

#[test]
fn a_stripped_program_is_read_from_the_debug_file_beside_it() {
    let folder = folder("dwarf-stripped");
    std::fs::write(folder.join("source.c"), "struct s { long a; } s; int main(void) { return 0; }")
        .unwrap();
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        if compile("gcc", &folder, &["-g", build_id, "source.c", "-o", "program"]).is_none() {
            return;
        }
        let _ = std::fs::create_dir(folder.join(".debug"));
        for (to, arguments) in [
            ("program.debug", &["--only-keep-debug", "program"][..]),
            ("stripped", &["--strip-all", "--add-gnu-debuglink=program.debug", "program"]),
        ] {
            if compile("objcopy", &folder, &[arguments, &[to]].concat()).is_none() {
                return;
            }
        }
        let stripped = folder.join("stripped");
        assert!(record(&dwarf::open(&stripped).unwrap(), "s").is_some());
        std::fs::rename(folder.join("program.debug"), folder.join(".debug/program.debug")).unwrap();
        assert!(record(&dwarf::open(&stripped).unwrap(), "s").is_some());
        std::fs::remove_file(folder.join(".debug/program.debug")).unwrap();
        let error = dwarf::open(&stripped).unwrap_err().to_string();
        assert!(error.contains("stripped: has no debug information; build it with -g"), "{error}");
    }
}

#[test]
fn what_dwz_moved_to_a_common_file_is_found_and_a_missing_one_is_named() {
    let folder = folder("dwarf-dwz");
    let both = ["one", "two"];
    for name in both {
        if compile("g++", &folder, &["-g", "-w", "-std=c++20", &fixture("types.cpp"), "-o", name])
            .is_none()
        {
            return;
        }
    }
    let truth = run(&folder.join("one"));
    if compile("dwz", &folder, &["one", "-o", "alone"]).is_none() {
        return;
    }
    check(&dwarf::open(&folder.join("alone")).unwrap(), &truth);
    if compile("dwz", &folder, &["-m", "common", "one", "two"]).is_none() {
        return;
    }
    for name in both {
        check(&dwarf::open(&folder.join(name)).unwrap(), &truth);
    }
    std::fs::remove_file(folder.join("common")).unwrap();
    let error = dwarf::open(&folder.join("one")).unwrap_err().to_string();
    assert!(
        error.contains("has part of its debug information in common, which is not there"),
        "{error}"
    );
}

#[test]
fn a_package_of_split_files_is_read_and_a_missing_split_file_is_named() {
    let folder = folder("dwarf-package");
    std::fs::write(
        folder.join("one.c"),
        "struct shared { int a; }; struct one { struct shared s; } one;",
    )
    .unwrap();
    std::fs::write(
        folder.join("two.c"),
        "struct shared { int a; }; struct two { struct shared s; long b; } two; int main(void) { return 0; }",
    )
    .unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for types in ["-fdebug-types-section", "-fno-debug-types-section"] {
            let flags = [version, types, "-gsplit-dwarf", "one.c", "two.c", "-o", "program"];
            if compile("gcc", &folder, &flags).is_none() {
                return;
            }
            let program = folder.join("program");
            let check = |types: &Types| {
                assert_eq!(record(types, "one").unwrap().size, 4);
                assert_eq!(record(types, "two").unwrap().size, 16);
            };
            check(&dwarf::open(&program).unwrap());
            let packed = compile("dwp", &folder, &["-e", "program", "-o", "program.dwp"]);
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "dwo") {
                    std::fs::remove_file(path).unwrap();
                }
            }
            if packed.is_some() {
                check(&dwarf::open(&program).unwrap());
                check(&dwarf::open(&folder.join("program.dwp")).unwrap());
                std::fs::remove_file(folder.join("program.dwp")).unwrap();
            }
            let error = dwarf::open(&program).unwrap_err().to_string();
            assert!(error.contains(".dwo, which is not there; copy it beside"), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}

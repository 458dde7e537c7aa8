//! An archive has the types of all its members.

use crate::support::compile::compile;
use crate::support::folder;
use ledgerline_layout::model::Types;
use ledgerline_layout::pick::{named, pick};
use ledgerline_layout::{leaf::Expand, open, open_named, show};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes three objects, two of which have the same file name, in a folder of the test's own.
fn objects(test: &str) -> Option<(PathBuf, [&'static str; 3])> {
    let folder = folder(test);
    let objects = ["one.o", "two.o", "inner/one.o"];
    fs::create_dir(folder.join("inner")).unwrap();
    for (object, source) in objects.iter().zip(["one.c", "two.c", "three.c"]) {
        let source = format!("{}/tests/fixtures/named/{source}", env!("CARGO_MANIFEST_DIR"));
        compile("gcc", &folder, &["-g", "-c", &source, "-o", object])?;
    }
    Some((folder, objects))
}

fn names(types: &Types) -> BTreeSet<String> {
    named(types).into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// Returns everything that is printed of the types of a file, in any order.
fn printed(path: &Path) -> BTreeSet<String> {
    let opened = open(path).unwrap_or_else(|error| panic!("{error}"));
    let options = show::Options { expand: Expand::All, ..show::Options::default() };
    let print = |(name, id)| {
        let mut text = String::new();
        show::text(&opened.types, name, id, &options, &mut text);
        text
    };
    named(&opened.types).into_iter().map(print).collect()
}

#[test]
fn an_archive_has_what_a_program_of_its_members_has() {
    let Some((folder, objects)) = objects("archive-union") else { return };
    let link = [&objects[..], &["-o", "program"]].concat();
    if compile("gcc", &folder, &link).is_none() {
        return;
    }
    let program = printed(&folder.join("program"));
    for (flags, archive) in [("rc", "plain.a"), ("rcT", "thin.a")] {
        let arguments = [&[flags, archive], &objects[..]].concat();
        if compile("ar", &folder, &arguments).is_none() {
            continue;
        }
        assert_eq!(printed(&folder.join(archive)), program, "{archive}");
        // The two members of one name both count.
        let opened = open(&folder.join(archive)).unwrap();
        let names = names(&opened.types);
        assert!(names.contains("points") && names.contains("tail_of_holder"), "{names:?}");
        // The result by name is the same.
        let by_name = open_named(&folder.join(archive), &["variant".to_owned()]).unwrap();
        let found = pick(&by_name.types, &["variant".to_owned()]).unwrap().len();
        assert_eq!(found, pick(&opened.types, &["variant".to_owned()]).unwrap().len());
        assert!(found >= 2, "units have different types of that name");
    }
}

#[test]
fn members_that_are_no_objects_are_passed_over() {
    let Some((folder, [one, ..])) = objects("archive-others") else { return };
    fs::write(folder.join("notes"), "no object").unwrap();
    let Some(()) = compile("ar", &folder, &["rc", "some.a", "notes", one]) else { return };
    assert!(names(&open(&folder.join("some.a")).unwrap().types).contains("holder"));
    compile("ar", &folder, &["rc", "none.a", "notes"]).unwrap();
    let error = open(&folder.join("none.a")).unwrap_err().to_string();
    assert!(error.contains("none.a: is an archive without debug information"), "{error}");
}

#[test]
fn errors_name_the_member() {
    let Some((folder, objects)) = objects("archive-errors") else { return };
    let arguments = [&["rcT", "thin.a"], &objects[..]].concat();
    let Some(()) = compile("ar", &folder, &arguments) else { return };
    fs::remove_file(folder.join("two.o")).unwrap();
    let error = open(&folder.join("thin.a")).unwrap_err().to_string();
    assert!(error.contains("thin.a: member two.o: is not there"), "{error}");
    // An object that is cut off.
    let one = fs::read(folder.join("one.o")).unwrap();
    fs::write(folder.join("cut.o"), &one[..100]).unwrap();
    compile("ar", &folder, &["rc", "cut.a", "cut.o"]).unwrap();
    let error = open(&folder.join("cut.a")).unwrap_err().to_string();
    assert!(error.contains("cut.a: member cut.o: "), "{error}");
}

#[test]
fn a_damaged_archive_is_an_error_or_fewer_types_and_never_a_panic() {
    let Some((folder, objects)) = objects("archive-lies") else { return };
    let arguments = [&["rc", "whole.a"], &objects[..]].concat();
    let Some(()) = compile("ar", &folder, &arguments) else { return };
    let whole = fs::read(folder.join("whole.a")).unwrap();
    let headers: Vec<usize> =
        (8..whole.len() - 60).filter(|&at| &whole[at + 58..at + 60] == b"`\n").collect();
    assert!(headers.len() >= 4, "the symbols and three members");
    let lie = folder.join("lie.a");
    for header in headers {
        for at in 0..60 {
            for byte in [b'0', b'9', b'/', 0, 0xff] {
                let mut lies = whole.clone();
                lies[header + at] = byte;
                fs::write(&lie, &lies).unwrap();
                let _ = open(&lie);
            }
        }
        for length in [header, header + 1, header + 59, header + 60] {
            fs::write(&lie, &whole[..length]).unwrap();
            let _ = open(&lie);
        }
    }
}

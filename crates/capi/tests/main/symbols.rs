//! Tests the exports and the soname of the shared library.

use crate::support::{built, golden, have};
use std::process::Command;

fn said(program: &str, option: &str) -> Option<String> {
    if !have(program) {
        return None;
    }
    let mut command = Command::new(program);
    let output = command.arg(option).arg(built("libledgerline_c.so")).output().unwrap();
    assert!(output.status.success(), "{program} {option}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// No other symbol may be exported: a function of the standard library, for example, would replace the program's own.
#[test]
fn the_library_exports_what_the_golden_file_names_and_nothing_else() {
    let Some(symbols) = said("nm", "-D") else { return };
    let defined = symbols.lines().filter(|line| !line.trim_start().starts_with(['U', 'w']));
    let mut names: Vec<&str> = defined.filter_map(|line| line.split_whitespace().nth(2)).collect();
    names.sort_unstable();
    golden::same("symbols.txt", &(names.join("\n") + "\n"));
    assert!(names.iter().all(|name| name.starts_with("ledgerline_")), "{names:?}");
}

#[test]
fn the_library_has_its_soname_and_stays_loaded() {
    let Some(dynamic) = said("readelf", "-d") else { return };
    assert!(dynamic.contains("[libledgerline.so.1]") && dynamic.contains("NODELETE"), "{dynamic}");
}

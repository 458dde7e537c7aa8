//! Compares pahole's output for the running kernel's types with the reader's result.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::support::compare::compare;
use crate::support::have;
use crate::support::pahole::{Printed, parse};
use ledgerline_layout::model::{Kind, Record, Types};
use ledgerline_layout::{Source, open};

const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// Returns the kernel's types, and pahole's output for them.
fn kernel_and_pahole(arguments: &[&str]) -> Option<(Types, String)> {
    if !have("pahole") {
        return None;
    }
    if !Path::new(KERNEL).exists() {
        println!("skipped: there is no {KERNEL} here");
        return None;
    }
    let opened = open(Path::new(KERNEL)).unwrap();
    assert_eq!(opened.source, Source::Btf);
    // pahole 1.24 complains on stderr of kinds that it does not know (17 to 19), but it has their sizes.
    let output = Command::new("pahole").args(arguments).arg(KERNEL).output().unwrap();
    Some((opened.types, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Compares sizes, members, offsets, bits, holes, padding and lines. There is no list of explained differences, since
/// none was found on either side (Linux 6.18, pahole 1.24).
#[test]
fn every_structure_of_the_running_kernel_is_as_pahole_prints_it() {
    let Some((types, text)) = kernel_and_pahole(&[]) else { return };
    let printed = parse(&text);
    let mut ours: HashMap<&str, Vec<&Record>> = HashMap::new();
    for (_, record) in types.records() {
        ours.entry(types.name(record.name)).or_default().push(record);
    }
    let mut differences = Vec::new();
    for theirs in &printed {
        let records = ours.entry(&theirs.name).or_default();
        let found = records.iter().map(|record| compare(&types, record, theirs));
        match found.min_by_key(Vec::len) {
            Some(least) if least.is_empty() => {}
            Some(least) => differences.push(format!("{}: {}", theirs.name, least.join("; "))),
            None => differences.push(format!("{}: not read", theirs.name)),
        }
    }
    assert!(printed.len() > 1000, "pahole printed {} types", printed.len());
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    // No named type was left out. pahole prints one of two types with the same name and size.
    let theirs: HashMap<&str, &Printed> =
        printed.iter().map(|printed| (printed.name.as_str(), printed)).collect();
    let left: Vec<_> =
        ours.keys().filter(|name| !name.is_empty() && !theirs.contains_key(*name)).collect();
    assert!(left.is_empty(), "pahole does not print {left:?}");
}

#[test]
fn every_union_of_the_running_kernel_has_the_size_that_pahole_says() {
    let Some((types, text)) = kernel_and_pahole(&["--sizes", "--unions"]) else { return };
    let theirs: HashMap<&str, u64> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.parse().ok()?))
        })
        .collect();
    let mut compared = 0;
    for (_, record) in types.records().filter(|(_, record)| record.kind == Kind::Union) {
        if let Some(&size) = theirs.get(types.name(record.name)) {
            assert_eq!(record.size, size, "union {}", types.name(record.name));
            compared += 1;
        }
    }
    assert!(compared >= theirs.len() && compared > 10, "{compared} of {}", theirs.len());
}

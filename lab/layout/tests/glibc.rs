//! Compares glibc's debug symbols (Debian's `libc6-dbg`) as pahole prints them with what the reader reads.

mod support;

use ledgerline_layout::dwarf;
use ledgerline_layout::model::{Record, Types};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::compare::compare;
use support::have;
use support::pahole::parse;

const SYMBOLS: &str = "/usr/lib/debug/.build-id";

/// All debug files, the largest first.
fn symbols() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(SYMBOLS).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten());
    let mut files: Vec<(u64, PathBuf)> = files
        .flatten()
        .map(|file| (file.metadata().map_or(0, |data| data.len()), file.path()))
        .collect();
    files.sort();
    files.into_iter().rev().map(|(_, path)| path).collect()
}

/// The differences, and how many structures were compared.
fn differences(file: &Path, types: &Types) -> (Vec<String>, usize) {
    let output = Command::new("pahole").arg(file).output().unwrap();
    let printed = parse(&String::from_utf8_lossy(&output.stdout));
    let mut ours: HashMap<&str, Vec<&Record>> = HashMap::new();
    for (_, record) in types.records() {
        ours.entry(types.name(record.name)).or_default().push(record);
    }
    let mut differences = Vec::new();
    for theirs in &printed {
        let records = ours.get(theirs.name.as_str()).map_or(&[][..], Vec::as_slice);
        let found = records.iter().map(|record| compare(types, record, theirs));
        match found.min_by_key(Vec::len) {
            Some(least) if least.is_empty() => {}
            Some(least) => differences.push(format!("{}: {}", theirs.name, least.join("; "))),
            None => differences.push(format!("{}: not read", theirs.name)),
        }
    }
    (differences, printed.len())
}

#[test]
fn every_structure_of_glibc_is_as_pahole_prints_it() {
    if !have("pahole") {
        return;
    }
    let files = symbols();
    if files.is_empty() {
        println!("skipped: there are no debug symbols in {SYMBOLS}");
        return;
    }
    let (mut all, mut compared) = (Vec::new(), 0);
    for file in &files {
        let types = match dwarf::open(file) {
            Ok(types) => types,
            Err(error) => {
                all.push(error.to_string());
                continue;
            }
        };
        let (differences, count) = differences(file, &types);
        all.extend(
            differences.iter().map(|difference| format!("{}: {difference}", file.display())),
        );
        compared += count;
    }
    println!("{compared} structures of {} files", files.len());
    assert!(compared > 300, "pahole printed {compared} structures");
    assert!(all.is_empty(), "{} differ:\n{}", all.len(), all.join("\n"));
}

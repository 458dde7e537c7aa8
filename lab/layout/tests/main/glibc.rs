//! Compares pahole's output for glibc's debug symbols (Debian's `libc6-dbg`) with the reader's result.

use crate::support::compare::compare;
use crate::support::pahole::parse;
use crate::support::{folder, have};
use ledgerline_layout::dwarf;
use ledgerline_layout::model::{Record, Types};
use object::Object;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of debug symbols by the build ids of their files.
const SYMBOLS: &str = "/usr/lib/debug/.build-id";

/// The prefixes of the files that glibc installs beside `libc.so.6`. Other packages have files there as well.
const LIBRARIES: [&str; 16] = [
    "ld-linux",
    "libBrokenLocale.",
    "libanl.",
    "libc.so",
    "libc_malloc_debug.",
    "libm.",
    "libmemusage.",
    "libmvec.",
    "libnss_compat.",
    "libnss_dns.",
    "libnss_files.",
    "libnss_hesiod.",
    "libpcprofile.",
    "libresolv.",
    "librt.",
    "libthread_db.",
];

/// Returns the glibc that runs this test: its libraries, and its converters of character sets.
fn glibc() -> Vec<PathBuf> {
    let maps =
        std::fs::read_to_string("/proc/self/maps").expect("the kernel's list of what is mapped");
    let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let Some(folder) =
        libc.map(Path::new).find(|path| path.ends_with("libc.so.6")).and_then(Path::parent)
    else {
        return Vec::new();
    };
    let list = |folder: &Path| {
        std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| file.path())
            .collect::<Vec<_>>()
    };
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        LIBRARIES.iter().any(|begin| name.starts_with(begin))
    };
    let mut files: Vec<PathBuf> = list(folder).into_iter().filter(named).collect();
    files.extend(list(&folder.join("gconv")));
    files
}

/// Returns the debug files in a folder that belong to some files, the largest first.
fn symbols(folder: &Path, of: &[PathBuf]) -> Vec<PathBuf> {
    let path = |file: &PathBuf| {
        let bytes = std::fs::read(file).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let id: String = file.build_id().ok()??.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, rest) = id.split_at_checked(2)?;
        let path = folder.join(first).join(format!("{rest}.debug"));
        Some((path.metadata().ok()?.len(), path))
    };
    let mut files: Vec<(u64, PathBuf)> = of.iter().filter_map(path).collect();
    files.sort();
    files.dedup();
    files.into_iter().rev().map(|(_, path)| path).collect()
}

/// Returns the differences, and the number of structures that were compared.
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
    let files = symbols(Path::new(SYMBOLS), &glibc());
    if files.is_empty() {
        println!("skipped: there are no debug symbols of glibc in {SYMBOLS}");
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

#[test]
fn debug_symbols_of_other_packages_are_left_alone() {
    let files = glibc();
    let libc = files.iter().find(|file| file.ends_with("libc.so.6"));
    let bytes = std::fs::read(libc.expect("this test runs on glibc")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let Some(id) = file.build_id().unwrap() else { return };
    let place = |id: &[u8]| {
        let id: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}/{}.debug", id[0], id[1..].concat())
    };
    let stranger: Vec<u8> = id.iter().map(|byte| !byte).collect();
    let all = folder("debug-symbols");
    for name in [place(id), place(&stranger)] {
        std::fs::create_dir_all(all.join(&name[..2])).unwrap();
        std::fs::write(all.join(name), "symbols").unwrap();
    }
    assert_eq!(symbols(&all, &files), [all.join(place(id))]);
}

//! Malformed files that cause excessive work: each is read or refused, in little time and memory. The tests are a
//! program of their own, since they read the process's peak memory.

#[path = "support/compile.rs"]
mod compile;
#[path = "support/elf.rs"]
mod elf;
#[path = "support/folder.rs"]
mod folder;

use compile::compile;
use elf::elf;
use folder::folder;
use ledgerline_layout::dwarf::{self, Options};
use ledgerline_layout::model::{Type, TypeId, Types};
use ledgerline_layout::{Error, align};

/// An abbreviation: an entry's first byte, its tag, whether it has children, and its attributes with their forms.
type Abbreviation = (u8, u8, bool, &'static [(u8, u8)]);

const ABBREVIATIONS: &[Abbreviation] = &[
    (UNIT, 0x11, true, &[(0x13, 0x0b)]),
    (NAMESPACE, 0x39, true, &[(0x03, 0x0e)]),
    (POINTER, 0x0f, false, &[(0x49, 0x13)]),
    (STRUCTURE, 0x13, true, &[(0x03, 0x0e), (0x0b, 0x0f)]),
    (MEMBER, 0x0d, false, &[(0x03, 0x0e), (0x49, 0x13), (0x38, 0x0f)]),
    (TYPEDEF, 0x16, false, &[(0x03, 0x0e), (0x49, 0x13)]),
    (ARRAY, 0x01, true, &[(0x49, 0x13)]),
    (DIMENSION, 0x21, false, &[(0x37, 0x0f)]),
    (DEFINITION, 0x13, true, &[(0x47, 0x13), (0x0b, 0x0b)]),
];
const UNIT: u8 = 1;
const NAMESPACE: u8 = 2;
const POINTER: u8 = 3;
const STRUCTURE: u8 = 4;
const MEMBER: u8 = 5;
const TYPEDEF: u8 = 6;
const ARRAY: u8 = 7;
const DIMENSION: u8 = 8;
const DEFINITION: u8 = 9;

/// A file written by hand.
struct Liar {
    info: Vec<u8>,
    names: Vec<u8>,
}

impl Liar {
    fn new() -> Liar {
        let mut liar = Liar { info: vec![0; 12], names: vec![0] };
        // The language is C++, so that names have scopes.
        liar.entry(UNIT, &[0x04]);
        liar
    }

    /// Returns the place of the next entry.
    fn next(&self) -> u32 {
        self.info.len() as u32
    }

    fn entry(&mut self, code: u8, attributes: &[u8]) -> u32 {
        let at = self.next();
        self.info.push(code);
        self.info.extend(attributes);
        at
    }

    fn named(&mut self, code: u8, name: u32, attributes: &[u8]) -> u32 {
        let at = self.entry(code, &name.to_le_bytes());
        self.info.extend(attributes);
        at
    }

    fn end(&mut self) {
        self.info.push(0);
    }

    fn name(&mut self, name: &str) -> u32 {
        let at = self.names.len() as u32;
        self.names.extend(name.bytes().chain([0]));
        at
    }

    fn file(mut self) -> Vec<u8> {
        let length = self.info.len() as u32 - 4;
        self.info[..4].copy_from_slice(&length.to_le_bytes());
        self.info[4..12].copy_from_slice(&[5, 0, 1, 8, 0, 0, 0, 0]);
        let sections: [(&str, &[u8]); 3] = [
            (".debug_info", &self.info),
            (".debug_abbrev", &abbreviations()),
            (".debug_str", &self.names),
        ];
        elf(62, &sections)
    }
}

fn abbreviations() -> Vec<u8> {
    let mut table = Vec::new();
    for &(code, tag, children, attributes) in ABBREVIATIONS {
        table.extend([code, tag, children.into()]);
        table.extend(attributes.iter().flat_map(|&(name, form)| [name, form]));
        table.extend([0, 0]);
    }
    table.push(0);
    table
}

fn read(file: &[u8]) -> Result<Types, Error> {
    let types = dwarf::read(file, &Options { threads: 1, ..Options::default() });
    if let Ok(types) = &types {
        // Use the types like printing does.
        for id in (0..types.len() as u32).map(TypeId) {
            let _ = (types.size(id), align::of(types, id), types.resolve(id));
        }
    }
    types
}

fn refused(file: &[u8], expected: &str) {
    let error = read(file).expect_err("it lies").to_string();
    assert!(error.contains(expected), "{error}");
    assert_eq!(error.lines().count(), 1);
}

/// Returns the peak memory of this process in bytes, from the kernel.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0u64) * 1024
}

#[test]
fn a_file_written_by_hand_is_read() {
    let mut liar = Liar::new();
    let (space, name, member) = (liar.name("space"), liar.name("record"), liar.name("member"));
    liar.named(NAMESPACE, space, &[]);
    let pointer = liar.entry(POINTER, &liar.next().to_le_bytes());
    liar.named(STRUCTURE, name, &[16]);
    liar.named(MEMBER, member, &[&pointer.to_le_bytes()[..], &[8]].concat());
    let types = read(&liar.file()).unwrap();
    let (_, record) = types.records().next().unwrap();
    assert_eq!((types.name(record.name), record.size), ("space::record", 16));
    assert_eq!((record.members[0].offset, record.align.bytes()), (8, 8));
}

#[test]
fn one_long_name_asked_for_a_million_times_is_refused() {
    let mut liar = Liar::new();
    let long = liar.name(&"x".repeat(1 << 20));
    for _ in 0..1_000_000 {
        liar.named(TYPEDEF, long, &[12, 0, 0, 0]);
    }
    refused(&liar.file(), "refers to the same names or tables again and again");
}

#[test]
fn long_names_within_each_other_are_refused() {
    let mut liar = Liar::new();
    let long = liar.name(&"x".repeat(1 << 16));
    for _ in 0..90 {
        liar.named(NAMESPACE, long, &[]);
    }
    for index in 0..100_000 {
        let name = liar.name(&index.to_string());
        liar.named(STRUCTURE, name, &[1]);
        liar.end();
    }
    let before = peak();
    refused(&liar.file(), "refers to the same names or tables again and again");
    assert!(peak() - before < 1 << 30, "it took {} bytes", peak() - before);
}

#[test]
fn namespaces_a_hundred_thousand_deep_need_no_stack() {
    let mut liar = Liar::new();
    let name = liar.name("n");
    for _ in 0..100_000 {
        liar.named(NAMESPACE, name, &[]);
    }
    let inner = liar.name("inner");
    liar.named(STRUCTURE, inner, &[1]);
    let types = read(&liar.file()).unwrap();
    let (_, record) = types.records().next().unwrap();
    assert!(types.name(record.name).ends_with("n::inner"));
    assert!(types.name(record.name).len() < 1000);
}

#[test]
fn chains_and_circles_of_types_end() {
    let mut liar = Liar::new();
    let name = liar.name("t");
    // Each entry refers to the next, which is 9 bytes on, and the last to the first.
    let first = liar.next();
    for index in 0..300_000u32 {
        let next = if index == 299_999 { first } else { liar.next() + 9 };
        liar.named(TYPEDEF, name, &next.to_le_bytes());
    }
    // This record consists of itself.
    let this = liar.named(STRUCTURE, name, &[8]);
    liar.named(MEMBER, name, &[&this.to_le_bytes()[..], &[0]].concat());
    liar.end();
    // These are a definition of itself, and an array of itself.
    let this = liar.next();
    liar.entry(DEFINITION, &[&this.to_le_bytes()[..], &[8]].concat());
    liar.end();
    let this = liar.next();
    liar.entry(ARRAY, &this.to_le_bytes());
    liar.entry(DIMENSION, &[3]);
    liar.end();
    let types = read(&liar.file()).unwrap();
    assert_eq!(types.records().count(), 2);
}

#[test]
fn records_a_hundred_thousand_deep_in_each_other_are_read() {
    let mut liar = Liar::new();
    let name = liar.name("r");
    let mut inner = liar.named(STRUCTURE, name, &[1]);
    liar.end();
    for _ in 0..100_000 {
        let this = liar.named(STRUCTURE, name, &[1]);
        liar.named(MEMBER, name, &[&inner.to_le_bytes()[..], &[0]].concat());
        liar.end();
        inner = this;
    }
    assert!(read(&liar.file()).unwrap().records().count() > 100);
}

#[test]
fn sizes_beyond_any_memory_are_refused_and_arrays_beyond_it_have_none() {
    let mut liar = Liar::new();
    let name = liar.name("r");
    // 2^63 - 1 bytes.
    liar.named(STRUCTURE, name, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    refused(&liar.file(), "more than any memory has");

    let mut liar = Liar::new();
    let name = liar.name("r");
    let record = liar.named(STRUCTURE, name, &[16]);
    liar.end();
    liar.entry(ARRAY, &record.to_le_bytes());
    liar.entry(DIMENSION, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    let types = read(&liar.file()).unwrap();
    let array =
        (0..types.len() as u32).map(TypeId).find(|&id| matches!(types.get(id), Type::Array { .. }));
    assert_eq!(types.size(array.unwrap()), None);
}

#[test]
fn of_units_that_share_the_tail_of_one_table_none_reads_beyond_the_next_ones_start() {
    // Each unit's table begins one abbreviation after the one before, and is as long as the rest of the section.
    let code = |index: u32| [index as u8 | 0x80, (index >> 7) as u8 | 0x80, (index >> 14) as u8];
    let mut info = Vec::new();
    for index in 0..10_000u32 {
        info.extend(12u32.to_le_bytes());
        info.extend([5, 0, 1, 8]);
        info.extend((7 * index).to_le_bytes());
        info.extend(code(index + 1));
        info.push(0);
    }
    let table: Vec<u8> = (0..200_000u32)
        .flat_map(|index| code(index + 1).into_iter().chain([0x11, 0, 0, 0]))
        .collect();
    let file = elf(62, &[(".debug_info", &info), (".debug_abbrev", &table)]);
    // Ten thousand times the whole table would exceed the file's budget.
    read(&file).unwrap();
}

#[test]
fn a_section_that_says_it_becomes_a_terabyte_is_refused() {
    let folder = folder("dwarf-bomb");
    std::fs::write(folder.join("a.c"), "struct s { int a; } s;").unwrap();
    let long: String =
        (0..2000).map(|index| format!("struct s{index} {{ int a; }} v{index};")).collect();
    std::fs::write(folder.join("a.c"), long).unwrap();
    if compile("gcc", &folder, &["-g", "-gz=zlib", "-c", "a.c", "-o", "a.o"]).is_none() {
        return;
    }
    let mut file = std::fs::read(folder.join("a.o")).unwrap();
    // The header of a compressed section names zlib, then has four unused bytes, then the size.
    let mut changed = 0;
    for at in 0..file.len() - 24 {
        if file[at..at + 8] == [1, 0, 0, 0, 0, 0, 0, 0] && file[at + 24..at + 25] == [0x78] {
            file[at + 8..at + 16].copy_from_slice(&(1u64 << 40).to_le_bytes());
            changed += 1;
        }
    }
    assert!(changed > 0);
    refused(&file, "which they cannot");
    assert!(peak() < 4 << 30);
}

#[test]
fn every_cut_of_a_file_is_read_or_refused_in_one_line() {
    let mut liar = Liar::new();
    let name = liar.name("r");
    let record = liar.named(STRUCTURE, name, &[8]);
    liar.named(MEMBER, name, &[&record.to_le_bytes()[..], &[0]].concat());
    liar.end();
    let file = liar.file();
    let mut refusals = 0;
    for end in 0..file.len() {
        if let Err(error) = read(&file[..end]) {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            refusals += 1;
        }
    }
    assert!(refusals > file.len() / 2);
}

//! Counters in a file: another process reads them, and a damaged file causes no harm.

use crate::common::again;
use ledgerline::stat::{Counters, CountersFile, PlaceKind, Places, WidthKind};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

ledgerline::items! {
    /// Things to count.
    enum Vm {
        /// Free.
        Free = "nr_free_pages",
        /// Of files.
        File = "nr_file_pages",
    }
}

fn memfd() -> File {
    // SAFETY: creates a new file; the name is NUL-terminated.
    unsafe {
        let file = libc::memfd_create(c"counters".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0);
        File::from_raw_fd(file)
    }
}

fn machine() -> Places {
    let mut tree = Places::builder("machine");
    let node = tree.node("0").unwrap();
    tree.zone(node, "DMA").unwrap();
    tree.zone(node, "Normal").unwrap();
    tree.add(tree.root(), PlaceKind::Other, "rack").unwrap();
    tree.build().unwrap()
}

/// Creates a table in a file, with values in totals and in differences.
fn table(file: &File) -> Counters<Vm, i8> {
    let places = machine();
    let counters = Counters::<Vm, i8>::builder(&places).create_in(file).unwrap();
    let zone = places.find("0/Normal").unwrap();
    counters.add(zone, Vm::Free, 100_000);
    counters.inc(zone, Vm::Free);
    counters.dec(places.find("rack").unwrap(), Vm::File);
    counters.add(places.find("rack").unwrap(), Vm::File, 7);
    counters
}

const SEEN_IN: &str = "LEDGERLINE_TEST_COUNTERS";

#[test]
fn another_process_sees_names_tree_and_values_without_the_types() {
    if let Some(path) = std::env::var_os(SEEN_IN) {
        // The other process may only read.
        let file = File::open(path).unwrap();
        let seen = CountersFile::open(&file).unwrap().table();
        assert_eq!(seen.items, ["nr_free_pages", "nr_file_pages"]);
        assert_eq!(seen.width, WidthKind::I8);
        let names: Vec<_> = seen.places.iter().map(|place| place.name.as_str()).collect();
        assert_eq!(names, ["machine", "0", "DMA", "Normal", "rack"]);
        let parents: Vec<_> = seen.places.iter().map(|place| place.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(1), Some(1), Some(0)]);
        assert_eq!(seen.of_kind(PlaceKind::Zone).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(seen.children(1).collect::<Vec<_>>(), [2, 3]);
        let zone = seen.find("0/Normal").unwrap();
        assert_eq!(seen.value(zone, "nr_free_pages"), Some(100_001));
        assert_eq!(seen.value(0, "nr_free_pages"), Some(100_001));
        assert_eq!(
            seen.values(0).collect::<Vec<_>>(),
            [("nr_free_pages", 100_001), ("nr_file_pages", 6)]
        );
        assert_eq!(seen.value(2, "nr_free_pages"), Some(0));
        assert_eq!(seen.value(0, "nr_other"), None);
        assert_eq!(seen.value(9, "nr_free_pages"), None);
        assert!(seen.steady);
        return;
    }
    let file = memfd();
    let counters = table(&file);
    let output = again("another_process_sees_names_tree_and_values_without_the_types")
        .env(SEEN_IN, format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    // It sees the same table as the owner.
    assert_eq!(CountersFile::open(&file).unwrap().table(), counters.table());
    counters.fold();
    assert_eq!(CountersFile::open(&file).unwrap().table(), counters.table());
}

#[test]
fn a_table_is_made_in_an_empty_file_only() {
    let file = memfd();
    let _counters = table(&file);
    let again = Counters::<Vm, i64>::builder(&machine()).create_in(&file);
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn what_is_no_table_is_refused_with_a_reason() {
    let said = |file: &File| CountersFile::open(file).unwrap_err().to_string();
    let file = memfd();
    assert!(said(&file).contains("too short"), "{}", said(&file));
    assert!(!CountersFile::is_one(&file).unwrap());
    file.set_len(1 << 20).unwrap();
    assert!(said(&file).contains("no file of counters"), "{}", said(&file));
    let file = memfd();
    let _ledger = ledgerline::Ledger::builder().capacity(10).create_in(&file).unwrap();
    assert!(said(&file).contains("no file of counters"), "{}", said(&file));
    let file = memfd();
    let _counters = table(&file);
    assert!(CountersFile::is_one(&file).unwrap());
    let whole = file.metadata().unwrap().len();
    let mut version = [0];
    file.read_exact_at(&mut version, 8).unwrap();
    file.write_all_at(&[version[0] + 1], 8).unwrap();
    assert!(said(&file).contains("another version"), "{}", said(&file));
    file.write_all_at(&version, 8).unwrap();
    CountersFile::open(&file).unwrap();
    file.write_all_at(&[3], 12).unwrap();
    assert!(said(&file).contains("damaged"), "{}", said(&file));
    file.write_all_at(&[1], 12).unwrap();
    // The first item's name.
    file.write_all_at(&[200], 256).unwrap();
    assert!(said(&file).contains("names"), "{}", said(&file));
    file.set_len(whole - 1).unwrap();
    assert!(said(&file).contains("cut off"), "{}", said(&file));
}

/// Returns the bytes of a whole table.
fn bytes() -> Vec<u8> {
    let file = memfd();
    let places = machine();
    let counters = Counters::<Vm, i8>::builder(&places).cpus(2).create_in(&file).unwrap();
    counters.on(1).add(places.find("0/DMA").unwrap(), Vm::Free, 1000);
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Reads all that can be read. Whatever the values, it ends.
fn look_at(bytes: &[u8]) -> bool {
    let file = memfd();
    file.write_all_at(bytes, 0).unwrap();
    let Ok(counters) = CountersFile::open(&file) else { return false };
    let table = counters.table();
    for (at, place) in table.places.iter().enumerate() {
        assert_eq!(place.values.len(), table.items.len());
        assert!(place.parent.is_none_or(|parent| parent < at));
    }
    true
}

#[test]
fn whatever_a_file_holds_it_is_read_or_refused() {
    let whole = bytes();
    assert!(look_at(&whole));
    let size = whole.len();
    // Mostly at the header, the names and the places, with values that are typical of numbers there.
    let at = prop_oneof![0..64usize, 128..160usize, 256..1300usize, 0..size];
    let number = prop_oneof![
        any::<u64>(),
        0..9u64,
        Just(u64::MAX),
        Just(1u64 << 63),
        Just(u64::from(u32::MAX)),
        (0..64u32).prop_map(|shift| 1u64 << shift),
    ];
    let changes = proptest::collection::vec((at, number, 1..9usize), 1..6);
    let cut = prop_oneof![4 => Just(size), 1 => 0..size];
    let config = crate::common::cases::few_or_many(file!(), 2_000, 200_000);
    let cases = config.cases;
    let mut runner = TestRunner::new(config);
    let opened = std::cell::Cell::new(0u32);
    runner
        .run(&(changes, cut), |(changes, cut)| {
            let mut bytes = whole.clone();
            for (at, number, length) in changes {
                let end = (at + length).min(size);
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            bytes.truncate(cut);
            opened.set(opened.get() + u32::from(look_at(&bytes)));
            Ok(())
        })
        .unwrap();
    let opened = opened.get();
    assert!(opened > cases / 20 && opened < cases, "{opened} of {cases} could be read");
    // And bytes that never were a table, behind the right magic or not.
    let random = proptest::collection::vec(any::<u8>(), 0..2000);
    runner
        .run(&(random, any::<bool>()), |(mut bytes, named)| {
            if named && bytes.len() >= 12 {
                bytes[..12].copy_from_slice(&whole[..12]);
            }
            look_at(&bytes);
            Ok(())
        })
        .unwrap();
}

//! A file that is not a ledger is refused, and a damaged one causes no harm.

use crate::common::{memfd, ran_alone, unique};
use ledgerline::{Ledger, OpenError};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The offsets of the header's fields (format 5).
const MAGIC: u64 = 0;
const VERSION: u64 = 8;
const COLUMNS: u64 = 12;
const CAPACITY: u64 = 16;
const BATCH: u64 = 24;
const HIGH_WATER: u64 = 128;
const FREE: u64 = 136;

/// Creates a ledger with some groups and charges in it.
fn ledger_file() -> File {
    let file = memfd();
    let ledger = Ledger::builder().capacity(100).create_in(&file).unwrap();
    for n in 0..5 {
        let group = ledger.root().create(&format!("g{n}")).unwrap().create("below").unwrap();
        std::mem::forget(group.try_charge(1_000 * (n + 1)).unwrap());
        drop(group.try_charge(5).unwrap());
    }
    file
}

/// Uses a ledger in all ways of a reader and some of a writer. Whatever the values, it ends.
fn use_it(file: &File) {
    let Ok(ledger) = Ledger::open_in(file) else { return };
    let snapshot = ledger.snapshot();
    assert!(snapshot.groups.len() <= ledger.capacity() as usize);
    for group in &snapshot.groups {
        let handle = ledger.group(group.id);
        let _ = (handle.path(), handle.precise(), handle.approximate(), handle.parent());
    }
    let _ = ledger.footprint();
    ledger.settle_dead(&|owner| owner % 2 == 0);
    for parent in
        [ledger.root()].into_iter().chain(snapshot.groups.first().map(|g| ledger.group(g.id)))
    {
        if let Ok(group) = parent.create(&unique("new")) {
            drop(group.try_charge(100));
            drop(group.charge(100));
            let _ = group.destroy();
        }
    }
    ledger.root().drain();
}

#[test]
fn a_ledger_is_made_in_an_empty_file_only_and_opens_again() {
    let file = ledger_file();
    assert!(Ledger::builder().create_in(&file).is_err());
    let ledger = Ledger::open_in(&file).unwrap();
    assert_eq!(ledger.root().precise(), 15_000);
    assert_eq!(ledger.capacity(), 100);
    let names: Vec<_> = ledger.snapshot().groups.into_iter().map(|group| group.path).collect();
    assert_eq!(names.len(), 11);
    assert!(names.contains(&"/g3/below".to_string()));
}

#[test]
fn what_is_no_ledger_is_refused() {
    let file = memfd();
    assert!(matches!(Ledger::open_in(&file), Err(OpenError::NotALedger)), "empty");
    file.set_len(4095).unwrap();
    assert!(matches!(Ledger::open_in(&file), Err(OpenError::NotALedger)), "too short");
    file.set_len(1 << 20).unwrap();
    assert!(matches!(Ledger::open_in(&file), Err(OpenError::NotALedger)), "zeros");
    file.write_all_at(&[0x5a; 1 << 16], 0).unwrap();
    assert!(matches!(Ledger::open_in(&file), Err(OpenError::NotALedger)), "garbage");
    let text = File::open("/proc/self/exe").unwrap();
    assert!(Ledger::open_in(&text).is_err(), "not writable, and no ledger");
    let folder = File::open("/").unwrap();
    assert!(Ledger::open_in(&folder).is_err());
}

#[test]
fn what_cannot_hold_a_ledger_is_said_so() {
    let written = memfd();
    let read = File::open(format!("/proc/self/fd/{}", written.as_raw_fd())).unwrap();
    let why = Ledger::builder().capacity(100).create_in(&read).unwrap_err();
    assert!(why.to_string().contains("not open for writing"), "{why}");
    let pipe: OwnedFd = std::io::pipe().unwrap().0.into();
    let why = Ledger::open_in(&File::from(pipe)).unwrap_err();
    assert!(matches!(why, OpenError::NotALedger), "{why}");
}

#[test]
fn a_ledger_with_absurd_numbers_is_refused() {
    let with = |offset: u64, bytes: &[u8]| {
        let file = ledger_file();
        file.write_all_at(bytes, offset).unwrap();
        Ledger::open_in(&file).map(drop)
    };
    assert!(with(MAGIC, b"LEDGLINE").is_ok(), "the offsets above are right");
    assert!(matches!(with(MAGIC, b"ledgline"), Err(OpenError::NotALedger)));
    for found in [0u32, 1, u32::MAX] {
        let error = with(VERSION, &found.to_le_bytes()).unwrap_err();
        assert!(matches!(error, OpenError::Version { found: f, .. } if f == found), "{error}");
    }
    for (offset, value) in [
        (CAPACITY, 0u32),
        (CAPACITY, 1),
        (CAPACITY, (1 << 20) + 1),
        (CAPACITY, u32::MAX),
        (COLUMNS, 0),
        (COLUMNS, 1 << 15),
        (COLUMNS, u32::MAX),
    ] {
        let error = with(offset, &value.to_le_bytes()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged), "{offset}: {value}: {error}");
    }
    for batch in [0u64, (1 << 28) + 1, u64::MAX] {
        assert!(matches!(with(BATCH, &batch.to_le_bytes()), Err(OpenError::Damaged)), "{batch}");
    }
    let file = ledger_file();
    let length = file.metadata().unwrap().len();
    for shorter in [length - 1, length - (1 << 25), 1 << 20, 4096] {
        file.set_len(shorter).unwrap();
        assert!(matches!(Ledger::open_in(&file), Err(OpenError::Damaged)), "{shorter}");
    }
}

/// Writes the bytes of `damage` over a ledger and uses it.
fn damaged(few: u32, many: u32, damage: impl Strategy<Value = Vec<(u64, Vec<u8>)>>) {
    TestRunner::new(crate::common::cases::few_or_many(file!(), few, many))
        .run(&damage, |writes| {
            let file = ledger_file();
            for (offset, bytes) in writes {
                file.write_all_at(&bytes, offset).unwrap();
            }
            use_it(&file);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..most),
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0x80), Just(0xff)], 1..most),
        (0u32..200).prop_map(|number| number.to_le_bytes().to_vec()),
    ]
}

#[test]
fn a_header_of_random_bytes_never_crashes_a_reader() {
    if ran_alone("a_header_of_random_bytes_never_crashes_a_reader") {
        return;
    }
    // Most of it random; or a field or two, so that the file opens.
    let fields = prop::sample::select(vec![COLUMNS, CAPACITY, HIGH_WATER, BATCH, FREE, FREE + 4]);
    let some = prop::collection::vec((fields, bytes(9)), 1..3);
    let all = (0u64..64, bytes(4096)).prop_map(|(at, bytes)| {
        let end = bytes.len().min(4096 - at as usize);
        vec![(at, bytes[..end].to_vec())]
    });
    damaged(250, 50_000, prop_oneof![3 => some, 1 => all]);
}

#[test]
fn rows_of_random_bytes_never_crash_a_reader() {
    if ran_alone("rows_of_random_bytes_never_crash_a_reader") {
        return;
    }
    // Eleven rows of 256 bytes are in use; the sets of stocked rows follow behind all rows.
    let rows = (4096u64..4096 + 12 * 256, bytes(64));
    let sets = (4096u64 + 28_672..4096 + 28_672 + 8192, bytes(16));
    damaged(400, 50_000, prop::collection::vec(prop_oneof![4 => rows, 1 => sets], 1..6));
}

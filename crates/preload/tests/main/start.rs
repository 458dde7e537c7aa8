//! The properties of the library's file that matter at the start of each process.

use crate::support::library;

/// Returns the writable bytes of a file's segments for the loader: those in the file, and those that begin as zeros.
fn writable(file: &[u8]) -> (u64, u64) {
    let number = |at: usize, bytes: usize| {
        file[at..at + bytes].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    assert_eq!(&file[..5], b"\x7fELF\x02", "a file of a 64-bit machine");
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let each = (0..count).map(|index| (headers + index * size) as usize);
    // A loadable segment (1) that is writable (2).
    let written = each.filter(|&at| number(at, 4) == 1 && number(at + 4, 4) & 2 != 0);
    written.fold((0, 0), |(in_file, zeros), at| {
        let [here, whole] = [at + 32, at + 40].map(|at| number(at, 8));
        (in_file + here, zeros + whole - here)
    })
}

#[test]
fn of_what_may_be_written_little_lies_in_the_file_and_tables_are_zeros() {
    let file = std::fs::read(library()).unwrap();
    let (in_file, zeros) = writable(&file);
    // Each of these pages is read and copied in each process that a run starts. A library with the checks of a debug
    // build has a place in the source for each check.
    let is_release = library().parent().is_some_and(|folder| folder.ends_with("release"));
    let most = if is_release { 24 << 10 } else { 128 << 10 };
    assert!((1..most).contains(&in_file), "{in_file} bytes");
    // The tables by span: sixteen MiB of cells alone.
    assert!(zeros > 16 << 20, "{zeros} bytes");
}

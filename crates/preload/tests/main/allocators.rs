//! Programs with another allocator than the C library's: its blocks are accounted too, C++'s operators among them.

use crate::support::{Account, Run, compiled, library, live, numbers};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Returns the installed allocators, by Debian's names.
fn allocators() -> Vec<PathBuf> {
    ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"]
        .into_iter()
        .filter_map(|name| {
            let found = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
                .into_iter()
                .map(|folder| Path::new(folder).join(name))
                .find(|path| path.exists());
            if found.is_none() {
                eprintln!("skipped: {name} is not installed");
            }
            found
        })
        .collect()
}

/// Preloads an allocator into the program, accounted or not.
fn with(run: Run, allocator: &Path, accounted: bool) -> Run {
    let allocator = allocator.to_str().expect("a path in UTF-8");
    let ours = library().to_str().expect("a path in UTF-8");
    let both = format!("{ours} {allocator}");
    run.env("LD_PRELOAD", if accounted { &both } else { allocator })
}

#[test]
fn every_form_of_new_is_charged_and_every_form_of_delete_returns_it() {
    let program = compiled!("allocators.cc");
    for allocator in allocators() {
        let held = |how: &str| {
            let account = Account::new();
            with(account.run(&program, &[how]), &allocator, true).well();
            let rows = account.rows();
            (rows.root().current, live(rows.root()))
        };
        let (bytes, blocks) = held("hold");
        // 16 blocks of 1 000 bytes and more, 3 000 times, and the lists of them.
        assert!((48_000..48_100).contains(&blocks), "{allocator:?}: {blocks}");
        assert!(bytes > 48_000_000 && bytes < 70 * MIB, "{allocator:?}: {bytes}");
        let (bytes, blocks) = held("return");
        assert!(blocks < 60 && bytes < 200_000, "{allocator:?}: {blocks} blocks, {bytes}");
    }
}

#[test]
fn at_max_new_throws_what_a_program_can_catch_and_asks_its_handler() {
    let program = compiled!("allocators.cc");
    for allocator in allocators() {
        let account = Account::limited(8 * MIB);
        let said = with(account.run(&program, &["limit"]), &allocator, true).well();
        let blocks = numbers(&said)[0];
        assert!((60..=80).contains(&blocks), "{allocator:?}: {blocks}");
        assert!(account.rows().root().peak.value <= 8 * MIB);
    }
}

#[test]
fn realloc_to_nothing_means_what_the_allocator_means() {
    let program = compiled!("allocators.cc");
    for allocator in allocators() {
        let bare = with(Run::bare(&program, &["nothing"]), &allocator, false).well();
        let account = Account::new();
        let said = with(account.run(&program, &["nothing"]), &allocator, true).well();
        assert_eq!(said, bare, "{allocator:?}");
        assert!(live(account.rows().root()) < 40, "{allocator:?}");
    }
}

#[test]
fn a_thread_is_asked_for_its_name_once() {
    let program = compiled!("allocators.cc");
    for allocator in allocators() {
        let account = Account::new();
        // The kernel ends the program if it is asked again.
        with(account.run(&program, &["pairs"]), &allocator, true).well();
        assert!(account.rows().root().charges > 10_000, "{allocator:?}");
    }
}

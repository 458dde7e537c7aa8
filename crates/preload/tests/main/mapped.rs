//! Memory that a program maps by itself is charged like its blocks.

use crate::support::{Account, Run, account, compiled, numbers};
use std::path::Path;

const MIB: u64 = 1 << 20;
/// The most that such a program takes from malloc.
const HEAP: u64 = 100_000;

/// Returns the bytes that a program holds after it maps memory in some way, without a small heap.
fn held(program: &Path, how: &[&str]) -> u64 {
    let (_, rows) = account(program, how, &[]);
    let held = rows.root().current;
    assert!(held % MIB < HEAP, "{how:?}: {held}");
    held / MIB
}

#[test]
fn private_writable_mappings_count_and_reservations_do_not() {
    let program = compiled!("maps.c");
    assert_eq!(held(&program, &["private"]), 8);
    assert_eq!(held(&program, &["reserve"]), 3);
}

#[test]
fn what_is_given_back_counts_no_more_and_what_still_has_its_pages_does() {
    let program = compiled!("maps.c");
    // Of eight: one unmapped, two without pages and not writable, one replaced by a reservation.
    assert_eq!(held(&program, &["give back"]), 4);
}

#[test]
fn what_moves_or_grows_is_followed() {
    let program = compiled!("maps.c");
    // Three onto the middle of five.
    assert_eq!(held(&program, &["remap"]), 5);
}

#[test]
fn the_programs_break_counts() {
    let program = compiled!("maps.c");
    assert_eq!(held(&program, &["break"]), 4);
}

#[test]
fn shared_memory_and_files_are_told_apart() {
    let program = compiled!("maps.c");
    let account = Account::new();
    account.run(&program, &["shared"]).well();
    let root = account.ledger.root();
    let stat = root.stat();
    let item = |name: &str| stat.get(name).expect("the ledger has it").subtree as u64;
    assert_eq!([item("mapped"), item("mapped_shared"), item("mapped_file")], [4096, 3 * MIB, 8192]);
    assert!(root.precise() < 4096 + HEAP);
}

#[test]
fn at_max_a_mapping_fails_with_enomem_and_leaves_everything_as_it_was() {
    let program = compiled!("maps.c");
    // With room for the heap.
    let account = Account::limited(8 * MIB + MIB / 2);
    let got = numbers(&account.run(&program, &["limit"]).well());
    assert_eq!(got, [8]);
    let rows = account.rows();
    // The refused calls: mmap, mprotect, mremap, sbrk.
    assert_eq!(rows.root().refused, 4);
    assert!(rows.root().peak.value < 9 * MIB && rows.root().current < HEAP, "{:#?}", rows.root());
}

#[test]
fn of_a_mapping_of_several_kinds_each_piece_is_told_apart() {
    let program = compiled!("maps.c");
    let account = Account::limited(8 * MIB + MIB / 2);
    account.run(&program, &["pieces"]).well();
    let rows = account.rows();
    // Only the last call was refused, and nothing was returned that was not charged.
    assert_eq!(rows.root().refused, 1);
    assert!(rows.root().current < HEAP, "{:#?}", rows.root());
    assert_eq!(account.ledger.mistakes(), ledgerline::Mistakes::default());
}

#[test]
fn calls_that_fail_say_why_as_without_an_account() {
    let program = compiled!("maps.c");
    Run::bare(&program, &["errors"]).well();
    let account = Account::new();
    account.run(&program, &["errors"]).well();
    assert!(account.rows().root().current < HEAP);
}

#[test]
fn a_forked_childs_copies_change_no_account() {
    let program = compiled!("maps.c");
    let account = Account::new();
    account.run(&program, &["fork"]).well();
    let rows = account.rows();
    let mut held: Vec<u64> = rows.processes().iter().map(|row| row.current / MIB).collect();
    held.sort_unstable();
    assert_eq!(held, [1, 4], "{rows:#?}");
}

#[test]
fn random_calls_count_what_an_obvious_table_of_pages_says() {
    let program = compiled!("maps.c");
    for seed in crate::seed::seeds(1, 5, 100).map(|seed| seed & 0x7fff_ffff) {
        let account = Account::new();
        let said = account.run(&program, &["random", &seed.to_string()]).well();
        let mapped = account.ledger.root().stat().get("mapped").unwrap().subtree as u64;
        assert_eq!([mapped], numbers(&said)[..], "seed {seed}");
        let heap = account.rows().root().current - mapped;
        assert!(heap < HEAP, "seed {seed}: {heap}");
    }
}

#[test]
fn threads_that_map_and_unmap_leave_nothing() {
    let program = compiled!("maps.c");
    let account = Account::new();
    account.run(&program, &["threads"]).well();
    assert_eq!(account.ledger.root().stat().get("mapped").unwrap().subtree, 0);
    assert!(account.rows().root().current < 2 * HEAP);
}

#[test]
fn pages_that_are_given_back_here_and_there_lose_no_charge() {
    let program = compiled!("maps.c");
    assert_eq!(held(&program, &["sieve"]), 1);
}

#[test]
fn what_there_is_no_room_to_follow_does_not_stay_charged_and_is_counted() {
    let program = compiled!("maps.c");
    let account = Account::new();
    account.run(&program, &["crowd"]).well();
    let stat = account.ledger.root().stat();
    let item = |name: &str| stat.get(name).expect("the ledger has it").subtree as u64;
    assert_eq!(item("mapped"), MIB);
    let forgotten = item("mapped_forgotten") / 4096;
    assert!((1_000..10_000).contains(&forgotten), "{forgotten}");
    assert!(account.rows().root().current < MIB + HEAP);
}

//! Meaningless values in a row are detected, and no other row is reported as damaged.

use crate::common::{memfd, ran_alone, unique};
use ledgerline::{CreateError, Group, GroupState, Ledger, Limit, Reason};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The offsets of a row's words (`table/row.rs`).
const RESERVED: u64 = 0;
const USAGE: u64 = 8;
const WATERMARK: u64 = 64;
const FAILCNT: u64 = 72;
const MAX: u64 = 128;
const HIGH: u64 = 136;
const PARENT: u64 = 160;
const GENERATION: u64 = 164;
const STATE: u64 = 168;
const DEPTH: u64 = 172;
const AT_EXIT: u64 = 192;
const NAME: u64 = 200;

/// A ledger in a file: `/a`, `/a/b`, `/a/b/c` and `/d` in rows 1 to 4.
struct Family {
    file: File,
    ledger: Ledger,
}

impl Family {
    fn new() -> Family {
        let file = memfd();
        let ledger = Ledger::builder().capacity(1000).create_in(&file).unwrap();
        let mut group = ledger.root();
        for (row, name) in (1..).zip(["a", "b", "c"]) {
            group = group.create(name).unwrap();
            assert_eq!(group.id().index(), row);
        }
        group.charge_units(5000).unwrap();
        ledger.root().create("d").unwrap();
        Family { file, ledger }
    }

    fn row(&self, row: u64, word: u64, bytes: &[u8]) -> &Family {
        self.file.write_all_at(bytes, 4096 + row * 256 + word).unwrap();
        self
    }

    fn word(&self, row: u64, word: u64, value: u64) -> &Family {
        self.row(row, word, &value.to_le_bytes())
    }

    fn half(&self, row: u64, word: u64, value: u32) -> &Family {
        self.row(row, word, &value.to_le_bytes())
    }

    /// Returns the paths of all rows but the root, and those of damaged ones.
    fn paths(&self) -> (Vec<String>, Vec<String>) {
        let groups = self.ledger.snapshot().groups;
        let damaged = groups.iter().filter(|group| group.state == GroupState::Damaged);
        let damaged = damaged.map(|group| group.path.clone()).collect();
        (groups.into_iter().skip(1).map(|group| group.path).collect(), damaged)
    }

    fn group(&self, path: &str) -> Group<'_> {
        self.ledger.find(path).unwrap()
    }
}

const SOUND: [&str; 4] = ["/a", "/a/b", "/a/b/c", "/d"];

#[test]
fn a_sound_ledger_has_no_damaged_row() {
    if ran_alone("a_sound_ledger_has_no_damaged_row") {
        return;
    }
    let family = Family::new();
    assert_eq!(family.paths(), (SOUND.map(String::from).to_vec(), Vec::new()));
    assert!(!family.ledger.snapshot().damaged);
    family.group("/a").set_max(Limit::units((1 << 62) - 1)).unwrap();
    family.group("/a/b/c").uncharge_units(6000);
    assert!(!family.ledger.snapshot().damaged, "mistakes and large limits are no damage");
}

#[test]
fn a_limit_that_nobody_set_damages_its_row_however_sensible_it_is() {
    if ran_alone("a_limit_that_nobody_set_damages_its_row_however_sensible_it_is") {
        return;
    }
    for (word, value) in [(MAX, 1 << 30), (MAX, 5), (HIGH, 1 << 20), (HIGH + 8, 5), (HIGH + 16, 5)]
    {
        let family = Family::new();
        family.group("/a/b").set_max(Limit::units(1 << 40)).unwrap();
        assert_eq!(family.paths().1, [""; 0]);
        assert_eq!(family.word(2, word, value).paths().1, ["/a/b"], "{word}: {value}");
    }
}

#[test]
fn a_number_beyond_what_a_ledger_counts_damages_its_row_alone() {
    if ran_alone("a_number_beyond_what_a_ledger_counts_damages_its_row_alone") {
        return;
    }
    for (word, value) in [
        (USAGE, 1 << 63),
        (USAGE, (1 << 62) + (1 << 55)),
        (RESERVED, (1 << 62) + (1 << 55)),
        (WATERMARK, u64::MAX),
        (FAILCNT, 1 << 63),
        (MAX, (1 << 62) + 1),
        (HIGH, u64::MAX),
        (AT_EXIT, u64::MAX),
        (NAME, u64::from_le_bytes(*b"a/b\0\0\0\0\0")),
        (NAME, u64::from_le_bytes(*b"b\0b\0\0\0\0\0")),
        (NAME, 0xff),
        (NAME, 0),
    ] {
        let family = Family::new();
        let snapshot = family.word(2, word, value).ledger.snapshot();
        assert!(snapshot.damaged, "{word}: {value:#x}");
        let states = snapshot.groups.iter().map(|group| group.state == GroupState::Damaged);
        assert!(states.eq([false, false, true, false, false]), "{word}: {value:#x}");
        assert_eq!(snapshot.groups[0].charges, 1, "the sums above leave it out");
    }
}

#[test]
fn an_impossible_state_generation_or_depth_damages_its_row_alone() {
    if ran_alone("an_impossible_state_generation_or_depth_damages_its_row_alone") {
        return;
    }
    for (word, value) in [(STATE, 5), (STATE, u32::MAX), (GENERATION, 0x1_0001), (DEPTH, 137)] {
        let family = Family::new();
        let (all, damaged) = family.half(2, word, value).paths();
        assert_eq!(all, SOUND, "{word}: {value:#x}");
        assert_eq!(damaged, ["/a/b"], "{word}: {value:#x}");
    }
}

#[test]
fn a_row_that_does_not_lead_to_the_root_is_shown_below_it_with_those_below() {
    if ran_alone("a_row_that_does_not_lead_to_the_root_is_shown_below_it_with_those_below") {
        return;
    }
    for parent in [999, 1_000_000, u32::MAX, 2] {
        let family = Family::new();
        let (all, damaged) = family.half(2, PARENT, parent).paths();
        assert_eq!(all, ["/a", "/b", "/b/c", "/d"], "{parent}");
        assert_eq!(damaged, ["/b"], "{parent}");
    }
    // A ring: one of its rows is placed below the root.
    let family = Family::new();
    let (all, damaged) = family.half(1, PARENT, 3).paths();
    assert_eq!(all, SOUND);
    assert_eq!(damaged, ["/a"]);
    let below: Vec<_> =
        family.ledger.group(ledgerline::GroupId::from_parts(1, 1)).descendants().collect();
    assert_eq!(below.len(), 2, "each once: {below:?}");
}

#[test]
fn a_damaged_root_is_shown_as_such_and_stays_the_root() {
    if ran_alone("a_damaged_root_is_shown_as_such_and_stays_the_root") {
        return;
    }
    for (word, value) in
        [(STATE, 0), (STATE, 2), (STATE, 77), (GENERATION, 9), (DEPTH, 3), (PARENT, 3)]
    {
        let family = Family::new();
        let (all, damaged) = family.half(0, word, value).paths();
        assert_eq!(all, SOUND, "{word}: {value}");
        // A root's parent is never read.
        let expected: &[&str] = if word == PARENT { &[] } else { &["/"] };
        assert_eq!(damaged, expected, "{word}: {value}");
        family.ledger.leaks();
        family.ledger.root().diagnose();
    }
}

#[test]
fn a_damaged_header_is_told() {
    if ran_alone("a_damaged_header_is_told") {
        return;
    }
    for (offset, value) in [(0, 7u64), (8, 99), (20, 3), (24, 5), (128, u64::MAX), (512, u64::MAX)]
    {
        let family = Family::new();
        family.file.write_all_at(&value.to_le_bytes()[..4], offset).unwrap();
        if offset == 512 {
            family.file.write_all_at(&value.to_le_bytes(), offset).unwrap();
        }
        let snapshot = family.ledger.snapshot();
        assert!(snapshot.damaged, "{offset}");
        assert_eq!(family.paths().1, [""; 0], "{offset}: no row is");
    }
}

#[test]
fn no_row_in_use_is_given_to_another_group_however_the_list_of_free_rows_is_written_over() {
    if ran_alone(
        "no_row_in_use_is_given_to_another_group_however_the_list_of_free_rows_is_written_over",
    ) {
        return;
    }
    const HIGH_WATER: u64 = 128;
    const FREE: u64 = 136;
    for high_water in [0u32, 1, 3, 5, 700, 1000, u32::MAX] {
        for free in [0u64, 1, 3, 4, 999, 1000, u64::MAX] {
            let family = Family::new();
            family.file.write_all_at(&high_water.to_le_bytes(), HIGH_WATER).unwrap();
            family.file.write_all_at(&free.to_le_bytes(), FREE).unwrap();
            assert_eq!(
                family.paths().0,
                SOUND,
                "{high_water} {free}: none is lost, none is made up"
            );
            for _ in 0..3 {
                let made = family.ledger.root().create(&unique("new")).unwrap();
                assert!(made.id().index() > 4, "{high_water} {free}: {made:?}");
            }
            assert_eq!(family.paths().0.len(), SOUND.len() + 3, "{high_water} {free}");
        }
    }
}

#[test]
fn a_ledger_whose_rows_are_all_in_use_is_full_whatever_its_header_says() {
    if ran_alone("a_ledger_whose_rows_are_all_in_use_is_full_whatever_its_header_says") {
        return;
    }
    let file = memfd();
    let ledger = Ledger::builder().capacity(8).create_in(&file).unwrap();
    let all: Vec<_> = (1..8).map(|_| ledger.root().create(&unique("group")).unwrap()).collect();
    file.write_all_at(&1u32.to_le_bytes(), 128).unwrap();
    assert_eq!(ledger.root().create("one more"), Err(CreateError::Full { capacity: 8 }));
    assert!(all.iter().all(|group| group.exists()));
}

#[test]
fn a_counter_that_no_walk_leaves_so_refuses_at_once_and_names_no_limit() {
    if ran_alone("a_counter_that_no_walk_leaves_so_refuses_at_once_and_names_no_limit") {
        return;
    }
    for (word, value) in [(RESERVED, (1u64 << 62) + (1 << 55)), (RESERVED, (1 << 62) - 100)] {
        let family = Family::new();
        family.word(0, word, value);
        let refusal = family.group("/d").try_charge_units(1 << 20).unwrap_err();
        assert_eq!((refusal.reason, refusal.limit, refusal.usage), (Reason::Damaged, 0, 0));
        let text = family.group("/d").try_charge(1 << 20).unwrap_err().to_string();
        assert!(text.contains("the ledger is damaged"), "{text}");
    }
    let family = Family::new();
    family.group("/d").set_max(Limit::units(1 << 30)).unwrap();
    family.word(4, USAGE, (1 << 62) + (1 << 55));
    assert_eq!(family.group("/d").try_charge_units(1 << 20).unwrap_err().reason, Reason::Damaged);
}

//! Names steer no terminal: neither those from a program nor those from a file.

use crate::common::{Random, memfd};
use ledgerline::name::{allows, escaped};
use ledgerline::{CreateError, Ledger, NAME_MAX, NameError};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Writes over a text in the first pages of a file, which hold the header and the rows.
fn overwrite(file: &File, text: &str, with: &[u8]) {
    let mut start = vec![0; 64 << 10];
    file.read_exact_at(&mut start, 0).unwrap();
    let at = start.windows(text.len()).position(|window| window == text.as_bytes());
    file.write_all_at(with, at.expect("the text is there") as u64).unwrap();
}

#[test]
fn a_name_that_steers_is_refused_and_the_refusal_says_by_which_character() {
    let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
    for (name, character, at, shown) in [
        ("\u{202e}moor", '\u{202e}', 0, r"'\u{202e}'"),
        ("a\u{85}", '\u{85}', 1, r"'\u{85}'"),
        ("ab\x7f", '\x7f', 2, r"'\u{7f}'"),
        ("ß\u{2028}", '\u{2028}', 2, r"'\u{2028}'"),
        ("\u{feff}x", '\u{feff}', 0, r"'\u{feff}'"),
        ("a/b", '/', 1, "'/'"),
    ] {
        let error = ledger.root().create(name).unwrap_err();
        assert_eq!(error, CreateError::BadName(NameError::Character { character, at }));
        let text = error.to_string();
        assert!(text.contains(shown) && text.contains(&format!("byte {at}")), "{text}");
    }
    for (name, why) in [
        (String::new(), NameError::Empty),
        ("x".repeat(NAME_MAX + 1), NameError::TooLong { bytes: NAME_MAX + 1 }),
    ] {
        assert_eq!(ledger.root().create(&name).unwrap_err(), CreateError::BadName(why));
    }
    assert_eq!(ledger.snapshot().groups.len(), 1, "nothing was made");
    let group = ledger.root().create("Größe 日本 👩\u{200d}🔬").unwrap();
    assert_eq!(group.path(), "/Größe 日本 👩\u{200d}🔬");
}

#[test]
fn a_name_that_another_process_wrote_is_shown_escaped() {
    let file = memfd();
    let ledger = Ledger::builder().capacity(8).items(&["rows_read"]).create_in(&file).unwrap();
    let group = ledger.root().create("a_name_of_ours").unwrap();
    let below = group.create("below").unwrap();
    below.add_stat(ledger.item("rows_read").unwrap(), 7);
    let charge = below.try_charge(9).unwrap();
    overwrite(&file, "a_name_of_ours", "x\x1b]0;\u{202e}/\u{9b}y\0".as_bytes());
    overwrite(&file, "rows_read", "r w\n\u{2066}\0".as_bytes());

    let name = r"x\u{1b}]0;\u{202e}\u{2f}\u{9b}y";
    let other = Ledger::open_in(&file).unwrap();
    for ledger in [&ledger, &other] {
        let group = ledger.group(group.id());
        assert_eq!((group.name(), group.path()), (name.to_owned(), format!("/{name}")));
        assert_eq!(ledger.group(below.id()).path(), format!("/{name}/below"));
        assert_eq!(ledger.snapshot().groups[1].name, name);
        assert_eq!(ledger.snapshot().groups[2].path, format!("/{name}/below"));
        assert_eq!(ledger.item_names(), [r"r\u{20}w\u{a}\u{2066}"]);
    }
    assert_eq!(below.stat().lines.last().unwrap().name, r"r\u{20}w\u{a}\u{2066}");
    let refused = below.try_charge(1 << 63).unwrap_err();
    assert!(!refused.to_string().contains('\x1b'));
    drop(charge);
}

/// Whatever the bytes, each name and each path can be printed safely.
#[test]
fn no_bytes_in_a_row_make_a_name_that_steers() {
    let file = memfd();
    let ledger = Ledger::builder().capacity(8).create_in(&file).unwrap();
    let group = ledger.root().create(&"n".repeat(NAME_MAX)).unwrap();
    let mut start = vec![0; 64 << 10];
    file.read_exact_at(&mut start, 0).unwrap();
    let at = start.windows(NAME_MAX).position(|window| window == [b'n'; NAME_MAX]).unwrap();
    let mut random = Random::new(7);
    for _ in 0..2_000 {
        // Letters of two and three bytes, most of which steer something, and bytes of any kind.
        let mut bytes = Vec::new();
        while bytes.len() < NAME_MAX {
            match random.below(4) {
                0 => bytes.extend([0xc2, 0x80 + random.below(0x40) as u8]),
                1 => bytes.extend([
                    0xe2,
                    0x80 + random.below(2) as u8,
                    0x80 + random.below(64) as u8,
                ]),
                _ => bytes.push(1 + random.below(255) as u8),
            }
        }
        file.write_all_at(&bytes[..NAME_MAX], at as u64).unwrap();
        let (name, path) = (group.name(), group.path());
        assert!(name.chars().all(allows), "{name:?}");
        assert_eq!(path, format!("/{name}"));
        assert_eq!(escaped(&name), name);
    }
}

#[test]
fn a_child_is_found_by_its_whole_name_and_nothing_else_is() {
    let ledger = Ledger::builder().capacity(16).anonymous().unwrap();
    let longest = "n".repeat(NAME_MAX);
    let names = ["a", "ab", "abc", "Größe 7", r"a\b", "\u{fffd}", &longest, &longest[1..]];
    let groups = names.map(|name| ledger.root().create(name).unwrap());
    let below = groups[0].create("below").unwrap();
    for (name, group) in names.iter().zip(groups) {
        assert_eq!(ledger.root().child(name), Some(group), "{name}");
    }
    for name in ["", "b", "abcd", "below", "a\0", "\0", "/", &format!("{longest}n")] {
        assert_eq!(ledger.root().child(name), None, "{name:?}");
    }
    assert_eq!(groups[0].child("below"), Some(below));
    groups[1].destroy().unwrap();
    assert_eq!((ledger.root().child("ab"), groups[1].child("below")), (None, None));
}

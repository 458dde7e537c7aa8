//! What is printed, against files that a person has looked at.

use super::words::BAR;
use super::*;
use crate::account::model::tests::{account, contained, golden, row};
use crate::account::model::{Mistakes, NotAccounted, Refusals};
use ledgerline_protocol::blind::Blind;

const UNICODE: Style = Style { unicode: true, colour: false, width: Some(100) };

/// A program with threads, a child that ended while it held memory, and a limit
/// that refused.
fn family() -> Account {
    let mut family = account(vec![
        row("/", 41 << 20, 64 << 20),
        row("/python3.4711", 41 << 20, 58_000_000),
        row("/python3.4711/main", 40 << 20, 42_000_000),
        row("/python3.4711/worker-1", 1 << 20, 19_000_000),
        row("/python3.4711/worker-2", 0, 0),
        row("/sort.4712", 0, 9_000_000),
        row("/sort.4712/main", 0, 9_000_000),
    ]);
    family.rows[0].max = Some(64 << 20);
    family.rows[0].high = Some(48 << 20);
    family.rows[0].max_events = 3;
    family.rows[0].high_events = 1;
    family.rows[0].counted.refused = 3;
    let refused = |first, time, largest| Some(Refusals { first, time, largest });
    family.rows[1].counted.folded = true;
    family.rows[1].counted.forgotten = 20 << 10;
    family.rows[2].counted.most_refused = refused(1 << 20, 1_900, 6 << 20);
    family.rows[6].counted.most_refused = refused(65_536, 1_250, 65_536);
    for index in [5, 6] {
        family.rows[index].state = State::Exited;
        family.rows[index].at_exit = 8_000_000;
    }
    family
}

#[test]
fn in_a_pipe() {
    golden("family.txt", &text(&family(), &Style::plain()));
}

#[test]
fn a_container() {
    let mut rows = family().rows;
    rows.push(row("/(untracked)", 5 << 20, 9 << 20));
    rows.last_mut().unwrap().pid = 0;
    golden("container.txt", &text(&contained(rows), &Style::plain()));
    // The row alone is no program's.
    let alone = contained(vec![row("/", 5 << 20, 9 << 20), row("/(untracked)", 5 << 20, 9 << 20)]);
    assert!(text(&alone, &Style::plain()).contains("No allocation was seen"));
}

#[test]
fn rows_that_were_written_over() {
    let mut damaged = family();
    damaged.damaged = true;
    damaged.mistakes = None;
    for index in [0, 3] {
        let Row { path, name, depth, .. } = damaged.rows[index].clone();
        damaged.rows[index] = Row { path, name, depth, state: State::Damaged, ..row("/", 0, 0) };
    }
    golden("damaged.txt", &text(&damaged, &Style::plain()));
    // The header alone.
    let mut header = account(vec![row("/", 0, 0)]);
    header.damaged = true;
    let text = text(&header, &Style::plain());
    assert!(text.contains("Its header makes no sense"), "{text}");
}

#[test]
fn on_a_terminal() {
    golden("family-unicode.txt", &text(&family(), &UNICODE));
}

#[test]
fn on_a_narrow_terminal_without_bars() {
    let mut family = family();
    family.rows[3].name = "a thread with a very long name that goes on".to_owned();
    let narrow = Style { width: Some(72), ..UNICODE };
    golden("family-narrow.txt", &text(&family, &narrow));
}

#[test]
fn in_colour() {
    let colour = Style { colour: true, ..UNICODE };
    let printed = text(&family(), &colour);
    golden("family-colour.txt", &printed);
    // Colour adds escape sequences and changes nothing else.
    let mut bare = String::new();
    let mut rest = printed.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        rest = after.split_once('m').expect("every sequence ends").1;
    }
    bare.push_str(rest);
    assert_eq!(bare.replace(' ', ""), text(&family(), &UNICODE).replace(' ', ""));
}

#[test]
fn a_large_tree_is_folded() {
    let mut rows = vec![row("/", 0, 900 << 20)];
    for process in 0..60u64 {
        rows.push(row(&format!("/cc.{process}"), 0, (process + 1) << 20));
        rows.push(row(&format!("/cc.{process}/main"), 0, (process + 1) << 19));
    }
    let mut large = account(rows);
    large.status = Status::Killed(libc::SIGKILL);
    large.mistakes = Some(Mistakes { underflows: 0, strays: 1234 });
    golden("folded.txt", &text(&large, &Style::plain()));
}

#[test]
fn nothing_was_seen() {
    let mut unseen = account(vec![row("/", 0, 0)]);
    let program = Some("job".to_owned());
    unseen.not_accounted = vec![NotAccounted { program, why: Blind::Static, processes: 1 }];
    unseen.rows[0].max = Some(1 << 20);
    unseen.status = Status::Exited(3);
    golden("unseen.txt", &text(&unseen, &Style::plain()));
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let mut hostile = account(vec![row("/", 0, 1), row("/x", 0, 1)]);
    hostile.rows[1].name = "a\x1b[2Jb\nc\u{9b}2J\u{202e}".to_owned();
    hostile.command = vec!["\x07bell".to_owned(), "\u{202e}\u{85}\u{e0041}".to_owned()];
    let printed = text(&hostile, &Style::plain());
    let plain = |letter| letter == '\n' || ledgerline_view::terminal::output::is_plain(letter);
    assert!(printed.chars().all(plain), "{printed:?}");
    assert!(printed.contains(r"a\u{1b}[2Jb\u{a}c\u{9b}2J\u{202e}"), "{printed:?}");
    // As a shell reads it back.
    assert!(printed.contains(r"$'\x07bell' $'\u202e\u0085\U000e0041'"), "{printed:?}");
}

#[test]
fn small_things() {
    assert_eq!(count(0), "0");
    assert_eq!(count(999), "999");
    assert_eq!(count(1_000), "1,000");
    assert_eq!(count(1_234_567), "1,234,567");
    assert_eq!(bar(0, 10), "        ");
    assert_eq!(bar(1, 1 << 40), "▏       ");
    assert_eq!(bar(10, 10), "████████");
    assert_eq!(bar(20, 10), "████████");
    assert_eq!(bar(u64::MAX / 2, u64::MAX).chars().count(), BAR);
    assert_eq!(quoted("it's"), "'it'\\''s'");
    assert_eq!(quoted(""), "''");
    assert_eq!(quoted("if x:\n\ty = '\\'\x1b"), r"$'if x:\n\ty = \'\\\'\x1b'");
    assert_eq!(shortened("abcdef", 4, &UNICODE), "abc…");
    assert_eq!(shortened("abcdef", 4, &Style::plain()), "a...");
}

//! The printed text, compared with reviewed files.

use super::words::BAR;
use super::*;
use crate::account::model::tests::{account, contained, golden, row};
use crate::account::model::{Mistakes, NotAccounted, Origin, Refusals, Resident};
use ledgerline_protocol::blind::Blind;

fn told(account: &Account, style: &Style) -> String {
    text(account, Extent::Folded, style)
}

const UNICODE: Style = Style { unicode: true, colour: false, width: Some(100) };

/// Returns an account of a program with threads, a child that ended while it held memory, and a limit that refused.
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
    let refused = |first, time, largest| Some(Refusals { first, time, largest, usage: 66_900_000 });
    // Process ids distinguish them.
    (family.rows[5].pid, family.rows[5].owner) = (4712, 4712);
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
    golden("family.txt", &told(&family(), &Style::plain()));
}

#[test]
fn a_limit_on_resident_memory() {
    let mut account = family();
    account.rows[0].max_events = 3;
    (account.rows[1].resident, account.rows[5].resident) = (Some(61_000_000), Some(12_000_000));
    // Rows are refused at 1.25 and 1.9 s.
    let closings = vec![(1_200, 67_300_000), (1_500, 70_000_000)];
    account.resident = Some(Resident { limit: Some(64 << 20), peak: 70_000_000, closings });
    account.rows[0].resident = Some(70_000_000);
    golden("resident.txt", &told(&account, &Style::plain()));
}

#[test]
fn a_refusal_for_memory_that_nobody_touched() {
    let mut account = account(vec![row("/", 0, 9 << 20), row("/java.4711", 0, 9 << 20)]);
    (account.rows[0].max, account.rows[0].counted.refused) = (Some(64 << 20), 1);
    (account.max_resident, account.rows[1].resident) = (Some(12 << 20), None);
    let told_so = |account: &Account| {
        told(account, &Style::plain()).contains("At most 12.0 MiB were resident: ")
    };
    assert!(told_so(&account));
    account.rows[0].counted.refused = 0;
    assert!(!told_so(&account), "nothing was refused");
    account.rows[0].counted.refused = 1;
    account.rows.push(row("/sort.4712", 0, 9 << 20));
    account.rows[2].pid = 4712;
    assert!(!told_so(&account), "a process that was killed may have had more");
}

#[test]
fn a_container() {
    let mut rows = family().rows;
    rows.push(row("/(untracked)", 5 << 20, 9 << 20));
    rows.last_mut().unwrap().pid = 0;
    golden("container.txt", &told(&contained(rows), &Style::plain()));
    // That row alone is not a program's.
    let alone = contained(vec![row("/", 5 << 20, 9 << 20), row("/(untracked)", 5 << 20, 9 << 20)]);
    assert!(told(&alone, &Style::plain()).contains("No allocation was seen"));
}

#[test]
fn rows_that_were_written_over() {
    let mut damaged = family();
    damaged.damaged = true;
    damaged.mistakes = None;
    for index in [0, 3] {
        let Row { path, name, called, depth, .. } = damaged.rows[index].clone();
        damaged.rows[index] =
            Row { path, name, called, depth, state: State::Damaged, ..row("/", 0, 0) };
    }
    golden("damaged.txt", &told(&damaged, &Style::plain()));
    // The header alone.
    let mut header = account(vec![row("/", 0, 0)]);
    header.damaged = true;
    let text = told(&header, &Style::plain());
    assert!(text.contains("Its header makes no sense"), "{text}");
}

#[test]
fn on_a_terminal() {
    golden("family-unicode.txt", &told(&family(), &UNICODE));
}

#[test]
fn on_a_narrow_terminal_without_bars() {
    let mut family = family();
    family.rows[3].called = "a thread with a very long name that goes on".to_owned();
    let narrow = Style { width: Some(72), ..UNICODE };
    golden("family-narrow.txt", &told(&family, &narrow));
}

#[test]
fn in_colour() {
    let colour = Style { colour: true, ..UNICODE };
    let printed = told(&family(), &colour);
    golden("family-colour.txt", &printed);
    // Colour adds escape sequences and changes nothing else.
    let mut bare = String::new();
    let mut rest = printed.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        rest = after.split_once('m').expect("every sequence ends").1;
    }
    bare.push_str(rest);
    assert_eq!(bare.replace(' ', ""), told(&family(), &UNICODE).replace(' ', ""));
}

/// Returns a process of a run that has ended, with its parent.
fn process(called: &str, pid: u32, parent: u32, peak: u64) -> Row {
    let mut row = row(&format!("/{}.{pid}", called.split([':', ' ']).next().unwrap()), 0, peak);
    (row.pid, row.owner, row.state) = (pid, pid, State::Exited);
    row.called = called.to_owned();
    row.at_exit = peak / 2;
    row.resident = Some(peak + (3 << 20));
    row.counted.origin = Origin { parent: parent.into(), started: u64::from(pid), executed: false };
    row
}

/// Returns the rows of a run in an arbitrary order, like a ledger's.
fn of_rows(mut rows: Vec<Row>, command: &[&str]) -> Account {
    let most = rows.iter().map(|row| row.peak).max().unwrap_or(0);
    rows.reverse();
    rows.insert(0, row("/", 200 << 10, most + most / 3));
    let command = command.iter().map(|&word| word.to_owned()).collect();
    Account { command, ..account(rows) }
}

#[test]
fn a_make() {
    let mut rows = vec![process("make", 6825, 6800, 246_272)];
    (rows[0].state, rows[0].at_exit, rows[0].current) = (State::Live, 0, 187_085);
    for unit in 0..40 {
        let gcc = 6830 + unit * 4;
        rows.push(process("sh", gcc, 6825, 60_000));
        rows[unit as usize * 4 + 1].counted.origin.executed = true;
        let mut same = process("gcc", gcc, 6825, 196_000);
        same.counted.origin.started += 1;
        rows.push(same);
        rows.push(process("cc1", gcc + 2, gcc, 4_700_000 + u64::from(unit)));
        rows.push(process("as", gcc + 3, gcc, 386_000));
    }
    rows.push(process("gcc", 7100, 6825, 231_000));
    rows.push(process("collect2", 7101, 7100, 123_000));
    rows.push(process("ld", 7102, 7101, 5_200_000));
    golden("make.txt", &told(&of_rows(rows, &["make", "-j2"]), &UNICODE));
}

/// Returns the account of a shim that looks for the right Python, like pyenv's: some forty processes before the
/// relevant one.
fn shim() -> Account {
    let mut rows = Vec::new();
    for (at, program) in ["env", "bash", "env", "python3"].into_iter().enumerate() {
        let mut row = process(program, 16_258, 16_250, 150_000);
        row.counted.origin.started += at as u64 * 100;
        row.counted.origin.executed = at < 3;
        rows.push(row);
    }
    (rows[3].peak, rows[3].current, rows[3].at_exit) = (40_900_000, 1_400_000, 0);
    rows[3].state = State::Live;
    rows[3].counted.refused = 1;
    rows[3].counted.most_refused =
        Some(Refusals { first: 1 << 20, time: 1_325, largest: 1 << 20, usage: 41_100_000 });
    for child in 0..11 {
        let bash = 16_260 + child * 3;
        rows.push(process("bash", bash, 16_258, 130_000));
        rows.push(process("env", bash + 1, bash, 90_000));
        rows.push(process("cut", bash + 2, bash, 80_000));
    }
    let mut shim = of_rows(rows, &["python3", "-c", "x = [bytearray(1 << 20) for _ in range(99)]"]);
    shim.rows[0].max = Some(40 << 20);
    shim.rows[0].peak = 41_100_000;
    shim.rows[0].max_events = 1;
    shim.rows[0].counted.refused = 1;
    shim.status = Status::Exited(1);
    shim
}

#[test]
fn a_python_behind_a_shim() {
    golden("python.txt", &told(&shim(), &Style::plain()));
}

#[test]
fn all_of_an_account() {
    golden("python-all.txt", &text(&shim(), Extent::All, &Style::plain()));
}

#[test]
fn a_server_that_forks_workers_with_titles() {
    let mut rows = vec![process("nginx: master process nginx", 900, 880, 1_300_000)];
    for worker in 0..4 {
        let mut row =
            process("nginx: worker process", 901 + worker, 900, 700_000 + u64::from(worker));
        row.state = State::Running;
        (row.current, row.at_exit) = (row.at_exit, 0);
        rows.push(row);
    }
    golden("nginx.txt", &told(&of_rows(rows, &["nginx", "-g", "daemon off;"]), &Style::plain()));
}

#[test]
fn a_database_whose_processes_have_titles() {
    let mut rows = vec![process("postgres", 500, 480, 4_000_000)];
    let workers = ["checkpointer", "background writer", "walwriter", "autovacuum launcher"];
    for (at, worker) in workers.into_iter().enumerate() {
        let pid = 501 + at as u32;
        rows.push(process(&format!("postgres: {worker}"), pid, 500, 1_100_000 + at as u64));
    }
    rows.push(process("postgres: logical replication launcher", 505, 500, 1_000_000));
    for backend in 0..6 {
        let called = "postgres: app shop [local] idle";
        rows.push(process(called, 510 + backend, 500, 9_000_000 - u64::from(backend)));
    }
    golden("postgres.txt", &told(&of_rows(rows, &["postgres", "-D", "data"]), &Style::plain()));
}

#[test]
fn an_account_has_some_twenty_lines_whatever_ran() {
    let mut rows = Vec::new();
    for process_ in 0..60_u32 {
        rows.push(process(
            &format!("cc{process_}"),
            100 + process_,
            1,
            u64::from(process_ + 1) << 20,
        ));
        rows.push(row(
            &format!("/cc{process_}.{}/main", 100 + process_),
            0,
            u64::from(process_ + 1) << 19,
        ));
    }
    let mut large = account(rows);
    large.rows.insert(0, row("/", 0, 900 << 20));
    large.status = Status::Killed(libc::SIGKILL);
    large.mistakes = Some(Mistakes { underflows: 0, strays: 1234 });
    golden("folded.txt", &told(&large, &Style::plain()));
    for account in [large, shim()] {
        assert!(told(&account, &Style::plain()).lines().count() <= 25);
    }
}

#[test]
fn nothing_was_seen() {
    let mut unseen = account(vec![row("/", 0, 0)]);
    let program = Some("job".to_owned());
    unseen.not_accounted = vec![NotAccounted { program, why: Blind::Static, processes: 1 }];
    unseen.rows[0].max = Some(1 << 20);
    unseen.status = Status::Exited(3);
    golden("unseen.txt", &told(&unseen, &Style::plain()));
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let mut hostile = account(vec![row("/", 0, 1), row("/x", 0, 1)]);
    hostile.rows[1].called = "a\x1b[2Jb\nc\u{9b}2J\u{202e}".to_owned();
    hostile.command = vec!["\x07bell".to_owned(), "\u{202e}\u{85}\u{e0041}".to_owned()];
    let printed = told(&hostile, &Style::plain());
    let plain = |letter| letter == '\n' || ledgerline_view::terminal::output::is_plain(letter);
    assert!(printed.chars().all(plain), "{printed:?}");
    assert!(printed.contains(r"a\u{1b}[2Jb\u{a}c\u{9b}2J\u{202e}"), "{printed:?}");
    // In a form that a shell reads back.
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

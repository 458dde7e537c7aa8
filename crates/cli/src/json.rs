//! The account as a JSON document.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use crate::account::{Account, State};
use ledgerline_terminal::output::is_plain;

#[derive(Serialize)]
struct Document<'a> {
    unit: &'a str,
    command: &'a [String],
    exit_code: u8,
    signal: Option<String>,
    wall_seconds: f64,
    mode: &'a str,
    ledger_bytes: u64,
    max_resident: Option<u64>,
    mistakes: Mistakes,
    groups: Vec<Group<'a>>,
}

#[derive(Serialize)]
struct Mistakes {
    underflows: u64,
    strays: u64,
}

#[derive(Serialize)]
struct Group<'a> {
    path: &'a str,
    state: &'static str,
    pid: u32,
    current: u64,
    peak: u64,
    charges: u64,
    uncharges: u64,
    refused: u64,
    max: Limit,
    high: Limit,
    max_events: u64,
    high_events: u64,
    at_exit: u64,
    heap: u64,
    mapped: u64,
    mapped_shared: u64,
    mapped_file: u64,
    first_refused: Option<First>,
    largest_refused: Option<u64>,
    folded: bool,
}

/// The first request of a row that was refused.
#[derive(Serialize)]
struct First {
    size: u64,
    seconds: Option<f64>,
}

/// A number, or the word that a cgroup's files have for no limit.
struct Limit(Option<u64>);

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(units) => serializer.serialize_u64(units),
            None => serializer.serialize_str("max"),
        }
    }
}

/// The whole document, with a newline at its end.
pub fn document(account: &Account) -> String {
    let document = Document {
        unit: &account.unit,
        command: &account.command,
        exit_code: account.status.code(),
        signal: account.status.signal(),
        // Milliseconds are as much as starting a process lets one mean.
        wall_seconds: (account.wall.as_secs_f64() * 1000.0).round() / 1000.0,
        mode: &account.mode,
        ledger_bytes: account.ledger_bytes,
        max_resident: account.max_resident,
        mistakes: Mistakes {
            underflows: account.mistakes.underflows,
            strays: account.mistakes.strays,
        },
        groups: rows(account),
    };
    pretty(&document)
}

fn rows(account: &Account) -> Vec<Group<'_>> {
    account
        .rows
        .iter()
        .map(|row| Group {
            path: &row.path,
            state: match row.state {
                State::Running => "running",
                State::Live => "live",
                State::Exited => "exited",
            },
            pid: row.pid,
            current: row.current,
            peak: row.peak,
            charges: row.charges,
            uncharges: row.uncharges,
            refused: row.refused,
            max: Limit(row.max),
            high: Limit(row.high),
            max_events: row.max_events,
            high_events: row.high_events,
            at_exit: row.at_exit,
            heap: row.heap(),
            mapped: row.mapped.private,
            mapped_shared: row.mapped.shared,
            mapped_file: row.mapped.file,
            first_refused: row.most_refused.map(|refused| First {
                size: refused.first,
                seconds: account.since_start(refused.time),
            }),
            largest_refused: row.most_refused.map(|refused| refused.largest),
            folded: row.folded,
        })
        .collect()
}

/// The groups alone, of a ledger whose program goes on.
pub fn groups(account: &Account) -> String {
    #[derive(Serialize)]
    struct Groups<'a> {
        unit: &'a str,
        ledger_bytes: u64,
        mistakes: Mistakes,
        groups: Vec<Group<'a>>,
    }
    pretty(&Groups {
        unit: &account.unit,
        ledger_bytes: account.ledger_bytes,
        mistakes: Mistakes {
            underflows: account.mistakes.underflows,
            strays: account.mistakes.strays,
        },
        groups: rows(account),
    })
}

/// A document as text, with a newline at its end. Letters that would steer a terminal are escaped, also those that JSON
/// need not escape.
pub fn pretty(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document)
        .expect("strings, numbers and lists of them always make a document");
    let mut plain = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if letter == '\n' || is_plain(letter) {
            plain.push(letter);
        } else {
            // (Outside of its strings a document has no such letter.)
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(plain, "\\u{unit:04x}");
            }
        }
    }
    plain.push('\n');
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Refusals;
    use crate::account::tests::{account, golden, row};
    use crate::launch::Status;

    #[test]
    fn a_document_is_as_it_was() {
        let mut killed = account(vec![
            row("/", 5 << 20, 64 << 20),
            row("/python3.4711/worker \"1\"", 0, 70_000),
        ]);
        killed.status = Status::Killed(libc::SIGSEGV);
        killed.rows[0].max = Some(64 << 20);
        killed.rows[0].refused = 3;
        killed.rows[0].max_events = 3;
        killed.rows[1].state = State::Exited;
        killed.rows[1].at_exit = 4096;
        killed.rows[1].most_refused = Some(Refusals { first: 4096, time: 1_250, largest: 70_000 });
        golden("account.json", &document(&killed));
    }

    #[test]
    fn a_document_steers_no_terminal_and_reads_back_as_it_was() {
        let mut hostile = account(vec![row("/", 0, 1)]);
        hostile.command = vec!["a/b\x1b\x7f\u{9b}\u{202e}\u{e0041}\u{1f600}".to_owned()];
        let text = document(&hostile);
        assert!(text.chars().all(|letter| letter == '\n' || is_plain(letter)), "{text:?}");
        assert!(text.contains("\u{1f600}"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["command"][0], *hostile.command[0]);
    }
}

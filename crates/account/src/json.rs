//! The account as a JSON document.

use serde::{Serialize, Serializer};

use crate::account::{Account, Row, State};
use ledgerline_terminal::output::plain_json;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    unit: &'a str,
    command: &'a [String],
    exit_code: u8,
    signal: Option<String>,
    wall_seconds: f64,
    mode: &'a str,
    ledger_bytes: u64,
    max_resident: Option<u64>,
    heap_peak: Option<u64>,
    mistakes: Option<Mistakes>,
    not_accounted: Vec<NotAccounted<'a>>,
    damaged: bool,
    container: Option<Container<'a>>,
    groups: Vec<Group<'a>>,
}

/// What the run knew of its container.
#[derive(Serialize)]
struct Container<'a> {
    limit: Limit,
    source: Option<&'a str>,
    kernel: Option<u64>,
    untracked: u64,
    pressure: u64,
    watched: &'a [String],
}

/// Processes of one program that were not accounted.
#[derive(Serialize)]
struct NotAccounted<'a> {
    program: Option<&'a str>,
    reason: &'static str,
    processes: u64,
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
    pid: Option<u32>,
    current: Option<u64>,
    peak: Option<u64>,
    charges: Option<u64>,
    uncharges: Option<u64>,
    refused: Option<u64>,
    refused_heap: Option<u64>,
    max: Option<Limit>,
    max_heap: Option<Limit>,
    high: Option<Limit>,
    max_events: Option<u64>,
    high_events: Option<u64>,
    at_exit: Option<u64>,
    heap: Option<u64>,
    mapped: Option<u64>,
    mapped_shared: Option<u64>,
    mapped_file: Option<u64>,
    mapped_forgotten: Option<u64>,
    first_refused: Option<First>,
    largest_refused: Option<u64>,
    folded: bool,
    processes: Option<u64>,
    spared: Option<u64>,
    resident: Option<u64>,
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
        schema: "ledgerline/account.v1",
        unit: &account.unit,
        command: &account.command,
        exit_code: account.status.code(),
        signal: account.status.signal(),
        // Milliseconds are as much as starting a process lets one mean.
        wall_seconds: (account.wall.as_secs_f64() * 1000.0).round() / 1000.0,
        mode: &account.mode,
        ledger_bytes: account.ledger_bytes,
        max_resident: account.max_resident,
        heap_peak: account.heap_peak,
        mistakes: mistakes(account),
        not_accounted: not_accounted(account),
        damaged: account.damaged,
        container: account.container.as_ref().map(|container| Container {
            limit: Limit(container.limit.as_ref().map(|(bytes, _)| *bytes)),
            source: container.limit.as_ref().map(|(_, source)| &**source),
            kernel: container.kernel,
            untracked: container.untracked,
            pressure: container.pressure,
            watched: &container.watched,
        }),
        groups: rows(account),
    };
    pretty(&document)
}

fn not_accounted(account: &Account) -> Vec<NotAccounted<'_>> {
    let told = account.not_accounted.iter().map(|one| NotAccounted {
        program: one.program.as_deref(),
        reason: one.why.name(),
        processes: one.processes,
    });
    told.collect()
}

fn mistakes(account: &Account) -> Option<Mistakes> {
    account.mistakes.map(|of| Mistakes { underflows: of.underflows, strays: of.strays })
}

fn rows(account: &Account) -> Vec<Group<'_>> {
    account.rows.iter().map(|row| group(account, row)).collect()
}

fn group<'a>(account: &'a Account, row: &'a Row) -> Group<'a> {
    // What a damaged row says is no fact.
    let sound = row.state != State::Damaged;
    let fact = |number: u64| sound.then_some(number);
    Group {
        path: &row.path,
        state: match row.state {
            State::Running => "running",
            State::Live => "live",
            State::Exited => "exited",
            State::Damaged => "damaged",
        },
        pid: sound.then_some(row.pid),
        current: fact(row.current),
        peak: fact(row.peak),
        charges: fact(row.charges),
        uncharges: fact(row.uncharges),
        refused: fact(row.refused),
        refused_heap: fact(row.refused_heap),
        max: sound.then_some(Limit(row.max)),
        max_heap: sound.then_some(Limit(row.max_heap)),
        high: sound.then_some(Limit(row.high)),
        max_events: fact(row.max_events),
        high_events: fact(row.high_events),
        at_exit: fact(row.at_exit),
        heap: fact(row.heap()),
        mapped: fact(row.mapped.private),
        mapped_shared: fact(row.mapped.shared),
        mapped_file: fact(row.mapped.file),
        mapped_forgotten: fact(row.forgotten),
        first_refused: row.most_refused.map(|refused| First {
            size: refused.first,
            seconds: account.since_start(refused.time),
        }),
        largest_refused: row.most_refused.map(|refused| refused.largest),
        folded: row.folded,
        processes: fact(row.processes),
        spared: fact(row.spared),
        resident: row.resident,
    }
}

/// The groups alone, of a ledger whose program goes on.
pub fn groups(account: &Account) -> String {
    #[derive(Serialize)]
    struct Groups<'a> {
        schema: &'static str,
        unit: &'a str,
        ledger_bytes: u64,
        mistakes: Option<Mistakes>,
        not_accounted: Vec<NotAccounted<'a>>,
        damaged: bool,
        groups: Vec<Group<'a>>,
    }
    pretty(&Groups {
        schema: "ledgerline/groups.v1",
        unit: &account.unit,
        ledger_bytes: account.ledger_bytes,
        mistakes: mistakes(account),
        not_accounted: not_accounted(account),
        damaged: account.damaged,
        groups: rows(account),
    })
}

/// A document as text, with a newline at its end. Letters that would steer a terminal are escaped, also those that JSON
/// need not escape.
pub fn pretty(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document)
        .expect("strings, numbers and lists of them always make a document");
    plain_json(&text) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use crate::account::Refusals;
    use crate::account::tests::{account, contained, golden, row};
    use ledgerline_terminal::output::is_plain;

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
    fn a_document_of_a_container_is_as_it_was() {
        let rows = vec![row("/", 5 << 20, 64 << 20), row("/(untracked)", 5 << 20, 9 << 20)];
        golden("container.json", &document(&contained(rows)));
        let mut unlimited = account(Vec::new());
        let (watched, source) = (Vec::new(), None);
        let container = crate::account::Container {
            limit: source,
            kernel: None,
            untracked: 0,
            pressure: 0,
            watched,
        };
        unlimited.container = Some(container);
        let read: serde_json::Value = serde_json::from_str(&document(&unlimited)).unwrap();
        assert_eq!(read["container"]["limit"], "max");
    }

    #[test]
    fn no_number_of_a_damaged_row_is_a_fact() {
        let mut damaged = account(vec![row("/", 0, 1), row("/job.1", 0, 1)]);
        damaged.rows[1].state = State::Damaged;
        (damaged.damaged, damaged.mistakes) = (true, None);
        let read: serde_json::Value = serde_json::from_str(&document(&damaged)).unwrap();
        assert_eq!((&read["damaged"], &read["mistakes"]), (&true.into(), &serde_json::Value::Null));
        assert_eq!(read["groups"][0]["peak"], 1);
        let group = read["groups"][1].as_object().unwrap();
        let facts: Vec<_> = group.iter().filter(|(_, value)| !value.is_null()).collect();
        let names: Vec<_> = facts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["folded", "path", "state"]);
        assert_eq!(group["state"], "damaged");
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

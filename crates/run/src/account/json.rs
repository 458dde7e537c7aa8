//! The account as a JSON document.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::account::model::{Account, Refusals, Row, State, limit};
use ledgerline_protocol::Count;
use ledgerline_view::terminal::output::plain_json;

/// The whole account, or the groups alone.
struct Document<'a> {
    account: &'a Account,
    is_whole: bool,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Document { account, is_whole } = *self;
        let mut to = serializer.serialize_map(None)?;
        let schema = if is_whole { "ledgerline/account.v1" } else { "ledgerline/groups.v1" };
        to.serialize_entry("schema", schema)?;
        to.serialize_entry("unit", &account.unit)?;
        if is_whole {
            to.serialize_entry("command", &account.command)?;
            to.serialize_entry("exit_code", &account.status.code())?;
            to.serialize_entry("signal", &account.status.signal())?;
            // More digits than milliseconds are noise from starting a process.
            let seconds = (account.wall.as_secs_f64() * 1000.0).round() / 1000.0;
            to.serialize_entry("wall_seconds", &seconds)?;
            to.serialize_entry("mode", &account.mode)?;
        }
        to.serialize_entry("ledger_bytes", &account.ledger_bytes)?;
        if is_whole {
            to.serialize_entry("max_resident", &account.max_resident)?;
            to.serialize_entry("heap_peak", &account.heap_peak)?;
            let count = if account.resident.is_some() { Count::Resident } else { Count::Mapped };
            to.serialize_entry("count", count.name())?;
            to.serialize_entry(
                "resident_peak",
                &account.resident.as_ref().map(|resident| resident.peak),
            )?;
        }
        to.serialize_entry("mistakes", &account.mistakes)?;
        to.serialize_entry("not_accounted", &account.not_accounted)?;
        to.serialize_entry("damaged", &account.damaged)?;
        if is_whole {
            to.serialize_entry("container", &account.container)?;
        }
        let groups: Vec<Group<'_>> =
            account.rows.iter().map(|row| Group { account, row }).collect();
        to.serialize_entry("groups", &groups)?;
        to.end()
    }
}

struct Group<'a> {
    account: &'a Account,
    row: &'a Row,
}

/// The first request of a row that was refused.
#[derive(Serialize)]
struct First {
    size: u64,
    seconds: Option<f64>,
    /// The units in use below the limit at that time.
    in_use: Option<u64>,
}

/// The limit of a row.
#[derive(Serialize)]
struct Limit(#[serde(serialize_with = "limit")] Option<u64>);

impl Group<'_> {
    /// Returns what was in use below the limit, as the limit counts.
    fn in_use(&self, refused: Refusals) -> Option<u64> {
        let of_heap = self.row.counted.refused_heap > 0;
        let resident = self.account.resident.as_ref().filter(|_| !of_heap);
        let usage = resident.map_or(Some(refused.usage), |resident| resident.at(refused.time));
        usage.filter(|&usage| usage > 0)
    }
}

impl Serialize for Group<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (row, counted) = (self.row, &self.row.counted);
        let mut to = serializer.serialize_map(None)?;
        // The numbers of a damaged row are not facts.
        let sound = row.state != State::Damaged;
        let fact = |number: u64| sound.then_some(number);
        let limit = |units| sound.then_some(Limit(units));
        to.serialize_entry("path", &row.path)?;
        to.serialize_entry("name", &row.called)?;
        to.serialize_entry(
            "program",
            &Some(&row.program).filter(|name| sound && !name.is_empty()),
        )?;
        to.serialize_entry("state", &row.state)?;
        to.serialize_entry("pid", &fact(row.pid.into()))?;
        let origin = counted.origin;
        let known = |number: u64| fact(number).filter(|&number| number != 0);
        to.serialize_entry("parent", &known(origin.parent))?;
        to.serialize_entry("executed", &sound.then_some(origin.executed))?;
        to.serialize_entry("current", &fact(row.current))?;
        to.serialize_entry("peak", &fact(row.peak))?;
        to.serialize_entry("charges", &fact(row.charges))?;
        to.serialize_entry("uncharges", &fact(row.uncharges))?;
        to.serialize_entry("refused", &fact(counted.refused))?;
        to.serialize_entry("refused_heap", &fact(counted.refused_heap))?;
        to.serialize_entry("max", &limit(row.max))?;
        to.serialize_entry("max_heap", &limit(counted.max_heap))?;
        to.serialize_entry("high", &limit(row.high))?;
        to.serialize_entry("max_events", &fact(row.max_events))?;
        to.serialize_entry("high_events", &fact(row.high_events))?;
        to.serialize_entry("at_exit", &fact(row.at_exit))?;
        to.serialize_entry("heap", &fact(row.heap()))?;
        to.serialize_entry("mapped", &fact(counted.mapped.private))?;
        to.serialize_entry("mapped_shared", &fact(counted.mapped.shared))?;
        to.serialize_entry("mapped_file", &fact(counted.mapped.file))?;
        to.serialize_entry("mapped_forgotten", &fact(counted.forgotten))?;
        let first = counted.most_refused.map(|refused| First {
            size: refused.first,
            seconds: self.account.since_start(refused.time),
            in_use: self.in_use(refused),
        });
        to.serialize_entry("first_refused", &first)?;
        let largest = counted.most_refused.map(|refused| refused.largest);
        to.serialize_entry("largest_refused", &largest)?;
        to.serialize_entry("folded", &counted.folded)?;
        to.serialize_entry("processes", &fact(counted.processes))?;
        to.serialize_entry("spared", &fact(counted.spared))?;
        to.serialize_entry("resident", &row.resident)?;
        to.end()
    }
}

/// Returns the whole document, with a newline at its end.
pub fn document(account: &Account) -> String {
    pretty(&Document { account, is_whole: true })
}

/// Returns the groups alone, of a ledger whose program is still running.
pub fn groups(account: &Account) -> String {
    pretty(&Document { account, is_whole: false })
}

/// Returns a document as text, with a newline at its end. Characters that could control a terminal are escaped, even if
/// JSON does not require that.
pub fn pretty(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document)
        .expect("strings, numbers and lists of them always make a document");
    plain_json(&text) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Status;
    use crate::account::model::tests::{account, contained, golden, row};
    use ledgerline_view::terminal::output::is_plain;

    #[test]
    fn a_document_is_as_it_was() {
        let mut killed = account(vec![
            row("/", 5 << 20, 64 << 20),
            row("/python3.4711/worker \"1\"", 0, 70_000),
        ]);
        killed.status = Status::Killed(libc::SIGSEGV);
        killed.rows[0].max = Some(64 << 20);
        killed.rows[0].counted.refused = 3;
        killed.rows[0].max_events = 3;
        killed.rows[1].state = State::Exited;
        killed.rows[1].at_exit = 4096;
        killed.rows[1].counted.most_refused =
            Some(Refusals { first: 4096, time: 1_250, largest: 70_000, usage: 66_000_000 });
        golden("account.json", &document(&killed));
    }

    #[test]
    fn a_document_of_a_container_is_as_it_was() {
        let rows = vec![row("/", 5 << 20, 64 << 20), row("/(untracked)", 5 << 20, 9 << 20)];
        golden("container.json", &document(&contained(rows)));
        let mut unlimited = account(Vec::new());
        let container = crate::account::model::Container {
            limit: None,
            source: None,
            kernel: None,
            untracked: 0,
            pressure: 0,
            watched: Vec::new(),
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
        assert_eq!(names, ["folded", "name", "path", "state"]);
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

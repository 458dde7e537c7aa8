//! `show --watch`: the changes since the last look, a line for each group and file.

use super::files;
use ledgerline::GroupId;
use ledgerline_view::terminal::calendar;
use ledgerline_view::terminal::output::print;
use ledgerline_view::watch::{Look, Row, Source, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The observed files.
const NAMES: [&str; 7] = [
    "memory.current",
    "memory.peak",
    "memory.max",
    "memory.high",
    "memory.low",
    "memory.min",
    "memory.events.local",
];

/// The subject of the watch.
pub(super) struct Watched<'a> {
    pub(super) path: &'a Path,
    /// The process whose end ends the watch; otherwise it ends with the file.
    pub(super) pid: Option<u32>,
    /// The group; those below it are watched, too.
    pub(super) group: &'a str,
    /// The files; none means all.
    pub(super) names: &'a [String],
    pub(super) every: Duration,
    pub(super) json: bool,
}

/// A number in a file: the file, the name in it if it has several, and the number; `None` is no limit.
type Fact = (&'static str, Option<&'static str>, Option<u64>);

/// The state of a group that is kept until the next look.
struct Before {
    path: String,
    facts: Vec<Fact>,
}

/// Prints until the program ends, or until the reader leaves.
pub(super) fn run(watched: &Watched<'_>) -> Result<(), String> {
    for name in watched.names {
        files::check(name, &files::NAMES)?;
        if !NAMES.contains(&&**name) {
            return Err(format!("{name} is not watched; --watch looks at {}", NAMES.join(", ")));
        }
    }
    // Opened before the ledger, so that the end of this very process is noticed.
    let program = watched.pid.map(program).transpose()?;
    let source = Source::open(watched.path)?;
    let look = source.look();
    if !look.rows.iter().any(|row| is_below(&row.path, watched.group)) {
        return Err(format!("there is no group {:?}", watched.group));
    }
    let mut before = BTreeMap::new();
    changes(watched, &look, &mut before);
    loop {
        let ended = ended(watched, program.as_ref())?;
        let look = source.look();
        let text = changes(watched, &look, &mut before);
        let read = print(text, "cannot write")?;
        if ended || !read {
            return Ok(());
        }
    }
}

fn program(pid: u32) -> Result<OwnedFd, String> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or("there is no process 0")?;
    pidfd_open(pid, PidfdFlags::empty())
        .map_err(|error| format!("process {} cannot be watched: {error}", pid.as_raw_nonzero()))
}

/// Waits for the next look. Returns whether the program has ended, or the file is gone.
fn ended(watched: &Watched<'_>, program: Option<&OwnedFd>) -> Result<bool, String> {
    let Some(program) = program else {
        std::thread::sleep(watched.every);
        return Ok(watched.path.metadata().map_or(true, |file| file.nlink() == 0));
    };
    let every = Timespec {
        tv_sec: watched.every.as_secs().cast_signed(),
        tv_nsec: watched.every.subsec_nanos().into(),
    };
    let mut events = [PollFd::new(program, PollFlags::IN)];
    match poll(&mut events, Some(&every)) {
        Ok(told) => Ok(told > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(format!("waiting for the program failed: {error}")),
    }
}

fn is_below(path: &str, group: &str) -> bool {
    let top = group.trim_matches('/');
    let rest = path.trim_start_matches('/').strip_prefix(top);
    top.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the lines for the changes.
fn changes(watched: &Watched<'_>, look: &Look, before: &mut BTreeMap<u64, Before>) -> String {
    let mut text = String::new();
    let mut there = HashSet::new();
    let line = Lines { time: look.at, json: watched.json };
    for row in look.rows.iter().filter(|row| is_below(&row.path, watched.group)) {
        // The numbers of a damaged row are meaningless.
        if row.state == State::Damaged {
            continue;
        }
        there.insert(key(row.id));
        let facts = facts(row, watched.names);
        let was = before.entry(key(row.id)).or_insert_with(|| {
            line.event(&mut text, &row.path, "appeared");
            Before { path: row.path.clone(), facts: at_first(&facts) }
        });
        for (was, now) in was.facts.iter().zip(&facts).filter(|(was, now)| was != now) {
            line.fact(&mut text, &row.path, now, was.2);
        }
        was.facts = facts;
    }
    before.retain(|key, was| {
        let stays = there.contains(key);
        if !stays {
            line.event(&mut text, &was.path, "gone");
        }
        stays
    });
    text
}

fn key(id: GroupId) -> u64 {
    u64::from(id.index()) << 32 | u64::from(id.generation())
}

fn facts(row: &Row, names: &[String]) -> Vec<Fact> {
    let number = |name, number| (name, None, Some(number));
    let all: [Fact; 8] = [
        number("memory.current", row.current),
        number("memory.peak", row.peak),
        ("memory.max", None, row.max),
        ("memory.high", None, row.high),
        number("memory.low", row.low),
        number("memory.min", row.min),
        ("memory.events.local", Some("high"), Some(row.counts.high_events)),
        ("memory.events.local", Some("max"), Some(row.counts.max_events)),
    ];
    let wanted = |fact: &Fact| names.is_empty() || names.iter().any(|name| name == fact.0);
    all.into_iter().filter(wanted).collect()
}

/// Returns the initial numbers of a group.
fn at_first(facts: &[Fact]) -> Vec<Fact> {
    let first = |&(file, key, _): &Fact| {
        let unlimited = ["memory.max", "memory.high"].contains(&file);
        (file, key, if unlimited { None } else { Some(0) })
    };
    facts.iter().map(first).collect()
}

/// The format of lines.
struct Lines {
    time: SystemTime,
    json: bool,
}

impl Lines {
    fn event(&self, text: &mut String, path: &str, event: &str) {
        if self.json {
            self.document(text, json!({ "group": path, "event": event }));
        } else {
            *text += &format!("{} {path} {event}\n", utc(self.time));
        }
    }

    fn fact(&self, text: &mut String, path: &str, &(file, key, now): &Fact, was: Option<u64>) {
        if self.json {
            let number = |number: Option<u64>| number.map_or(json!("max"), |units| json!(units));
            let (was, is) = (number(was), number(now));
            self.document(
                text,
                json!({ "group": path, "file": file, "key": key, "was": was, "is": is }),
            );
        } else {
            let key = key.map_or_else(String::new, |key| format!(" {key}"));
            let now = now.map_or_else(|| "max".to_owned(), |units| units.to_string());
            *text += &format!("{} {path} {file}{key} {now}\n", utc(self.time));
        }
    }

    fn document(&self, text: &mut String, mut line: serde_json::Value) {
        line["schema"] = "ledgerline/group-change.v1".into();
        line["time"] = json!(since_epoch(self.time).as_millis() as f64 / 1000.0);
        *text += &format!("{line}\n");
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// Returns a time like `2026-11-23T01:02:03.456Z`.
fn utc(time: SystemTime) -> String {
    let (date, of_day) = calendar::utc(time);
    format!("{date}T{of_day}.{:03}Z", since_epoch(time).subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_its_date_in_utc() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (1_795_392_123, "2026-11-23T00:02:03.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }

    #[test]
    fn a_group_is_below_itself_and_those_above() {
        for (path, group, below) in [
            ("/acme/q1", "/", true),
            ("/", "/", true),
            ("/acme", "acme/", true),
            ("/acme/q1", "/acme", true),
            ("/acme2", "/acme", false),
            ("/", "/acme", false),
        ] {
            assert_eq!(is_below(path, group), below, "{path} below {group}");
        }
    }
}

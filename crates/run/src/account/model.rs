//! The account of a program that has ended: owned data, from which the printed
//! tree and the JSON document are made.

mod choice;
mod container;
mod resident;

use std::collections::BTreeMap;
use std::time::Duration;

use ledgerline::container::UNTRACKED;
use ledgerline::{GroupId, GroupSnapshot, GroupState, Ledger};
use ledgerline_protocol::blind::Blind;
use ledgerline_protocol::{Identity, program};
use ledgerline_view::watch::counted::{self, Counted, Rules};

use crate::account::Status;
pub use container::Container;
pub(crate) use container::limit;
pub use ledgerline_view::watch::counted::{Mapped, Origin, Refusals};
pub use ledgerline_view::watch::{Asked, Seen};
pub use resident::Resident;
use serde::{Serialize, Serializer};

/// The shares of memory, and the program's exit status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The program's exit status.
    pub status: Status,
    /// The elapsed time.
    pub wall: Duration,
    /// How the ledger's cells were updated: `rseq` or `fallback`.
    pub mode: String,
    /// The memory of the ledger itself.
    pub ledger_bytes: u64,
    /// The start of the program, in milliseconds of `CLOCK_MONOTONIC`; `None` for a program that this command did not
    /// start.
    pub started: Option<u64>,
    /// The largest resident size that the kernel saw in one process; `None` while the program is running.
    pub max_resident: Option<u64>,
    /// The peak of blocks in all processes together; `None` if blocks have no limit of their own.
    pub heap_peak: Option<u64>,
    /// `None` if they make no sense, because a program overwrote them.
    pub mistakes: Option<Mistakes>,
    /// The processes that were not accounted.
    pub not_accounted: Vec<NotAccounted>,
    /// Whether a program is known to have overwritten the ledger.
    pub damaged: bool,
    /// The container's state at the end of the run, if the run followed it.
    pub container: Option<Container>,
    /// The resident memory of the run, if its limit counts that.
    pub resident: Option<Resident>,
    /// The unit of the ledger: `bytes`.
    pub unit: String,
    /// The root first, then depth-first.
    pub rows: Vec<Row>,
}

/// Processes of one program that were not accounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotAccounted {
    /// `None` for processes that could not report their program.
    pub program: Option<String>,
    /// The reason.
    #[serde(rename = "reason", serialize_with = "name")]
    pub why: Blind,
    /// The number of such processes.
    pub processes: u64,
}

fn name<S: Serializer>(why: &Blind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(why.name())
}

/// Uncharges that matched no charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mistakes {
    /// Uncharges of more than the group held.
    pub underflows: u64,
    /// Uncharges of a group that does not exist.
    pub strays: u64,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The group's path; `/` is the root.
    pub path: String,
    /// The last part of the path.
    pub name: String,
    /// Levels below the root.
    pub depth: usize,
    /// Charged now.
    pub current: u64,
    /// The peak of `current`.
    pub peak: u64,
    /// All charges so far, of the row and those below it.
    pub charges: u64,
    /// All uncharges so far, of the row and those below it.
    pub uncharges: u64,
    /// Limits; `None` is no limit.
    pub max: Option<u64>,
    /// The soft limit.
    pub high: Option<u64>,
    /// Charges that the row's own limit refused, or that were forced over it.
    pub max_events: u64,
    /// Charges that ended above the row's own high.
    pub high_events: u64,
    /// The units that the group held when its process ended, if that ended before the program did.
    pub at_exit: u64,
    /// The state of the row.
    pub state: State,
    /// The process of the row; 0 for the root.
    pub pid: u32,
    /// The owner of a process's row, which connects rows of one process; 0 for other rows.
    pub owner: u32,
    /// The name of the process in `ps`: its title, or the name that it gave itself, or its program.
    pub called: String,
    /// The program; empty for rows that are not a process's.
    pub program: String,
    /// The run's counts of it.
    pub counted: Counted,
    /// The peak of resident bytes that the kernel saw in the row's process; for a running process, the present size.
    /// `None` if it is not known, and if the process has executed another program, whose row has it.
    pub resident: Option<u64>,
}

impl Row {
    fn of(group: &GroupSnapshot, counted: Counted, processes: &Processes<'_>) -> Row {
        let is_process = group.depth == 1 && (group.owner != 0 || counted.processes > 0);
        // Another program, or another process, may have that number by now.
        let goes_on = group.owner != 0
            && is_process
            && group.state == GroupState::Live
            && !counted.origin.executed;
        let asked = Asked { owner: group.owner, started: counted.origin.started };
        let program = if is_process { program(&group.name) } else { "" };
        let is_one = is_process && group.owner != 0;
        let seen = is_one.then(|| (processes.seen)(asked, program, goes_on)).flatten();
        let seen = seen.unwrap_or_default();
        let live = seen.resident.filter(|_| goes_on);
        let resident = Some(counted.resident).filter(|&bytes| bytes > 0).or(live);
        let called = match (&seen.called, is_process) {
            (Some(called), _) => called,
            (None, true) => program,
            (None, false) => &group.name,
        };
        Row {
            path: group.path.clone(),
            name: group.name.clone(),
            owner: if is_process { group.owner } else { 0 },
            called: called.to_owned(),
            program: program.to_owned(),
            depth: group.depth as usize,
            current: group.current,
            peak: group.peak.value,
            charges: group.charges,
            uncharges: group.uncharges,
            max: counted
                .resident_max
                .or(group.max.get().map(|max| max.saturating_add(counted.reserve))),
            high: group.high.get(),
            max_events: group.max_events,
            high_events: group.high_events,
            at_exit: group.at_exit,
            state: match group.state {
                GroupState::Live if group.owner != 0 && (processes.running)(group.owner) => {
                    State::Running
                }
                GroupState::Live if counted.processes > 0 => State::Exited,
                GroupState::Exited => State::Exited,
                _ => State::Live,
            },
            pid: Identity::from_owner(group.owner).pid(),
            counted,
            resident,
        }
    }

    /// Returns a row that a program overwrote: none of its numbers are facts.
    fn damaged(group: &GroupSnapshot) -> Row {
        Row {
            path: group.path.clone(),
            name: group.name.clone(),
            called: group.name.clone(),
            depth: group.depth as usize,
            state: State::Damaged,
            ..Row::default()
        }
    }

    /// Returns the id of its process, if the row is a process's own and not a part of one.
    pub fn pid_if_process(&self) -> u32 {
        if self.depth == 1 { self.pid } else { 0 }
    }

    /// Returns the bytes of its blocks.
    pub fn heap(&self) -> u64 {
        self.current.max(self.at_exit).saturating_sub(self.counted.mapped.private)
    }
}

/// The state of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The row of a process that was still running when the program had ended.
    Running,
    /// The row of the program itself, or the root.
    #[default]
    Live,
    /// The row of a process that ended before the program did.
    Exited,
    /// A program overwrote the row; its numbers are zero here, and are not shown.
    Damaged,
}

/// Facts about processes that are not in the ledger.
pub struct Processes<'a> {
    /// Returns whether a process is still running.
    pub running: &'a dyn Fn(u32) -> bool,
    /// Looks at a process that ran a program, and is still running or not; returns the last look at an ended one.
    pub seen: &'a dyn Fn(Asked, &str, bool) -> Option<Seen>,
    /// Whether the ledger is a run's, in which each row is a process's.
    pub of_run: bool,
}

/// Returns the processes that were not accounted, by program and reason, from the rows that make sense; and whether the
/// ledger counts more of them than a run can have.
fn not_accounted(
    ledger: &Ledger,
    rows: &[(&GroupSnapshot, Counted)],
    is_damaged: impl Fn(&GroupSnapshot, &Counted) -> bool,
) -> (Vec<NotAccounted>, bool) {
    let mut found: BTreeMap<(Option<&str>, Blind), u64> = BTreeMap::new();
    for (group, counted) in rows.iter().filter(|(group, counted)| !is_damaged(group, counted)) {
        if let Some(why) = counted.blind {
            let name = Some(program(&group.name));
            *found.entry((name, why)).or_default() += counted.processes.max(1);
        }
    }
    // The counts of the root and of the ledger's header are used only if the root makes sense.
    let root = rows.first().filter(|(group, counted)| !is_damaged(group, counted));
    let of_header = root.map_or([0; 2], |(_, root)| [ledger.turned_away(), root.left_out]);
    let is_absurd = of_header.into_iter().any(|number| number > counted::MOST_PROCESSES);
    for (why, processes) in [Blind::AddressSpace, Blind::NoRow].into_iter().zip(of_header) {
        if (1..=counted::MOST_PROCESSES).contains(&processes) {
            found.insert((None, why), processes);
        }
    }
    let told = |((program, why), processes): ((Option<&str>, Blind), u64)| NotAccounted {
        program: program.map(str::to_owned),
        why,
        processes,
    };
    (found.into_iter().map(told).collect(), is_absurd)
}

/// Returns the counts of a row.
fn count(ledger: &Ledger, id: GroupId) -> Counted {
    let lines = ledger.group(id).stat().lines;
    let rules = Rules::new(lines.iter().map(|line| line.name.as_str()));
    rules.count(|line| lines[line].own, |line| lines[line].subtree)
}

/// Returns the counts of a group.
fn counted_of(ledger: &Ledger, group: &GroupSnapshot) -> Counted {
    let counted = count(ledger, group.id);
    if group.depth == 0 { counted.of_root() } else { counted }
}

/// Returns whether a group of a ledger visibly makes no sense.
pub fn is_damaged(ledger: &Ledger, group: &GroupSnapshot) -> bool {
    counted::is_damaged(group, &count(ledger, group.id), false)
}

impl Account {
    /// Adds the ledger's data to the supervisor's: rows, processes that were not accounted, and whether all that makes
    /// sense.
    pub fn with_rows(self, ledger: &Ledger, processes: &Processes<'_>) -> Account {
        let snapshot = ledger.snapshot();
        let counted: Vec<(&GroupSnapshot, Counted)> =
            snapshot.groups.iter().map(|group| (group, counted_of(ledger, group))).collect();
        let is_damaged = |group: &GroupSnapshot, counted: &Counted| {
            counted::is_damaged(group, counted, processes.of_run)
        };
        let (not_accounted, is_absurd) = not_accounted(ledger, &counted, is_damaged);
        let mut rows: Vec<Row> = counted
            .into_iter()
            // A process that has charged nothing has no row of numbers.
            .filter(|(group, counted)| counted.blind.is_none() || group.charges > 0)
            .map(|(group, counted)| match is_damaged(group, &counted) {
                true => Row::damaged(group),
                false => Row::of(group, counted, processes),
            })
            .collect();
        let damaged =
            snapshot.damaged || is_absurd || rows.iter().any(|row| row.state == State::Damaged);
        // Mappings of ended processes are not the root's any more.
        let going_on = rows.iter().filter(|row| row.depth == 1 && row.state != State::Exited);
        let now = going_on.fold(Mapped::default(), |sum, row| Mapped {
            private: sum.private.saturating_add(row.counted.mapped.private),
            shared: sum.shared.saturating_add(row.counted.mapped.shared),
            file: sum.file.saturating_add(row.counted.mapped.file),
        });
        if let Some(root) = rows.first_mut().filter(|root| root.state != State::Damaged) {
            root.counted.mapped = now;
            if let Some(resident) = &self.resident {
                // The root's own limit is a mark that opens and closes it.
                (root.max, root.resident) = (resident.limit, Some(resident.peak));
                root.max_events = root.counted.refused.saturating_sub(root.counted.refused_heap);
            }
        }
        let make_sense = |count: &Mistakes| count.underflows.max(count.strays) <= counted::MOST;
        Account {
            mistakes: self.mistakes.filter(make_sense),
            heap_peak: self.heap_peak.filter(|&peak| peak <= counted::MOST),
            not_accounted,
            damaged,
            unit: snapshot.unit.to_owned(),
            rows,
            ..self
        }
    }

    /// Returns whether any process has charged anything.
    pub fn saw_any(&self) -> bool {
        self.rows.iter().any(|row| row.depth > 0 && row.name != UNTRACKED)
    }

    /// Returns the peak of the root. Bars show each row's peak as a share of it.
    pub fn root_peak(&self) -> u64 {
        self.rows.first().map_or(0, |root| root.peak)
    }

    /// Returns the seconds since the start of the program, if both times are known. Under a seccomp filter a refusal
    /// has the time zero.
    pub fn since_start(&self, time: u64) -> Option<f64> {
        self.started
            .filter(|_| time > 0)
            .map(|started| time.saturating_sub(started) as f64 / 1000.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    pub(crate) use crate::golden::same as golden;

    pub fn row(path: &str, current: u64, peak: u64) -> Row {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let name = *names.last().unwrap_or(&"/");
        let of_process = if names.len() == 1 { program(name) } else { "" };
        Row {
            path: path.to_owned(),
            name: name.to_owned(),
            called: if of_process.is_empty() { name } else { of_process }.to_owned(),
            program: of_process.to_owned(),
            owner: if of_process.is_empty() { 0 } else { 4711 },
            depth: names.len(),
            current,
            peak,
            charges: peak / 1000,
            uncharges: (peak - current) / 1000,
            pid: if names.is_empty() { 0 } else { 4711 },
            ..Row::default()
        }
    }

    pub fn account(rows: Vec<Row>) -> Account {
        Account {
            command: vec!["python3".to_owned(), "job.py".to_owned(), "it's big".to_owned()],
            status: Status::Exited(0),
            wall: Duration::from_millis(1234),
            mode: "rseq".to_owned(),
            ledger_bytes: 86_016,
            started: Some(1_000),
            max_resident: Some(93_323_264),
            heap_peak: None,
            mistakes: Some(Mistakes::default()),
            not_accounted: Vec::new(),
            damaged: false,
            container: None,
            resident: None,
            unit: "bytes".to_owned(),
            rows,
        }
    }

    /// Returns an account of a run that followed its container.
    pub fn contained(rows: Vec<Row>) -> Account {
        let container = Container {
            limit: Some(256 << 20),
            source: Some("memory.max of /sys/fs/cgroup/job".to_owned()),
            kernel: Some(5 << 20),
            untracked: 5 << 20,
            pressure: 2,
            watched: vec!["/sys/fs/cgroup/job/memory.pressure is watched".to_owned()],
        };
        Account { container: Some(container), ..account(rows) }
    }

    /// Returns the largest number in a document.
    fn largest(value: &serde_json::Value) -> u64 {
        match value {
            serde_json::Value::Number(number) => number.as_u64().unwrap_or(0),
            serde_json::Value::Array(list) => list.iter().map(largest).max().unwrap_or(0),
            serde_json::Value::Object(fields) => fields.values().map(largest).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// A program overwrites each word of the header, of the root and of a row.
    #[test]
    fn no_number_is_told_that_no_machine_counts_whichever_word_was_written_over() {
        use crate::account::render::Extent;
        use ledgerline_protocol::Item;
        use ledgerline_view::terminal::style::Style;
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        let ledger = Ledger::builder().capacity(64).items(&Item::NAMES).create_in(&file).unwrap();
        let row = ledger.create_for_process("sh.1", std::process::id()).unwrap();
        let blind = ledger.item(Item::Blind.name()).unwrap();
        row.add_stat(blind, Blind::Static as i64);
        drop(ledger);
        let processes = Processes { running: &|_| true, seen: &|_, _, _| None, of_run: true };
        let told = || {
            let opened = Ledger::open_in(&file).ok()?;
            let mistakes = opened.mistakes();
            let account = Account {
                mistakes: Some(Mistakes {
                    underflows: mistakes.underflows,
                    strays: mistakes.strays,
                }),
                ..Account::default()
            };
            let account = account.with_rows(&opened, &processes);
            let document = crate::account::json::groups(&account);
            let text = crate::account::render::text(&account, Extent::All, &Style::plain());
            Some((serde_json::from_str(&document).unwrap(), text))
        };
        let (before, text): (serde_json::Value, String) = told().unwrap();
        assert_eq!(before["not_accounted"][0]["processes"], 1, "{before:#}");
        assert!(text.contains("Not accounted: 1 process: sh"), "{text}");
        let mut opened = 0;
        // The rows begin behind the header's page.
        for at in (0..1024).chain(4096..4096 + 2 * 256).step_by(8) {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at).unwrap();
            file.write_all_at(&u64::MAX.to_ne_bytes(), at).unwrap();
            if let Some((document, text)) = told() {
                opened += 1;
                assert!(largest(&document) <= counted::MOST, "{at}: {document:#}");
                for absurd in ["18,446,744,073,709", "16.0E"] {
                    assert!(!text.contains(absurd), "{at}: {text}");
                }
            }
            file.write_all_at(&word, at).unwrap();
        }
        assert!(opened > 100, "{opened}");
    }

    #[test]
    fn a_time_that_nobody_noted_is_none() {
        let account = account(Vec::new());
        assert_eq!(account.since_start(1_250), Some(0.25));
        assert_eq!(account.since_start(0), None);
    }
}

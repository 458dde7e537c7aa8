//! The supervisor's search for processes that escaped the account of a run (`--strict`).
//!
//! Each accounted process names the programs that it executes and that will not be seen. It cannot intercept system
//! calls that a program makes by itself. So under `--strict` the supervisor looks at all processes below it:
//!
//! ```text a row has a reason why it is not accounted  it, and its descendants, are named already its memory map does
//! not have the library    it escaped its environment has another order           it escaped: the library in it used
//! other values ```
//!
//! A process that is executing another program looks for a moment like an escaped one. So it is named when it has
//! looked so for half a second; one that ends before is not found.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ledgerline::Ledger;
use ledgerline_protocol::blind::Blind;
use ledgerline_protocol::{DESCRIPTORS, FILTERS, Item, VOUCHED, is_of_order};

/// The interval between looks.
const EVERY: Duration = Duration::from_millis(100);
/// The number of consecutive looks in which a process must appear escaped.
const LOOKS: u32 = 5;

/// A process, from `/proc/PID/stat`.
struct Process {
    parent: u32,
    /// Its start time. Another process with that id has another time.
    start: u64,
    /// Whether it has ended, or is ending.
    gone: bool,
    name: String,
}

/// The search.
pub(super) struct Unseen {
    /// `NAME=value` of the run's whole order, without the suffix that vouches.
    order: Vec<Vec<u8>>,
    /// The name of the library's file.
    library: Vec<u8>,
    looked: Option<Instant>,
    /// The number of looks in which each appeared escaped, with its start.
    suspects: HashMap<u32, (u64, u32)>,
    named: HashSet<(u32, u64)>,
}

impl Unseen {
    /// Makes the search for a run with this order and this library.
    pub(super) fn new(order: impl Iterator<Item = Vec<u8>>, library: &Path) -> Unseen {
        let name = library.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        let order = order.map(|string| unvouched(&string).to_vec()).collect();
        Unseen {
            order,
            library: name,
            looked: None,
            suspects: HashMap::new(),
            named: HashSet::new(),
        }
    }

    /// Returns whether any was found.
    pub(super) fn any(&self) -> bool {
        !self.named.is_empty()
    }

    /// Looks if a look is due; calls `name` once for each escaped process.
    pub(super) fn look(&mut self, ledger: &Ledger, mut name: impl FnMut(&str, u32)) {
        if self.looked.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let processes = processes();
        let below: Vec<u32> = below(&processes, std::process::id());
        let suspects: Vec<u32> =
            below.into_iter().filter(|pid| !processes[pid].gone && self.escaped(*pid)).collect();
        if suspects.is_empty() {
            self.suspects.clear();
            return;
        }
        let blind = blind(ledger);
        let is_named = |pid: u32| {
            let parent = |pid: &u32| processes.get(pid).map(|process| process.parent);
            std::iter::successors(Some(pid), parent).take(64).any(|pid| blind.contains(&pid))
        };
        let mut now = HashMap::new();
        for pid in suspects.into_iter().filter(|&pid| !is_named(pid)) {
            let Process { start, name: program, .. } = &processes[&pid];
            let before = self.suspects.get(&pid).filter(|(since, _)| since == start);
            let looks = before.map_or(0, |&(_, looks)| looks) + 1;
            if looks == LOOKS && self.named.insert((pid, *start)) {
                name(program, pid);
            }
            now.insert(pid, (*start, looks));
        }
        self.suspects = now;
    }

    fn escaped(&self, pid: u32) -> bool {
        let Ok(map) = fs::read(format!("/proc/{pid}/maps")) else { return false };
        if map.is_empty() {
            return false;
        }
        if !map.windows(self.library.len()).any(|part| part == self.library) {
            return true;
        }
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|string| self.is_other(string))
    }

    /// Returns whether a string of an environment has another value than the run's. A program may overwrite its
    /// environment with a title, so a missing string proves nothing.
    fn is_other(&self, string: &[u8]) -> bool {
        let leads_to_own = |string: &[u8]| {
            let value = string.splitn(2, |&byte| byte == b'=').nth(1);
            value.is_some_and(|value| value.starts_with(DESCRIPTORS.as_bytes()))
        };
        is_of_order(string)
            && !leads_to_own(string)
            && !self.order.iter().any(|ours| ours == unvouched(string))
    }
}

/// Returns a string of the order without the suffix that vouches for a program.
fn unvouched(string: &[u8]) -> &[u8] {
    match string {
        [rest @ .., VOUCHED] if string.starts_with(FILTERS.to_bytes()) => rest,
        _ => string,
    }
}

/// Returns all processes that `/proc` shows.
fn processes() -> HashMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// Returns the fields of a line of `/proc/PID/stat`. The name, in parentheses, may hold anything.
fn stat(line: &[u8]) -> Option<Process> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')').filter(|&at| at > open)?;
    let name = String::from_utf8_lossy(&line[open + 1..close]).into_owned();
    let rest = std::str::from_utf8(&line[close + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first of these is the third of proc_pid_stat(5).
    let field = |number: usize| fields.get(number - 3).copied();
    let gone = matches!(field(3)?, "Z" | "X" | "x");
    Some(Process { parent: field(4)?.parse().ok()?, start: field(22)?.parse().ok()?, gone, name })
}

/// Returns the descendants of a process.
fn below(processes: &HashMap<u32, Process>, of: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (&pid, process) in processes {
        children.entry(process.parent).or_default().push(pid);
    }
    let (mut found, mut next) = (Vec::new(), vec![of]);
    while let Some(pid) = next.pop() {
        // A list that is read while processes come and go might have a cycle.
        let of_it = children.remove(&pid).unwrap_or_default();
        found.extend(&of_it);
        next.extend(of_it);
    }
    found
}

/// Returns the processes whose rows have a reason why they are not accounted.
fn blind(ledger: &Ledger) -> HashSet<u32> {
    let groups = ledger.snapshot().groups;
    let of_processes = groups.iter().filter(|group| group.depth == 1 && group.owner != 0);
    let is_blind = |group: &&ledgerline::GroupSnapshot| {
        let stat = ledger.group(group.id).stat();
        let why = stat.get(Item::Blind.name()).map_or(0, |line| line.own);
        Blind::from_number(why).is_some()
    };
    of_processes.filter(is_blind).map(|group| group.owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_process_is_read_whatever_its_name_is() {
        let rest = "S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
        for name in ["sh", ") Z 1 (", "a b"] {
            let read = stat(format!("12 ({name}) {rest}").as_bytes()).unwrap();
            assert_eq!((read.parent, read.start, read.gone), (7, 4711, false));
            assert_eq!(read.name, name);
        }
        assert!(stat(b"12 sh S 7").is_none() && stat(b"").is_none());
    }

    #[test]
    fn what_is_below_a_process_is_found_and_nothing_else() {
        let process = |parent| Process { parent, start: 0, gone: false, name: String::new() };
        let all = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 6)];
        let all = all.into_iter().map(|(pid, parent)| (pid, process(parent))).collect();
        let mut found = below(&all, 2);
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
        assert_eq!(below(&all, 6), [6], "no circle");
    }

    #[test]
    fn another_value_of_the_order_is_told_from_the_runs_and_from_what_others_say() {
        let order = [
            &b"LEDGERLINE_CPUS=2"[..],
            b"LEDGERLINE_FILTERS=0!",
            b"LEDGERLINE_LEDGER=/proc/7/fd/4",
        ];
        let unseen = Unseen::new(order.into_iter().map(<[u8]>::to_vec), Path::new("/x/lib.so"));
        for own in [
            "LEDGERLINE_CPUS=2",
            "LEDGERLINE_FILTERS=0",
            "LEDGERLINE_FILTERS=0!",
            "LEDGERLINE_LEDGER=/proc/self/fd/1000",
            "PATH=/bin",
            "LEDGERLINE_PRELOAD=/x",
        ] {
            assert!(!unseen.is_other(own.as_bytes()), "{own}");
        }
        for other in
            ["LEDGERLINE_CPUS=100000", "LEDGERLINE_FILTERS=1", "LEDGERLINE_HEAP=/etc/passwd"]
        {
            assert!(unseen.is_other(other.as_bytes()), "{other}");
        }
    }
}

//! The supervisor's search for processes that escaped the account of a run (`--strict`).
//!
//! Each accounted process names the programs that it executes and that will not be seen. It cannot intercept system
//! calls that a program makes by itself. So under `--strict` the supervisor looks at all processes below it:
//!
//! ```text
//! its row has a reason why it is not accounted    it and its descendants are named already
//! its memory map does not have the library        it escaped
//! its environment has another order               it escaped: the library in it used other values
//! ```
//!
//! A process that is executing another program looks for a moment like an escaped one. So it is named when it has
//! looked so for half a second; one that ends before is not found.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::descendants::{Process, below, processes};
use ledgerline::Ledger;
use ledgerline_protocol::blind::Blind;
use ledgerline_protocol::{DESCRIPTORS, FILTERS, Item, VOUCHED, is_of_order};

/// The interval between looks.
const EVERY: Duration = Duration::from_millis(100);
/// The number of consecutive looks in which a process must appear escaped.
const LOOKS: u32 = 5;

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

    /// Looks if a look is due; calls `name` once for each escaped process. Processes of the sessions `others` are not the
    /// run's.
    pub(super) fn look(
        &mut self,
        ledger: &Ledger,
        others: &[u32],
        mut name: impl FnMut(&str, u32),
    ) {
        if self.looked.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let processes = processes(others);
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

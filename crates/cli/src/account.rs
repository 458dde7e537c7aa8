//! The account of a program that has ended: owned data, from which the printed
//! tree and the JSON document are made.

use std::time::Duration;

use ledgerline::{GroupId, GroupState, Ledger};
use ledgerline_protocol::{FOLDED, Identity, MAPPED, REFUSED};

use crate::launch::Status;

/// Who held how much, and how the program ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    pub command: Vec<String>,
    pub status: Status,
    pub wall: Duration,
    /// How the ledger's cells were updated: `rseq` or `fallback`.
    pub mode: String,
    /// Memory that the ledger itself took.
    pub ledger_bytes: u64,
    /// When the program was started, in milliseconds of `CLOCK_MONOTONIC`; `None` of somebody else's.
    pub started: Option<u64>,
    /// The most memory that the kernel saw resident in one process; `None` while the program goes on.
    pub max_resident: Option<u64>,
    pub mistakes: Mistakes,
    /// Why nothing could be seen, where that was known before the start.
    pub unseen: Option<String>,
    pub unit: String,
    /// The root first, then depth-first.
    pub rows: Vec<Row>,
}

/// Uncharges that matched no charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    pub underflows: u64,
    pub strays: u64,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub path: String,
    pub name: String,
    pub depth: usize,
    pub current: u64,
    pub peak: u64,
    pub charges: u64,
    pub uncharges: u64,
    /// Charges of this row, and of those below it, that a limit refused, whose ever it was.
    pub refused: u64,
    /// Limits; `None` is no limit.
    pub max: Option<u64>,
    pub high: Option<u64>,
    /// Charges that the row's own limit refused, or that were forced over it.
    pub max_events: u64,
    pub high_events: u64,
    /// What the group held when its process ended, if that ended before the
    /// program did.
    pub at_exit: u64,
    pub state: State,
    /// The process of the row; 0 for the root.
    pub pid: u32,
    pub mapped: Mapped,
    pub most_refused: Option<Refusals>,
    /// Whether the process had more names than rows, and its own row has the rest.
    pub folded: bool,
}

/// What a row itself asked for and was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// Bytes of the first request.
    pub first: u64,
    /// When that was: milliseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Bytes of the largest request.
    pub largest: u64,
}

/// What processes mapped by themselves, by kind; of a process that ended, at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Private and writable: a part of `current`, or of `at_exit`.
    pub private: u64,
    pub shared: u64,
    pub file: u64,
}

/// What a group and those below it mapped, how many of their charges were refused, what the group itself was refused, and
/// whether it stands for names that have no row.
fn counted(ledger: &Ledger, id: GroupId) -> (Mapped, u64, Option<Refusals>, bool) {
    let stat = ledger.group(id).stat();
    let item = |name: &str| stat.get(name).map_or(0, |line| line.subtree.max(0) as u64);
    let [private, shared, file] = MAPPED.map(item);
    let own = |name: &str| stat.get(name).map_or(0, |line| line.own.max(0) as u64);
    let [first, time, largest] = REFUSED.map(own);
    let most_refused = (first > 0).then_some(Refusals { first, time, largest });
    (Mapped { private, shared, file }, item("refused"), most_refused, own(FOLDED) > 0)
}

impl Row {
    /// What its blocks take.
    pub fn heap(&self) -> u64 {
        self.current.max(self.at_exit).saturating_sub(self.mapped.private)
    }
}

/// What has become of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a process that still ran when the program had ended.
    Running,
    /// Of the program itself, or the root.
    Live,
    /// Of a process that ended before the program did.
    Exited,
}

/// What the snapshot does not know: how the program was run and how it ended.
pub struct Ending<'a> {
    pub command: Vec<String>,
    pub status: Status,
    pub wall: Duration,
    pub mode: String,
    pub ledger_bytes: u64,
    pub started: Option<u64>,
    pub max_resident: Option<u64>,
    pub mistakes: Mistakes,
    /// Whether a process still runs.
    pub running: &'a dyn Fn(u32) -> bool,
    pub unseen: Option<String>,
}

impl Account {
    /// Puts together what the ledger and the supervisor know.
    pub fn new(ledger: &Ledger, ending: Ending<'_>) -> Account {
        let snapshot = ledger.snapshot();
        let mut rows: Vec<Row> = snapshot
            .groups
            .iter()
            .map(|group| (group, counted(ledger, group.id)))
            .map(|(group, (mapped, refused, most_refused, folded))| Row {
                path: group.path.clone(),
                name: group.name.clone(),
                depth: group.depth as usize,
                current: group.current,
                peak: group.peak.value,
                charges: group.charges,
                uncharges: group.uncharges,
                refused,
                max: group.max.get(),
                high: group.high.get(),
                max_events: group.max_events,
                high_events: group.high_events,
                at_exit: group.at_exit,
                state: match group.state {
                    GroupState::Live if group.owner != 0 && (ending.running)(group.owner) => {
                        State::Running
                    }
                    GroupState::Live => State::Live,
                    GroupState::Exited => State::Exited,
                },
                pid: Identity::from_owner(group.owner).pid(),
                mapped,
                most_refused,
                folded,
            })
            .collect();
        // What ended processes had mapped is theirs, and not the root's any more.
        let processes = rows.iter().filter(|row| row.depth == 1 && row.state != State::Exited);
        let now = processes.fold(Mapped::default(), |sum, row| Mapped {
            private: sum.private + row.mapped.private,
            shared: sum.shared + row.mapped.shared,
            file: sum.file + row.mapped.file,
        });
        if let Some(root) = rows.first_mut() {
            root.mapped = now;
        }
        Account {
            command: ending.command,
            status: ending.status,
            wall: ending.wall,
            mode: ending.mode,
            ledger_bytes: ending.ledger_bytes,
            started: ending.started,
            max_resident: ending.max_resident,
            mistakes: ending.mistakes,
            unseen: ending.unseen,
            unit: snapshot.unit.to_owned(),
            rows,
        }
    }

    /// The peak of the root, of which every row's peak is a share.
    pub fn root_peak(&self) -> u64 {
        self.rows.first().map_or(0, |root| root.peak)
    }

    /// Seconds from the start of the program, where that is known.
    pub fn since_start(&self, time: u64) -> Option<f64> {
        self.started.map(|started| time.saturating_sub(started) as f64 / 1000.0)
    }

    /// For each row the index of its parent; the root is its own.
    pub fn parents(&self) -> Vec<usize> {
        // The rows on the way from the root to the one before.
        let mut way: Vec<usize> = Vec::new();
        self.rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                way.truncate(row.depth);
                let parent = way.last().copied().unwrap_or(index);
                way.push(index);
                parent
            })
            .collect()
    }

    /// The rows that say something new. The only row below a process (its one
    /// thread, say) is left out where it has the same numbers.
    pub fn distinct(&self) -> Vec<Row> {
        let same = |row: &Row, above: &Row| {
            (row.current, row.peak, row.charges, row.refused, row.at_exit)
                == (above.current, above.peak, above.charges, above.refused, above.at_exit)
        };
        let echoes = |index: usize| {
            let row = &self.rows[index];
            let is_last = self.rows.get(index + 1).is_none_or(|next| next.depth < row.depth);
            row.depth > 1
                && self.rows[index - 1].depth + 1 == row.depth
                && is_last
                && (row.max, row.high) == (None, None)
                && same(row, &self.rows[index - 1])
        };
        (0..self.rows.len())
            .filter(|&index| !echoes(index))
            .map(|index| self.rows[index].clone())
            .collect()
    }

    /// The rows to show where only `most` fit: those with the largest peaks, and
    /// the way from each to the root. They stand in the order of the tree, with
    /// the children of one parent sorted by peak.
    pub fn largest(&self, most: usize) -> Vec<usize> {
        let parents = self.parents();
        let mut by_peak: Vec<usize> = (0..self.rows.len()).collect();
        by_peak.sort_by_key(|&index| std::cmp::Reverse(self.rows[index].peak));

        let mut shown = vec![false; self.rows.len()];
        let mut room = most;
        for index in by_peak {
            let mut missing = Vec::new();
            let mut at = index;
            while !shown[at] && missing.len() <= room {
                missing.push(at);
                if parents[at] == at {
                    break;
                }
                at = parents[at];
            }
            if missing.len() > room {
                continue;
            }
            room -= missing.len();
            missing.into_iter().for_each(|index| shown[index] = true);
        }

        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.rows.len()];
        let mut pending = Vec::new();
        for (index, &parent) in parents.iter().enumerate().filter(|(index, _)| shown[*index]) {
            if parent == index { pending.push(index) } else { children[parent].push(index) }
        }
        let mut order = Vec::with_capacity(most.min(self.rows.len()));
        while let Some(index) = pending.pop() {
            order.push(index);
            // The last that is pushed is the first that is visited: the
            // largest, and of equals the one that came first.
            children[index].reverse();
            children[index].sort_by_key(|&child| self.rows[child].peak);
            pending.append(&mut children[index]);
        }
        order
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    pub use crate::golden::same as golden;

    pub fn row(path: &str, current: u64, peak: u64) -> Row {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        Row {
            path: path.to_owned(),
            name: names.last().unwrap_or(&"/").to_string(),
            depth: names.len(),
            current,
            peak,
            charges: peak / 1000,
            uncharges: (peak - current) / 1000,
            refused: 0,
            max: None,
            high: None,
            max_events: 0,
            high_events: 0,
            at_exit: 0,
            state: State::Live,
            pid: if names.is_empty() { 0 } else { 4711 },
            mapped: Mapped::default(),
            most_refused: None,
            folded: false,
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
            mistakes: Mistakes::default(),
            unseen: None,
            unit: "bytes".to_owned(),
            rows,
        }
    }

    fn paths(account: &Account, most: usize) -> Vec<&str> {
        account.largest(most).into_iter().map(|index| account.rows[index].path.as_str()).collect()
    }

    #[test]
    fn siblings_stand_by_peak_and_equals_as_they_came() {
        let account = account(vec![
            row("/", 0, 100),
            row("/a", 0, 10),
            row("/a/x", 0, 1),
            row("/a/y", 0, 9),
            row("/b", 0, 90),
            row("/c", 0, 10),
        ]);
        assert_eq!(paths(&account, 40), ["/", "/b", "/a", "/a/y", "/a/x", "/c"]);
        assert_eq!(account.parents(), [0, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn a_row_is_never_shown_without_its_parents() {
        // A child can have a larger peak than its parent where the parent's
        // was reset, and the way to it must be there all the same.
        let account = account(vec![
            row("/", 0, 100),
            row("/a", 0, 1),
            row("/a/x", 0, 95),
            row("/b", 0, 50),
            row("/c", 0, 40),
        ]);
        assert_eq!(paths(&account, 3), ["/", "/a", "/a/x"]);
        assert_eq!(paths(&account, 2), ["/", "/b"]);
        assert_eq!(paths(&account, 0), [""; 0]);
    }

    #[test]
    fn an_only_row_that_repeats_its_parent_is_left_out() {
        let account = account(vec![
            row("/", 0, 10),
            row("/a", 0, 10),
            row("/a/a", 0, 10),
            row("/b", 0, 10),
            row("/b/x", 0, 10),
            row("/b/y", 0, 10),
            row("/c", 0, 9000),
            row("/c/c", 0, 8000),
        ]);
        let rows = account.distinct();
        let paths: Vec<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        assert_eq!(paths, ["/", "/a", "/b", "/b/x", "/b/y", "/c", "/c/c"]);
    }

    #[test]
    fn a_deep_or_wide_tree_is_no_trouble() {
        let mut path = String::new();
        let mut rows = vec![row("/", 0, 1 << 20)];
        for depth in 0..10_000 {
            path.push_str("/d");
            rows.push(row(&path, 0, 1_000_000 - depth));
        }
        for index in 0..10_000 {
            rows.push(row(&format!("/w{index}"), 0, index));
        }
        assert_eq!(account(rows).largest(40).len(), 40);
    }
}

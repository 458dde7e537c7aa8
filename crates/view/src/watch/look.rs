//! One look at a ledger: all groups as owned data.

use crate::watch::Asked;
use ledgerline::GroupId;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The content of a ledger at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// The time of the look, by the wall clock.
    pub at: SystemTime,
    /// The time of the look, by `CLOCK_MONOTONIC`, for rates.
    pub clock: Duration,
    /// The unit of the ledger: `bytes`.
    pub unit: &'static str,
    /// Whether no transfer was under way (see [`ledgerline::Snapshot::steady`]).
    pub steady: bool,
    /// Whether a program visibly overwrote the ledger.
    pub damaged: bool,
    /// The root first, then depth-first: each group is followed by those below it.
    pub rows: Vec<Row>,
}

/// One group. All sizes are in the unit of the [`Look`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The group's number, which identifies it in the next look. The same number means the same group.
    pub id: GroupId,
    /// Its path, like a cgroup's; `/` is the root.
    pub path: String,
    /// The last part of the path; `/` for the root. With [`Titles`](super::Titles): the title of a process, and its number.
    pub name: String,
    /// Levels below the root.
    pub depth: u32,
    /// Its state. All numbers of a [damaged](State::Damaged) row are meaningless, and are zero here.
    pub state: State,
    /// Its process; 0 without one.
    pub pid: u32,
    /// Its process, if the row is the process's own, for the program that it runs now.
    pub process: Option<Asked>,
    /// The name of its process's program, in the ledger of a run; the group's own name elsewhere. Rows of one program
    /// are merged by this.
    pub program: String,
    /// Charged now; of an ended process, its holding at its end.
    pub current: u64,
    /// The peak of the charge.
    pub peak: u64,
    /// Its counts so far.
    pub counts: Counts,
    /// The hard limit; `None` is no limit.
    pub max: Option<u64>,
    /// The soft limit.
    pub high: Option<u64>,
    /// Protected unless nothing else can be reclaimed.
    pub low: u64,
    /// Protected always.
    pub min: u64,
    /// The ledger's own items, in its order: the name, and the sum of the group and those below it. A damaged row has
    /// none.
    pub items: Vec<(ItemName, i64)>,
}

/// The name of one of a ledger's own items: a string that all rows share.
pub type ItemName = Arc<str>;

/// Counts of a group: so far, or per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts<T = u64> {
    /// Charges, of the group and those below it.
    pub charges: T,
    /// Uncharges, of the group and those below it.
    pub uncharges: T,
    /// Charges of the group and those below it that a limit refused.
    pub refused: T,
    /// Refusals by its own max, and charges that exceeded it.
    pub max_events: T,
    /// Charges that exceeded its own high.
    pub high_events: T,
    /// Refusals by a max of the group or of those below it, and charges that exceeded one.
    pub subtree_max_events: T,
    /// Charges that exceeded a high of the group or of those below it.
    pub subtree_high_events: T,
    /// Units that caches gave back on request, of the group and those below it.
    pub reclaimed: T,
}

impl<T> Counts<T> {
    /// Combines each count with the same one of `other`.
    #[must_use]
    pub fn zip<U>(self, other: Counts<T>, each: impl Fn(T, T) -> U) -> Counts<U> {
        Counts {
            charges: each(self.charges, other.charges),
            uncharges: each(self.uncharges, other.uncharges),
            refused: each(self.refused, other.refused),
            max_events: each(self.max_events, other.max_events),
            high_events: each(self.high_events, other.high_events),
            subtree_max_events: each(self.subtree_max_events, other.subtree_max_events),
            subtree_high_events: each(self.subtree_high_events, other.subtree_high_events),
            reclaimed: each(self.reclaimed, other.reclaimed),
        }
    }
}

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It accepts charges.
    Live,
    /// Its process ended; the row is kept for the account.
    Exited,
    /// A program overwrote it.
    Damaged,
}

impl Look {
    /// Returns the root, which always exists.
    pub fn root(&self) -> &Row {
        &self.rows[0]
    }

    /// Returns the index of each row's parent among the rows; the root's is its own.
    pub fn parents(&self) -> Vec<usize> {
        let mut open: Vec<usize> = Vec::new();
        let mut parents = Vec::with_capacity(self.rows.len());
        for (place, row) in self.rows.iter().enumerate() {
            // A damaged row is shown below the root, whatever its depth is.
            open.truncate(row.depth as usize);
            parents.push(open.last().copied().unwrap_or(0));
            open.push(place);
        }
        parents
    }
}

impl Row {
    /// Returns a live group at a path, below the groups in the path, without holdings and counts. Tests and other
    /// sources fill a row in from here: `Row { current: 4096, ..Row::new(id, "/a") }`.
    ///
    /// ```
    /// use ledgerline::GroupId;
    /// use ledgerline_view::watch::Row;
    ///
    /// let row = Row { current: 4096, ..Row::new(GroupId::from_parts(2, 1), "/tenant/query") };
    /// assert_eq!((&*row.name, row.depth, row.peak), ("query", 2, 0));
    /// ```
    pub fn new(id: GroupId, path: &str) -> Row {
        let parts = || path.split('/').filter(|part| !part.is_empty());
        let name = parts().next_back().unwrap_or("/");
        Row {
            id,
            path: path.to_owned(),
            name: name.to_owned(),
            depth: parts().count() as u32,
            state: State::Live,
            pid: 0,
            process: None,
            program: name.to_owned(),
            current: 0,
            peak: 0,
            counts: Counts::default(),
            max: None,
            high: None,
            low: 0,
            min: 0,
            items: Vec::new(),
        }
    }

    /// Returns a row that a program overwrote: none of its numbers are facts.
    pub(crate) fn damaged(id: GroupId, path: String, name: String, depth: u32) -> Row {
        let program = name.clone();
        Row { name, program, depth, state: State::Damaged, ..Row::new(id, &path) }
    }

    /// Returns the part of its max that the group holds; `None` without a limit.
    pub fn share_of_max(&self) -> Option<f64> {
        self.max.map(|max| if max == 0 { 1.0 } else { self.current as f64 / max as f64 })
    }
}

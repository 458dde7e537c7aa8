//! One look at a ledger: all groups as owned data.

use ledgerline::GroupId;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What a ledger said at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// When it was taken, by the wall clock.
    pub at: SystemTime,
    /// When it was taken, by `CLOCK_MONOTONIC`, of which rates are made.
    pub clock: Duration,
    /// What is counted: `bytes`.
    pub unit: &'static str,
    /// Whether no transfer was under way (see [`ledgerline::Snapshot::steady`]).
    pub steady: bool,
    /// Whether a program wrote over the ledger, as far as that can be seen.
    pub damaged: bool,
    /// The root first, then depth-first: each group is followed by those below it.
    pub rows: Vec<Row>,
}

/// One group. All sizes are in the unit of the [`Look`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The group's number, by which it is found again in the next look. A number that comes again is the same group.
    pub id: GroupId,
    /// Its path, like a cgroup's; `/` is the root.
    pub path: String,
    /// The last part of the path; `/` for the root.
    pub name: String,
    /// Levels below the root.
    pub depth: u32,
    /// What has become of it. Of a [damaged](State::Damaged) row no number means anything, and all are zero here.
    pub state: State,
    /// Its process; 0 where it has none.
    pub pid: u32,
    /// The name of its process's program, in the ledger of a run; the group's own name elsewhere. Rows of one program
    /// are merged by this.
    pub program: String,
    /// Charged now; of a process that ended, what it held at its end.
    pub current: u64,
    /// The most that was charged at a time.
    pub peak: u64,
    /// What was counted of it, ever.
    pub counts: Counts,
    /// The hard limit; `None` is no limit.
    pub max: Option<u64>,
    /// The soft limit.
    pub high: Option<u64>,
    /// Protected unless nothing else is left.
    pub low: u64,
    /// Protected always.
    pub min: u64,
    /// The ledger's own items, in its order: the name, and the sum of the group and those below it. A damaged row has
    /// none.
    pub items: Vec<(ItemName, i64)>,
}

/// The name of one of a ledger's own items: a string that all rows share.
pub type ItemName = Arc<str>;

/// What is counted of a group: how much so far, or by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts<T = u64> {
    /// Charges, of the group and those below it.
    pub charges: T,
    /// Uncharges, of the group and those below it.
    pub uncharges: T,
    /// Charges of the group and those below it that a limit refused.
    pub refused: T,
    /// How often its own max refused, or was gone over.
    pub max_events: T,
    /// How often its own high was gone over.
    pub high_events: T,
    /// How often a max of the group or of those below it refused, or was gone over.
    pub subtree_max_events: T,
    /// How often a high of the group or of those below it was gone over.
    pub subtree_high_events: T,
    /// Units that caches gave back when they were asked, of the group and those below it.
    pub reclaimed: T,
}

impl<T> Counts<T> {
    /// What `each` makes of each count and the same one of `other`.
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

/// What has become of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It accepts charges.
    Live,
    /// Its process ended; it is kept for the account.
    Exited,
    /// A program wrote over it.
    Damaged,
}

impl Look {
    /// The root. (There always is one.)
    pub fn root(&self) -> &Row {
        &self.rows[0]
    }

    /// The place of each row's parent among the rows; the root's is its own.
    pub fn parents(&self) -> Vec<usize> {
        let mut open: Vec<usize> = Vec::new();
        let mut parents = Vec::with_capacity(self.rows.len());
        for (place, row) in self.rows.iter().enumerate() {
            // (A damaged row is shown below the root, whatever it says.)
            open.truncate(row.depth as usize);
            parents.push(open.last().copied().unwrap_or(0));
            open.push(place);
        }
        parents
    }
}

impl Row {
    /// A live group at a path, below all that the path names, that holds nothing and has counted nothing. A row is
    /// filled in from here: `Row { current: 4096, ..Row::new(id, "/a") }`.
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

    /// A row that a program wrote over: nothing that it says is a fact.
    pub(crate) fn damaged(id: GroupId, path: String, name: String, depth: u32) -> Row {
        let program = name.clone();
        Row { name, program, depth, state: State::Damaged, ..Row::new(id, &path) }
    }

    /// Which part of its max the group holds; `None` without a limit.
    pub fn share_of_max(&self) -> Option<f64> {
        self.max.map(|max| if max == 0 { 1.0 } else { self.current as f64 / max as f64 })
    }
}
